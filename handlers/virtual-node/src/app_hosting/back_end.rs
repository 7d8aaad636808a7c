//! A device as what one node can do.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use staffetta_driver::app_hosting::{
    AppHostingDriver, DeviceInfo, DeviceResources, HostedPod, HostedPods, HostedState,
};
use staffetta_driver::virtual_node::{PodRequest, PodUsage, Progress};
use staffetta_driver::{DriverError, Owner};
use staffetta_handler::causes;
use tokio::time::Instant;
use tracing::debug;

use crate::back_end::{NodeBackEnd, Reply};
use crate::node::{MachineInfo, NodeHealth, Room};
use crate::workload::{ContainerSight, ContainerState, Workload, Workloads};

/// A device as what one node can do.
pub(crate) struct DeviceBackEnd {
    driver: Arc<dyn AppHostingDriver>,
    /// The last answer and what was made of it: an answer that is the same costs nothing.
    last: Mutex<Option<(HostedPods, Workloads)>>,
    /// What the device said of itself last.
    info: Mutex<DeviceInfo>,
    /// Its address, where its description has a name instead.
    host_ip: Option<IpAddr>,
}

impl DeviceBackEnd {
    pub(crate) fn new(driver: Arc<dyn AppHostingDriver>, host_ip: Option<IpAddr>) -> Self {
        Self { driver, last: Mutex::new(None), info: Mutex::default(), host_ip }
    }

    /// What the device says of itself. One that does not say it, or not now, takes pods all the same.
    async fn info(&self) -> DeviceInfo {
        let told = self.driver.get_device_info().await;
        let mut info = self.info.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Ok(told) => info.clone_from(&told),
            Err(error) => debug!(error = causes(&error), "a device does not say what it is"),
        }
        info.clone()
    }
}

#[async_trait]
impl NodeBackEnd for DeviceBackEnd {
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError> {
        let resources = self.driver.get_device_resources().await?;
        let info = self.info().await;
        Ok(Reply::Now(NodeHealth { host_ip: self.host_ip, ..health(&resources, info) }))
    }

    async fn inventory(&self) -> Result<Reply<Workloads>, DriverError> {
        let pods = self.driver.list_pods().await?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((before, workloads)) = &*last
            && (Arc::ptr_eq(before, &pods) || before == &pods)
        {
            return Ok(Reply::Now(Arc::clone(workloads)));
        }
        let workloads: Workloads = pods.iter().map(|pod| Arc::new(workload(pod))).collect();
        *last = Some((pods, Arc::clone(&workloads)));
        Ok(Reply::Now(workloads))
    }

    async fn apply(&self, request: &PodRequest) -> Result<Progress, DriverError> {
        self.driver.deploy_pod(request).await
    }

    async fn update(&self, request: &PodRequest) -> Result<Progress, DriverError> {
        self.driver.update_pod(request).await
    }

    async fn remove(&self, owner: &Owner) -> Result<Progress, DriverError> {
        self.driver.delete_pod(owner).await
    }

    fn last_answer(&self) -> Option<Instant> {
        self.driver.last_answer()
    }

    async fn usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        self.driver.get_usage().await
    }
}

fn workload(pod: &HostedPod) -> Workload {
    let containers = pod.containers.iter().map(|container| ContainerSight {
        name: container.name.clone(),
        id: container.id.clone(),
        state: state(&container.state),
    });
    Workload { owner: pod.owner.clone(), ours: pod.marked, containers: containers.collect(), ip: pod.ip }
}

fn state(state: &HostedState) -> ContainerState {
    match state {
        HostedState::Waiting { stage, message } => {
            ContainerState::Waiting { reason: stage.reason().into(), message: message.clone() }
        }
        HostedState::Running => ContainerState::Running { since: None },
        HostedState::Ended { message } => {
            ContainerState::Ended { exit_code: 0, reason: "Completed".into(), message: message.clone() }
        }
        HostedState::Failed { reason, message } => {
            ContainerState::Ended { exit_code: 1, reason: reason.clone().into(), message: message.clone() }
        }
    }
}

/// What a device has and is, as its node shows it. What it does not tell is left out.
fn health(resources: &DeviceResources, info: DeviceInfo) -> NodeHealth {
    // What the device does not tell at all is not shown as none.
    let quantities = |cpu: u64, memory: u64, storage: u64| {
        let known = [
            ("cpu", resources.cpu_millis, format!("{cpu}m")),
            ("memory", resources.memory_bytes, memory.to_string()),
            ("ephemeral-storage", resources.storage_bytes, storage.to_string()),
        ];
        let known = known.into_iter().filter(|(_, told, _)| *told > 0);
        known.map(|(name, _, text)| (name.to_owned(), Quantity(text))).collect::<BTreeMap<_, _>>()
    };
    let (all, taken) = (resources, resources.taken);
    let capacity = quantities(all.cpu_millis, all.memory_bytes, all.storage_bytes);
    // The scheduler takes what pods ask for from this; what is free by now already lacks that.
    let allocatable = quantities(
        all.cpu_millis.saturating_sub(taken.cpu_millis),
        all.memory_bytes.saturating_sub(taken.memory_bytes),
        all.storage_bytes.saturating_sub(taken.storage_bytes),
    );
    let trouble = (!resources.enabled).then(|| {
        (
            "AppHostingDisabled",
            "the device hosts no applications at this moment: switch it on there".to_owned(),
        )
    });
    let system = if info.system.is_empty() { "IOS-XE".to_owned() } else { info.system };
    let room = |free, all| (all > 0).then_some(Room { free, all });
    NodeHealth {
        allocatable,
        capacity,
        memory: room(all.free_memory_bytes, all.memory_bytes),
        storage: room(all.free_storage_bytes, all.storage_bytes),
        host_ip: None,
        info: MachineInfo {
            machine_id: info.serial_number,
            kernel_version: info.software_version,
            os_image: if info.product_id.is_empty() {
                system
            } else {
                format!("{system} ({})", info.product_id)
            },
            container_runtime: "cisco://".to_owned(),
            architecture: info.architecture,
            operating_system: "linux".to_owned(),
        },
        trouble,
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::Reason;
    use staffetta_driver::app_hosting::TakenResources;
    use staffetta_driver::memory::{AppHostingMethod, Fault, MemoryAppHostingDriver, MemoryDevices};

    use super::*;

    #[tokio::test]
    async fn a_device_that_does_not_say_what_it_is_takes_pods_all_the_same() {
        let device = MemoryDevices::default().device("r1");
        let driver = MemoryAppHostingDriver::new(Arc::clone(&device), "east".into());
        let back_end = DeviceBackEnd::new(Arc::new(driver), None);
        let serial = async || match back_end.health().await.unwrap() {
            Reply::Now(health) => health.info.machine_id,
            Reply::Later => unreachable!("it answers at once"),
        };
        for reason in [Reason::Unavailable, Reason::Refused, Reason::NotFound] {
            device.faults().inject(AppHostingMethod::Info, 1, Fault::Fail(DriverError::new(reason, "ask")));
            assert_eq!(serial().await, "");
        }
        assert_eq!(serial().await, "FAKE0000001");
        device.faults().inject(
            AppHostingMethod::Info,
            1,
            Fault::Fail(DriverError::new(Reason::Unavailable, "ask")),
        );
        assert_eq!(serial().await, "FAKE0000001", "what it said before is still so");
    }

    #[test]
    fn a_device_that_hosts_nothing_now_says_so_and_shows_only_what_it_told() {
        let resources =
            DeviceResources { enabled: false, memory_bytes: 1 << 30, ..DeviceResources::default() };
        let health = health(&resources, DeviceInfo::default());
        assert_eq!(health.trouble.as_ref().map(|trouble| trouble.0), Some("AppHostingDisabled"));
        let names: Vec<_> = health.capacity.keys().collect();
        assert_eq!(names, ["memory"]);
    }

    #[test]
    fn what_is_free_on_a_device_is_told_where_the_device_tells_it() {
        let resources = DeviceResources {
            enabled: true,
            memory_bytes: 1000,
            free_memory_bytes: 30,
            ..DeviceResources::default()
        };
        let health = health(&resources, DeviceInfo::default());
        assert_eq!((health.memory, health.storage), (Some(Room { free: 30, all: 1000 }), None));
    }

    #[test]
    fn what_somebody_else_has_reserved_is_not_for_pods() {
        let taken = TakenResources { cpu_millis: 500, memory_bytes: 2 << 30, storage_bytes: 0 };
        let resources = DeviceResources {
            enabled: true,
            cpu_millis: 2000,
            memory_bytes: 1 << 30,
            taken,
            ..DeviceResources::default()
        };
        let health = health(&resources, DeviceInfo::default());
        let shown = |of: &BTreeMap<String, Quantity>| {
            of.iter().map(|(name, amount)| (name.clone(), amount.0.clone())).collect::<Vec<_>>()
        };
        let pair = |name: &str, amount: &str| (name.to_owned(), amount.to_owned());
        assert_eq!(shown(&health.capacity), [pair("cpu", "2000m"), pair("memory", "1073741824")]);
        assert_eq!(shown(&health.allocatable), [pair("cpu", "1500m"), pair("memory", "0")]);
    }

    #[test]
    fn every_state_of_a_device_has_one_here() {
        let failed = HostedState::Failed { reason: "InstallFailed".into(), message: "no space".into() };
        let expected = ContainerState::Ended {
            exit_code: 1,
            reason: "InstallFailed".into(),
            message: "no space".into(),
        };
        assert_eq!(state(&failed), expected);
        assert_eq!(state(&HostedState::Running), ContainerState::Running { since: None });
    }
}
