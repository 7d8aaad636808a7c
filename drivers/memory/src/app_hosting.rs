//! The driver `FAKE` of devices: it runs pods on simulated devices, which exist in this process only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Container;
use tokio::time::Instant;

use super::devices::{
    AppHostingCall, AppHostingMethod, DeviceState, MemoryContainer, MemoryDevice, MemoryDevices,
};
use staffetta_driver::app_hosting::{
    AppHostingDriver, AppHostingDrivers, DeploymentStage, DeviceInfo, DeviceResources, DeviceSpec,
    HostedContainer, HostedContainerState, HostedPod, HostedPods, ReservedResources,
};
use staffetta_driver::virtual_node::{ContainerUsage, PodProgress, PodRequest, PodUsage};
use staffetta_driver::{ClusterId, DriverError, Owner, Reason, Uid};

/// The time that a device needs to stop a container.
const STOP: Duration = Duration::from_millis(100);

const GIBIBYTE: u64 = 1 << 30;

/// The factory of the drivers named `FAKE` of one cluster. Each of these drivers runs pods on one simulated device.
pub struct MemoryAppHostingDrivers {
    devices: MemoryDevices,
    cluster: ClusterId,
}

impl MemoryDevices {
    /// Returns the factory of the drivers named `FAKE` that run pods of `cluster` on these devices.
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

    /// Executes `work` on the state of the device as a call of `method`, with the fault that is planned for it, if there is one. If the
    /// device is not reachable, the error is [`Reason::Unavailable`].
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

    /// Returns the pods of this cluster on the device.
    fn hosted(&self, state: &DeviceState) -> HostedPods {
        let now = Instant::now();
        let containers = state.containers.values().filter(|container| container.cluster == self.cluster);
        let mut pods: BTreeMap<&Uid, HostedPod> = BTreeMap::new();
        for MemoryContainer { owner, name, ip, running_from, .. } in containers {
            let pod = pods.entry(&owner.uid).or_insert_with(|| HostedPod {
                owner: owner.clone(),
                marked: true,
                containers: Vec::new(),
                ip: Some(*ip),
            });
            pod.containers.push(HostedContainer {
                name: name.clone(),
                id: format!("fake://{}/{name}", owner.uid),
                state: if *running_from > now {
                    let message = "App state: Installing".into();
                    HostedContainerState::Waiting { stage: DeploymentStage::Installing, message }
                } else {
                    HostedContainerState::Running
                },
            });
        }
        pods.into_values().collect()
    }

    /// Creates the container at `position` in the pod `owner`, unless it exists; one with another image is replaced. Returns the progress
    /// of the deployment of the container. If the device has no free address, the error is [`Reason::NoAddress`].
    fn deploy_container(
        &self,
        state: &mut DeviceState,
        owner: &Owner,
        position: usize,
        wanted: &Container,
    ) -> Result<PodProgress, DriverError> {
        let now = Instant::now();
        let image = wanted.image.clone().unwrap_or_default();
        state.remove(|found| {
            found.owner.uid == owner.uid && found.name == wanted.name && found.image != image
        });
        let key = (owner.uid.clone(), position);
        let running_from = if let Some(found) = state.containers.get(&key) {
            found.running_from
        } else {
            let full = || DriverError::new(Reason::NoAddress, "configure a container");
            let container = MemoryContainer {
                cluster: self.cluster.clone(),
                owner: owner.clone(),
                name: wanted.name.clone(),
                image,
                ip: state.addresses.take(now).ok_or_else(full)?,
                running_from: now + self.device.install,
                stopped: false,
            };
            state.containers.entry(key).or_insert(container).running_from
        };
        let poll_after = running_from.saturating_duration_since(now);
        Ok(if poll_after.is_zero() {
            PodProgress::Done
        } else {
            PodProgress::Working { state: format!("{}: installing", wanted.name), poll_after }
        })
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
        let owner = request.owner();
        self.device.calls.record(AppHostingCall::Deploy(owner.uid.clone()));
        let spec = request.pod.spec.as_ref();
        let wanted: &[Container] = spec.map_or(&[], |spec| &spec.containers);
        let init = spec.and_then(|spec| spec.init_containers.as_ref());
        if init.is_some_and(|init| !init.is_empty()) {
            let error = DriverError::new(Reason::Unsupported, "deploy a pod");
            return Err(error.detail("spec.initContainers: a fake device has no order of containers"));
        }
        let work = |state: &mut DeviceState| {
            let mut whole = PodProgress::Done;
            for (position, container) in wanted.iter().enumerate() {
                whole = whole.and(self.deploy_container(state, &owner, position, container)?);
            }
            Ok(whole)
        };
        self.on_device(AppHostingMethod::Deploy, work).await
    }

    async fn delete_pod(&self, owner: &Owner) -> Result<PodProgress, DriverError> {
        self.device.calls.record(AppHostingCall::Delete(owner.uid.clone()));
        let is_its = |found: &MemoryContainer| found.cluster == self.cluster && found.owner.uid == owner.uid;
        let work = |state: &mut DeviceState| {
            let mut running = state.containers.values_mut().filter(|found| is_its(found) && !found.stopped);
            if let Some(container) = running.next() {
                container.stopped = true;
                let state = format!("{}: stopping", container.name);
                return Ok(PodProgress::Working { state, poll_after: STOP });
            }
            state.remove(is_its);
            Ok(PodProgress::Done)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(uid: &str, image: &str) -> PodRequest {
        let pod = json!({
            "metadata": { "namespace": "shop", "name": "web", "uid": uid },
            "spec": { "containers": [{ "name": "app", "image": image }] },
        });
        PodRequest { pod: Arc::new(serde_json::from_value(pod).unwrap()), environment: [].into() }
    }

    fn driver() -> (MemoryAppHostingDriver, Arc<MemoryDevice>) {
        let device = MemoryDevices::default().device("r1");
        (MemoryAppHostingDriver::new(Arc::clone(&device), "east".into()), device)
    }

    /// Deploys the pod, and waits as long as the driver says.
    async fn deploy(driver: &MemoryAppHostingDriver, request: &PodRequest) {
        let progress = driver.deploy_pod(request).await.unwrap();
        tokio::time::advance(progress.poll_after().expect("the image is to be installed")).await;
        assert!(driver.deploy_pod(request).await.unwrap().is_done());
    }

    async fn state(driver: &MemoryAppHostingDriver, uid: &str) -> Option<HostedContainerState> {
        let pods = driver.list_pods().await.unwrap();
        let pod = pods.iter().find(|pod| pod.owner.uid.as_str() == uid)?;
        Some(pod.containers[0].state.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_waits_for_its_image_runs_and_is_gone_after_its_deletion() {
        let (driver, device) = driver();
        let request = request("u1", "flash:/a.tar");
        assert!(!driver.deploy_pod(&request).await.unwrap().is_done());
        let waiting = state(&driver, "u1").await.unwrap();
        assert!(matches!(waiting, HostedContainerState::Waiting { stage: DeploymentStage::Installing, .. }));
        deploy(&driver, &request).await;
        assert_eq!(state(&driver, "u1").await, Some(HostedContainerState::Running));
        let progress = driver.delete_pod(&request.owner()).await.unwrap();
        assert_eq!((progress.poll_after(), device.containers().len()), (Some(STOP), 1));
        assert!(driver.delete_pod(&request.owner()).await.unwrap().is_done());
        assert_eq!(device.containers(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn another_image_makes_the_container_anew() {
        let (driver, device) = driver();
        deploy(&driver, &request("u1", "flash:/a.tar")).await;
        let changed = request("u1", "flash:/b.tar");
        assert!(!driver.update_pod(&changed).await.unwrap().is_done());
        deploy(&driver, &changed).await;
        assert_eq!(device.containers()[0].image, "flash:/b.tar");
    }

    #[tokio::test]
    async fn a_device_that_is_switched_off_is_unavailable_and_nothing_is_absent() {
        let (driver, device) = driver();
        driver.deploy_pod(&request("u1", "flash:/a.tar")).await.unwrap();
        device.set_reachable(false);
        let owner = request("u1", "").owner();
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
    async fn what_another_cluster_made_is_left_alone() {
        let devices = MemoryDevices::default();
        let [east, west] =
            ["east", "west"].map(|cluster| MemoryAppHostingDriver::new(devices.device("r1"), cluster.into()));
        let request = request("u1", "flash:/a.tar");
        west.deploy_pod(&request).await.unwrap();
        assert!(east.list_pods().await.unwrap().is_empty());
        assert!(east.delete_pod(&request.owner()).await.unwrap().is_done());
        assert_eq!(devices.device("r1").containers().len(), 1);
    }
}
