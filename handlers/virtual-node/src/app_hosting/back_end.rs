//! The back end of a node that is a device: passes calls on to the driver of the device.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use parking_lot::Mutex;
use staffetta_driver::DriverError;
use staffetta_driver::app_hosting::{AppHostingDriver, DeviceInfo, DeviceResources, HostedPods};
use staffetta_driver::virtual_node::{PodProgress, PodRequest, PodUsage};
use staffetta_handler::causes;
use tokio::time::Instant;
use tracing::debug;

use crate::back_end::{NodeBackEnd, PodRemoval, Reply};
use crate::node::{MachineInfo, NodeHealth, Room};

/// The back end of a node that is a device: passes calls on to the driver of the device.
pub(crate) struct DeviceBackEnd {
    driver: Arc<dyn AppHostingDriver>,
    /// The device information of the last successful read; empty before the first one.
    info: Mutex<DeviceInfo>,
    /// The IP address of the device; `None` if it could not be resolved when the connection was opened.
    host_ip: Option<IpAddr>,
    /// A digest of the parameters of the connection, including the password.
    credentials: u64,
}

impl DeviceBackEnd {
    /// Creates the back end on top of the driver of the device.
    pub(crate) fn new(driver: Arc<dyn AppHostingDriver>, host_ip: Option<IpAddr>, credentials: u64) -> Self {
        Self { driver, info: Mutex::default(), host_ip, credentials }
    }

    /// Reads the device information. If the read fails, the last information is returned, which is empty at first: a
    /// device without this information can still run pods.
    async fn info(&self) -> DeviceInfo {
        let reported = self.driver.get_device_info().await;
        let mut info = self.info.lock();
        match reported {
            Ok(reported) => info.clone_from(&reported),
            Err(error) => debug!(error = causes(&error), "a device does not report its information"),
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

    async fn inventory(&self) -> Result<Reply<HostedPods>, DriverError> {
        self.driver.list_pods().await.map(Reply::Now)
    }

    async fn apply(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.driver.deploy_pod(request).await
    }

    async fn update(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.driver.update_pod(request).await
    }

    async fn remove(&self, removal: &PodRemoval) -> Result<PodProgress, DriverError> {
        self.driver.delete_pod(&removal.owner).await
    }

    fn expect(&self, pods: &[Arc<Pod>]) {
        self.driver.expect_pods(pods);
    }

    fn credentials(&self) -> Option<u64> {
        Some(self.credentials)
    }

    fn last_answer(&self) -> Option<Instant> {
        self.driver.last_answer()
    }

    async fn usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        self.driver.get_usage().await
    }
}

/// Converts the resources and the information of a device into the health of its node. Amounts that the device does not
/// report are left out. The resources that others than pods of this cluster have reserved are not allocatable.
fn health(resources: &DeviceResources, info: DeviceInfo) -> NodeHealth {
    let DeviceResources { cpu_millis: cpu, memory_bytes: memory, storage_bytes: storage, taken, .. } =
        *resources;
    let amounts = |cpu_left: u64, memory_left: u64, storage_left: u64| -> BTreeMap<String, Quantity> {
        let amounts = [
            ("cpu", cpu, format!("{cpu_left}m")),
            ("memory", memory, memory_left.to_string()),
            ("ephemeral-storage", storage, storage_left.to_string()),
        ];
        let reported = amounts.into_iter().filter(|(_, reported, _)| *reported > 0);
        reported.map(|(name, _, text)| (name.to_owned(), Quantity(text))).collect()
    };
    let disabled = || ("AppHostingDisabled", "the device hosts no applications: enable IOx there".to_owned());
    let system = if info.system.is_empty() { "IOS-XE" } else { &info.system };
    let product = Some(&info.product_id).filter(|product| !product.is_empty());
    let room = |free, all| (all > 0).then_some(Room { free, all });
    NodeHealth {
        // The scheduler subtracts the requests of pods from this; the free amounts lack those already.
        allocatable: amounts(
            cpu.saturating_sub(taken.cpu_millis),
            memory.saturating_sub(taken.memory_bytes),
            storage.saturating_sub(taken.storage_bytes),
        ),
        capacity: amounts(cpu, memory, storage),
        memory: room(resources.free_memory_bytes, memory),
        storage: room(resources.free_storage_bytes, storage),
        host_ip: None,
        info: MachineInfo {
            os_image: product.map_or(system.to_owned(), |product| format!("{system} ({product})")),
            machine_id: info.serial_number,
            kernel_version: info.software_version,
            container_runtime: "cisco://".to_owned(),
            architecture: info.architecture,
            operating_system: "linux".to_owned(),
        },
        problem: (!resources.enabled).then(disabled),
        conditions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::Reason;
    use staffetta_driver::app_hosting::ReservedResources;
    use staffetta_memory::{AppHostingMethod, Fault, MemoryAppHostingDriver, MemoryDevices};

    use super::*;

    #[tokio::test]
    async fn a_device_that_does_not_say_what_it_is_takes_pods_all_the_same() {
        let device = MemoryDevices::default().device("r1");
        let driver = MemoryAppHostingDriver::new(Arc::clone(&device), "east".into());
        let back_end = DeviceBackEnd::new(Arc::new(driver), None, 0);
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
    fn a_device_that_hosts_nothing_now_says_so_and_shows_only_what_it_reported() {
        let resources =
            DeviceResources { enabled: false, memory_bytes: 1 << 30, ..DeviceResources::default() };
        let health = health(&resources, DeviceInfo::default());
        assert_eq!(health.problem.as_ref().map(|problem| problem.0), Some("AppHostingDisabled"));
        let names: Vec<_> = health.capacity.keys().collect();
        assert_eq!(names, ["memory"]);
    }

    #[test]
    fn what_is_free_on_a_device_is_reported_where_the_device_tells_it() {
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
        let taken = ReservedResources { cpu_millis: 500, memory_bytes: 2 << 30, storage_bytes: 0 };
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
}
