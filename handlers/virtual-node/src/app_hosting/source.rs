//! The devices as nodes: they come and go with their descriptions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kube::Client;
use staffetta_driver::app_hosting::DriverTable;
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::HandlerError;

use super::back_end::DeviceBackEnd;
use super::credentials::with_account;
use super::description::node;
use super::devices::Devices;
use crate::back_end::NodeBackEnd;
use crate::node::NodeSpec;
use crate::source::{Intake, NodeSource};

const OPEN: &str = "open the way to the device";

/// How long it may take to find out for which address a name stands.
const RESOLVED: Duration = Duration::from_secs(5);

/// The devices that are described, as nodes.
pub(super) struct Description {
    pub(super) devices: Arc<Devices>,
    pub(super) drivers: DriverTable,
    pub(super) client: Client,
}

#[async_trait]
impl NodeSource for Description {
    async fn run(&self, intake: Intake) -> Result<(), HandlerError> {
        let mut told: BTreeMap<String, NodeSpec> = BTreeMap::new();
        loop {
            let mut wanted = BTreeMap::new();
            for (name, claim) in self.devices.holding() {
                if let Some(spec) = &claim.spec {
                    let node = NodeSpec { retired: claim.is_leaving(), ..node(&name, spec) };
                    wanted.insert(name, node);
                }
            }
            for name in told.keys().filter(|name| !wanted.contains_key(*name)) {
                intake.gone(name);
            }
            for (name, node) in &wanted {
                if told.get(name) != Some(node) {
                    intake.exists(node.clone());
                }
            }
            told = wanted;
            intake.unread(self.devices.unread());
            intake.complete();
            self.devices.changed.notified().await;
        }
    }

    async fn open(&self, node: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
        let claim = self.devices.of(&node.name).and_then(|claim| Some((claim.object, claim.spec?)));
        let Some((object, spec)) = claim else {
            return Err(DriverError::new(Reason::NotFound, OPEN).detail("nobody describes it"));
        };
        let namespace = object.and_then(|object| object.metadata.namespace.clone());
        let namespace = namespace.unwrap_or_else(|| self.client.default_namespace().to_owned());
        let spec = with_account(&self.client, &namespace, &spec).await?;
        let address = spec.address.clone();
        let drivers = self.drivers.clone();
        // The certificates that a description names are in files.
        let made = tokio::task::spawn_blocking(move || drivers.driver(&spec)).await;
        let driver = made.map_err(|error| DriverError::new(Reason::Unavailable, OPEN).because(error))??;
        Ok(Arc::new(DeviceBackEnd::new(driver, host_ip(&address).await)))
    }
}

/// What a name stands for; none where nobody says so in time, which is no reason not to try the device.
async fn host_ip(address: &str) -> Option<IpAddr> {
    let found = tokio::time::timeout(RESOLVED, tokio::net::lookup_host((address, 0))).await.ok()?;
    Some(found.ok()?.next()?.ip())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use staffetta_driver::app_hosting::{AppHostingDriver, AppHostingDrivers, DeviceSpec};
    use staffetta_driver::memory::MemoryDevices;

    use super::super::entry::NamedDevice;
    use super::*;

    /// Drivers that read a file which is slow in coming.
    struct Slow(Mutex<Receiver<()>>);

    impl AppHostingDrivers for Slow {
        fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError> {
            let came = self.0.lock().unwrap().recv_timeout(Duration::from_secs(30));
            came.map_err(|error| DriverError::new(Reason::Refused, "read a file").because(error))?;
            MemoryDevices::default().of_cluster("east".into()).driver(spec)
        }
    }

    #[tokio::test]
    async fn a_file_that_is_slow_in_coming_holds_up_nobody_else() {
        let (file, slow) = channel();
        let slow: Arc<dyn AppHostingDrivers> = Arc::new(Slow(Mutex::new(slow)));
        let spec = DeviceSpec { address: "192.0.2.1".into(), ..DeviceSpec::default() };
        let device = NamedDevice { name: "r1".into(), spec };
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let description = Description {
            devices: Arc::new(Devices::new(vec![device])),
            drivers: DriverTable::new("SLOW", [("SLOW".to_owned(), slow)].into()),
            client: Client::try_from(nowhere).unwrap(),
        };
        let node = NodeSpec::bare("r1");
        let (opened, ()) = tokio::join!(description.open(&node), async { file.send(()).unwrap() });
        assert!(opened.is_ok());
    }
}
