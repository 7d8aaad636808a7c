//! The driver `FAKE` of devices: it runs pods on simulated devices, which exist in this process only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use super::devices::{
    AppHostingCall, AppHostingMethod, DeviceState, MemoryContainer, MemoryContainerState, MemoryDevice,
    MemoryDevices,
};
use staffetta_driver::app_hosting::{
    AppHostingDriver, AppHostingDrivers, DeviceInfo, DeviceResources, DeviceSpec, HostedContainer, HostedPod,
    HostedPods, ReservedResources,
};
use staffetta_driver::virtual_node::{ContainerUsage, PodProgress, PodRequest, PodUsage};
use staffetta_driver::{ClusterId, DriverError, Owner, Reason, Uid};

/// The delay before the next call after a step that the device completes at once.
const STEP: Duration = Duration::from_millis(100);

const GIBIBYTE: u64 = 1 << 30;

/// Creates the drivers named `FAKE` of one cluster, each for one device.
pub struct MemoryAppHostingDrivers {
    devices: MemoryDevices,
    cluster: ClusterId,
}

impl MemoryDevices {
    /// Returns the factory of drivers for the cluster with this id.
    pub fn of_cluster(&self, cluster: ClusterId) -> MemoryAppHostingDrivers {
        MemoryAppHostingDrivers { devices: self.clone(), cluster }
    }
}

impl AppHostingDrivers for MemoryAppHostingDrivers {
    fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError> {
        if !spec.driver_options.is_empty() {
            let error = DriverError::new(Reason::Refused, "read the description of a device");
            return Err(error.detail("driverOptions: the driver `FAKE` has none"));
        }
        let device = self.devices.device(&spec.address);
        Ok(Arc::new(MemoryAppHostingDriver::new(device, self.cluster.clone())))
    }
}

/// The driver of one [`MemoryDevice`] for one cluster.
pub struct MemoryAppHostingDriver {
    device: Arc<MemoryDevice>,
    cluster: ClusterId,
}

impl MemoryAppHostingDriver {
    /// Creates a driver of `device`. Its containers carry the ownership mark of `cluster`.
    pub fn new(device: Arc<MemoryDevice>, cluster: ClusterId) -> Self {
        Self { device, cluster }
    }

    /// Executes `work` on the state of the device as a call of `method`, with the planned fault. If the device is not reachable, the error
    /// is [`Reason::Unavailable`].
    async fn on_device<T>(
        &self,
        method: AppHostingMethod,
        work: impl FnOnce(&mut DeviceState) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let reached = || {
            let mut state = self.device.state();
            if !state.reachable {
                let error = DriverError::new(Reason::Unavailable, "reach a device");
                return Err(error.detail("the fake device is switched off"));
            }
            work(&mut state)
        };
        self.device.calls.faults.call(method, reached).await
    }

    /// Returns `true` if the container has no ownership mark, or the mark of this cluster.
    fn may_touch(&self, container: &MemoryContainer) -> bool {
        container.cluster.as_ref().is_none_or(|cluster| *cluster == self.cluster)
    }

    /// Returns the pods of the device whose containers this cluster may touch.
    fn hosted(&self, state: &DeviceState) -> HostedPods {
        let mut containers: Vec<_> =
            state.containers.values().filter(|container| self.may_touch(container)).collect();
        containers.sort_by_key(|container| container.position);
        let mut pods: BTreeMap<&Uid, HostedPod> = BTreeMap::new();
        for container in containers {
            let Some(owner) = &container.owner else { continue };
            let pod = pods.entry(&owner.uid).or_insert_with(|| HostedPod {
                owner: owner.clone(),
                marked: container.cluster.is_some(),
                containers: Vec::new(),
                ip: Some(container.ip),
            });
            pod.containers.push(HostedContainer {
                name: container.name.clone(),
                id: format!("fake://{}/{}", owner.uid, container.name),
                state: container.state.hosted(),
            });
        }
        pods.into_values().collect()
    }

    /// Takes one step towards the deployment of a container, and returns the progress.
    fn deploy_container(
        &self,
        state: &mut DeviceState,
        pod: &Pod,
        position: usize,
        wanted: &Container,
    ) -> Result<PodProgress, DriverError> {
        let (owner, now) = (Owner::of(&pod.metadata), Instant::now());
        let key = (owner.uid.clone(), wanted.name.clone());
        let image = wanted.image.clone().unwrap_or_default();
        if state.containers.get(&key).is_some_and(|found| found.image != image) {
            remove_step(state, &key);
            return Ok(working(wanted, "being removed, because its image changed"));
        }
        let Some(found) = state.containers.get_mut(&key) else {
            let full = || DriverError::new(Reason::NoAddress, "configure a container");
            let container = MemoryContainer {
                owner: Some(owner),
                cluster: Some(self.cluster.clone()),
                name: wanted.name.clone(),
                image,
                position,
                ip: state.addresses.take(now).ok_or_else(full)?,
                state: MemoryContainerState::Configured,
            };
            state.containers.insert(key, container);
            return Ok(working(wanted, "configuring"));
        };
        let (next, said) = match &found.state {
            MemoryContainerState::Configured => {
                (MemoryContainerState::Installing(now + self.device.install), "installing")
            }
            MemoryContainerState::Installing(until) if *until > now => {
                let state = format!("{}: installing", wanted.name);
                return Ok(PodProgress::Working { state, poll_after: *until - now });
            }
            MemoryContainerState::Installing(_) => (MemoryContainerState::Installed, "activating"),
            MemoryContainerState::Installed => (MemoryContainerState::Activated, "starting"),
            MemoryContainerState::Activated => (MemoryContainerState::Running, "running"),
            MemoryContainerState::Ended if restart_policy(pod) == "Always" => {
                (MemoryContainerState::Running, "restarting")
            }
            MemoryContainerState::Running | MemoryContainerState::Ended => return Ok(PodProgress::Done),
            MemoryContainerState::Failed { .. } if restart_policy(pod) == "Never" => {
                return Ok(PodProgress::Done);
            }
            MemoryContainerState::Failed { reason, message, until } if *until > now => {
                let (reason, message) = (reason.clone().into(), message.clone());
                return Ok(PodProgress::Failing { reason, message, poll_after: *until - now });
            }
            MemoryContainerState::Failed { .. } => (MemoryContainerState::Configured, "retrying"),
        };
        found.state = next;
        let done = found.state == MemoryContainerState::Running;
        Ok(if done { PodProgress::Done } else { working(wanted, said) })
    }
}

#[async_trait]
impl AppHostingDriver for MemoryAppHostingDriver {
    async fn check_connection(&self) -> Result<(), DriverError> {
        self.on_device(AppHostingMethod::Check, |_| Ok(())).await
    }

    async fn get_device_info(&self) -> Result<DeviceInfo, DriverError> {
        let info = DeviceInfo {
            serial_number: "FAKE0000001".into(),
            software_version: "1.0.0".into(),
            product_id: "FAKE".into(),
            system: "Fake".into(),
            architecture: "amd64".into(),
        };
        self.on_device(AppHostingMethod::Info, |_| Ok(info)).await
    }

    async fn get_device_resources(&self) -> Result<DeviceResources, DriverError> {
        let resources = |enabled| DeviceResources {
            enabled,
            cpu_millis: 8000,
            free_cpu_millis: 8000,
            memory_bytes: 16 * GIBIBYTE,
            free_memory_bytes: 16 * GIBIBYTE,
            storage_bytes: 100 * GIBIBYTE,
            free_storage_bytes: 100 * GIBIBYTE,
            taken: ReservedResources::default(),
        };
        self.on_device(AppHostingMethod::Resources, |state| Ok(resources(state.hosts))).await
    }

    async fn deploy_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        let pod = &*request.pod;
        let owner = request.owner();
        self.device.calls.record(AppHostingCall::Deploy(owner.uid.clone()));
        let spec = pod.spec.as_ref();
        let wanted: &[Container] = spec.map_or(&[], |spec| &spec.containers);
        let init = spec.and_then(|spec| spec.init_containers.as_ref());
        if init.is_some_and(|init| !init.is_empty()) {
            let error = DriverError::new(Reason::Unsupported, "deploy a pod");
            return Err(error.detail("spec.initContainers: a fake device has no order of containers"));
        }
        let work = |state: &mut DeviceState| {
            let mut whole = PodProgress::Done;
            for (position, container) in wanted.iter().enumerate() {
                whole = whole.and(self.deploy_container(state, pod, position, container)?);
            }
            Ok(whole)
        };
        self.on_device(AppHostingMethod::Deploy, work).await
    }

    async fn delete_pod(&self, owner: &Owner) -> Result<PodProgress, DriverError> {
        self.device.calls.record(AppHostingCall::Delete(owner.uid.clone()));
        let work = |state: &mut DeviceState| {
            let of_pod = |container: &&MemoryContainer| {
                container.owner.as_ref().is_some_and(|found| found.uid == owner.uid)
                    && self.may_touch(container)
            };
            let names: Vec<_> =
                state.containers.values().filter(of_pod).map(|container| container.name.clone()).collect();
            for name in &names {
                remove_step(state, &(owner.uid.clone(), name.clone()));
            }
            Ok(match names.first() {
                None => PodProgress::Done,
                Some(name) => PodProgress::Working { state: format!("{name}: is removed"), poll_after: STEP },
            })
        };
        self.on_device(AppHostingMethod::Delete, work).await
    }

    async fn list_pods(&self) -> Result<HostedPods, DriverError> {
        self.on_device(AppHostingMethod::List, |state| Ok(self.hosted(state))).await
    }

    async fn get_usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        let usage = |container: &HostedContainer| ContainerUsage {
            name: container.name.clone(),
            cpu_nanocores: Some(10_000_000),
            memory_bytes: Some(64 << 20),
            storage_bytes: None,
        };
        let of_pod = |pod: &HostedPod| PodUsage {
            owner: pod.owner.clone(),
            containers: pod.containers.iter().map(usage).collect(),
            received_bytes: Some(0),
            sent_bytes: Some(0),
        };
        let work = |state: &mut DeviceState| Ok(self.hosted(state).iter().map(of_pod).collect());
        self.on_device(AppHostingMethod::Usage, work).await
    }
}

/// Takes one step towards the removal of a container, and removes it with the last step.
fn remove_step(state: &mut DeviceState, key: &(Uid, String)) {
    let Some(container) = state.containers.get_mut(key) else { return };
    container.state = match container.state {
        MemoryContainerState::Running | MemoryContainerState::Ended => MemoryContainerState::Activated,
        MemoryContainerState::Activated => MemoryContainerState::Installed,
        _ => {
            let ip = container.ip;
            state.containers.remove(key);
            state.addresses.give_back(ip, Instant::now());
            return;
        }
    };
}

/// Returns the progress of a pod whose container is in the state `said`. The next call is due after [`STEP`].
fn working(container: &Container, said: &str) -> PodProgress {
    PodProgress::Working { state: format!("{}: {said}", container.name), poll_after: STEP }
}

/// Returns the restart policy of the pod, `Always` by default.
fn restart_policy(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use staffetta_driver::app_hosting::{DeploymentStage, HostedContainerState};

    fn request(uid: &str, image: &str, restart_policy: &str) -> PodRequest {
        let pod = json!({
            "metadata": { "namespace": "shop", "name": "web", "uid": uid },
            "spec": { "restartPolicy": restart_policy, "containers": [{ "name": "app", "image": image }] },
        });
        PodRequest { pod: Arc::new(serde_json::from_value(pod).unwrap()), environment: [].into() }
    }

    fn driver() -> (MemoryAppHostingDriver, Arc<MemoryDevice>) {
        let device = MemoryDevices::default().device("r1");
        (MemoryAppHostingDriver::new(Arc::clone(&device), "east".into()), device)
    }

    /// Deploys the pod step by step, and returns the number of steps before it was done.
    async fn deploy(driver: &MemoryAppHostingDriver, request: &PodRequest) -> usize {
        for steps in 0..20 {
            let progress = driver.deploy_pod(request).await.unwrap();
            let Some(poll_after) = progress.poll_after() else { return steps };
            tokio::time::advance(poll_after).await;
        }
        panic!("it never is done")
    }

    async fn state(driver: &MemoryAppHostingDriver, uid: &str) -> Option<HostedContainerState> {
        let pods = driver.list_pods().await.unwrap();
        let pod = pods.iter().find(|pod| pod.owner.uid.as_str() == uid)?;
        Some(pod.containers[0].state.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_goes_one_step_a_call_and_is_gone_one_step_a_call() {
        let (driver, device) = driver();
        let request = request("u1", "flash:/a.tar", "Always");
        assert!(!driver.deploy_pod(&request).await.unwrap().is_done());
        let waiting = state(&driver, "u1").await.unwrap();
        assert!(matches!(waiting, HostedContainerState::Waiting { stage: DeploymentStage::Configured, .. }));
        assert_eq!(deploy(&driver, &request).await, 4);
        assert_eq!(state(&driver, "u1").await, Some(HostedContainerState::Running));
        let mut steps = 0;
        while !driver.delete_pod(&request.owner()).await.unwrap().is_done() {
            steps += 1;
        }
        assert_eq!((steps, device.containers().len()), (3, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_container_that_ended_is_started_again_only_where_the_policy_says_so() {
        for (policy, expected) in [
            ("Always", HostedContainerState::Running),
            ("Never", HostedContainerState::Ended { message: "App state: Ended".into() }),
        ] {
            let (driver, device) = driver();
            let request = request("u1", "flash:/a.tar", policy);
            deploy(&driver, &request).await;
            device.set_state(&"u1".into(), "app", MemoryContainerState::Ended);
            assert!(driver.deploy_pod(&request).await.unwrap().is_done());
            assert_eq!(state(&driver, "u1").await, Some(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_image_makes_the_container_anew() {
        let (driver, device) = driver();
        deploy(&driver, &request("u1", "flash:/a.tar", "Always")).await;
        let changed = request("u1", "flash:/b.tar", "Always");
        assert!(!driver.update_pod(&changed).await.unwrap().is_done());
        deploy(&driver, &changed).await;
        assert_eq!(device.containers()[0].image, "flash:/b.tar");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_and_tried_again_only_after_its_time() {
        let (driver, device) = driver();
        let request = request("u1", "flash:/a.tar", "Always");
        deploy(&driver, &request).await;
        let until = Instant::now() + Duration::from_secs(60);
        let failed =
            MemoryContainerState::Failed { reason: "ErrImagePull".into(), message: "no room".into(), until };
        device.set_state(&"u1".into(), "app", failed);
        let progress = driver.deploy_pod(&request).await.unwrap();
        assert!(matches!(&progress, PodProgress::Failing { reason, .. } if reason == "ErrImagePull"));
        assert_eq!(progress.poll_after(), Some(Duration::from_secs(60)));
        tokio::time::advance(Duration::from_secs(60)).await;
        deploy(&driver, &request).await;
        assert_eq!(state(&driver, "u1").await, Some(HostedContainerState::Running));
    }

    #[tokio::test]
    async fn a_device_that_is_switched_off_is_unavailable_and_nothing_is_absent() {
        let (driver, device) = driver();
        driver.deploy_pod(&request("u1", "flash:/a.tar", "Always")).await.unwrap();
        device.set_reachable(false);
        let owner = request("u1", "", "Always").owner();
        assert_eq!(driver.get_pod_status(&owner).await.unwrap_err().reason(), Reason::Unavailable);
        device.set_reachable(true);
        assert!(driver.get_pod_status(&owner).await.unwrap().is_some());
        device.reset();
        assert!(driver.get_pod_status(&owner).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_fault_of_a_list_is_not_used_up_by_a_read_of_the_usage() {
        let (driver, device) = driver();
        let failed = DriverError::new(Reason::Unavailable, "list");
        device.faults().inject(AppHostingMethod::List, 1, crate::Fault::Fail(failed));
        assert!(driver.get_usage().await.is_ok() && driver.list_pods().await.is_err());
    }

    #[tokio::test]
    async fn what_another_cluster_made_or_nobody_owns_is_left_alone() {
        let devices = MemoryDevices::default();
        let [east, west] =
            ["east", "west"].map(|cluster| MemoryAppHostingDriver::new(devices.device("r1"), cluster.into()));
        let request = request("u1", "flash:/a.tar", "Always");
        west.deploy_pod(&request).await.unwrap();
        let foreign = MemoryContainer {
            owner: None,
            cluster: None,
            name: "by-hand".into(),
            image: String::new(),
            position: 0,
            ip: "10.99.9.9".parse().unwrap(),
            state: MemoryContainerState::Running,
        };
        devices.device("r1").put(&"".into(), foreign);
        assert!(east.list_pods().await.unwrap().is_empty());
        assert!(east.delete_pod(&request.owner()).await.unwrap().is_done());
        assert_eq!(devices.device("r1").containers().len(), 2);
    }
}
