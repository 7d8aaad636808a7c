//! The node source of `app_hosting`: each device with a valid specification is a node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kube::Client;
use staffetta_driver::app_hosting::{AppHostingDriverTable, TlsSpec};
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::HandlerError;
use tracing::warn;

use super::back_end::DeviceBackEnd;
use super::connecting::{DriverConnections, OPEN};
use super::credentials::{password_of, with_account};
use super::description::{node, session};
use super::device::DeviceDescription;
use super::devices::{Claim, Devices};
use crate::back_end::NodeBackEnd;
use crate::node::NodeSpec;
use crate::node_store::NodeStore;
use crate::source::NodeSource;

/// The time limit for resolving the host name of a device.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The node source of `app_hosting`: reports each device with a valid specification as a node, and opens connections to
/// devices.
pub(super) struct DeviceSource {
    /// The specifications of all devices from the configuration, files and `CiscoDevice` objects, by the name of the node.
    pub(super) devices: Arc<Devices>,
    /// The app-hosting drivers, by name.
    pub(super) drivers: AppHostingDriverTable,
    /// The client with which Secrets are read.
    pub(super) client: Client,
    /// The pending attempts to open connections to devices, by the name of the node.
    pub(super) connecting: DriverConnections,
}

#[async_trait]
impl NodeSource for DeviceSource {
    async fn run(&self, nodes: Arc<NodeStore>) -> Result<(), HandlerError> {
        let mut reported: BTreeMap<String, NodeSpec> = BTreeMap::new();
        loop {
            let mut wanted = BTreeMap::new();
            for (name, claim) in self.devices.in_effect() {
                if let Some(spec) = &claim.spec {
                    let node = NodeSpec { retired: claim.is_leaving(), ..node(&name, spec) };
                    if reported.get(&name).is_none_or(|before| before.session != node.session) {
                        warn_of_tls(&name, &spec.tls);
                    }
                    wanted.insert(name, node);
                }
            }
            for name in reported.keys().filter(|name| !wanted.contains_key(*name)) {
                nodes.remove(name);
            }
            for (name, node) in &wanted {
                if reported.get(name) != Some(node) {
                    nodes.add_or_update(node.clone());
                }
            }
            reported = wanted;
            nodes.set_unreadable(self.devices.nodes_without_valid_description());
            nodes.complete();
            self.devices.changed.notified().await;
        }
    }

    async fn open(&self, node: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
        let claim = self.devices.of(&node.name);
        let Some(Claim { spec: Some(spec), password_file, .. }) = claim else {
            return Err(
                DriverError::new(Reason::NotFound, OPEN).detail("the device has no valid description")
            );
        };
        let spec = with_account(&self.client, &spec).await?;
        let password_file = password_file.filter(|_| spec.credential_secret_ref.is_none());
        let address = spec.address.clone();
        let drivers = self.drivers.clone();
        // The certificates that a description names are in files, too.
        let open = move |mut spec: DeviceDescription| {
            if let Some(file) = password_file {
                spec.password = Some(password_of(&file)?);
            }
            Ok((drivers.driver(&spec.spec())?, session(&spec)))
        };
        let (driver, credentials) = self.connecting.open(&node.name, spec, open).await?;
        Ok(Arc::new(DeviceBackEnd::new(driver, host_ip(&address).await, credentials)))
    }
}

/// Logs what of the connection to the device of a node is not secure.
fn warn_of_tls(node: &str, tls: &TlsSpec) {
    if !tls.enabled {
        warn!(node, "TLS is off: the password of this device is sent in clear text");
    }
    if tls.insecure_skip_verify {
        warn!(
            node,
            "tls.insecureSkipVerify is on: the device is not authenticated, and its password can be stolen"
        );
    }
}

/// Resolves the host name or IP address of a device. Returns `None` if that fails or takes longer than
/// [`RESOLVE_TIMEOUT`]; the connection to the device is opened in any case.
async fn host_ip(address: &str) -> Option<IpAddr> {
    let found = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((address, 0))).await.ok()?;
    Some(found.ok()?.next()?.ip())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use futures_util::FutureExt;
    use parking_lot::Mutex;
    use staffetta_driver::app_hosting::{AppHostingDriver, AppHostingDrivers, DeviceSpec, Password};
    use staffetta_handler::causes;
    use staffetta_memory::MemoryDevices;

    use super::super::entry::DeviceEntry;
    use super::super::options::AppHostingOptions;
    use super::*;

    /// Drivers that wait for a slow file, and report when the wait begins.
    struct Slow(Mutex<Receiver<()>>, Sender<()>);

    impl AppHostingDrivers for Slow {
        fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError> {
            self.1.send(()).unwrap();
            let came = self.0.lock().recv_timeout(Duration::from_secs(30));
            came.map_err(|error| DriverError::new(Reason::Refused, "read a file").because(error))?;
            MemoryDevices::default().of_cluster("east".into()).driver(spec)
        }
    }

    /// Returns a node source with the device `r1` and these drivers.
    fn source(drivers: impl AppHostingDrivers + 'static, password_file: Option<PathBuf>) -> DeviceSource {
        let drivers: Arc<dyn AppHostingDrivers> = Arc::new(drivers);
        let spec = DeviceDescription { address: "192.0.2.1".into(), ..DeviceDescription::default() };
        let device = DeviceEntry { name: None, password_file, device: spec };
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        DeviceSource {
            devices: Arc::new(Devices::new([("r1".to_owned(), device)].into(), AppHostingOptions::default())),
            drivers: AppHostingDriverTable::new("TEST", [("TEST".to_owned(), drivers)].into()),
            client: Client::try_from(nowhere).unwrap(),
            connecting: DriverConnections::default(),
        }
    }

    #[tokio::test]
    async fn a_file_that_is_slow_in_coming_holds_up_nobody_else() {
        let (file, slow) = channel();
        let (begins, _begun) = channel();
        let source = source(Slow(Mutex::new(slow), begins), None);
        let node = NodeSpec::bare("r1");
        let (opened, ()) = tokio::join!(source.open(&node), async { file.send(()).unwrap() });
        assert!(opened.is_ok());
    }

    #[tokio::test]
    async fn a_file_that_does_not_come_takes_one_thread_however_often_the_device_is_tried() {
        let (file, slow) = channel();
        let (begins, begun) = channel();
        let source = source(Slow(Mutex::new(slow), begins), None);
        let node = NodeSpec::bare("r1");
        for _ in 0..3 {
            assert!(source.open(&node).now_or_never().is_none());
        }
        file.send(()).unwrap();
        assert!(source.open(&node).await.is_ok());
        assert_eq!(begun.try_iter().count(), 1);
        file.send(()).unwrap();
        assert!(source.open(&node).await.is_ok());
        assert_eq!(begun.try_iter().count(), 1, "what came of it is not taken twice");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_nobody_waited_for_is_not_used_much_later() {
        let (file, slow) = channel();
        let (begins, begun) = channel();
        let (source, node) = (source(Slow(Mutex::new(slow), begins), None), NodeSpec::bare("r1"));
        assert!(source.open(&node).now_or_never().is_none());
        file.send(()).unwrap();
        // The clock stands still while the file is read.
        tokio::time::sleep(Duration::from_secs(120)).await;
        file.send(()).unwrap();
        assert!(source.open(&node).await.is_ok());
        assert_eq!(begun.try_iter().count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_nobody_waited_for_is_kept_although_an_earlier_one_would_be_too_old() {
        let (file, slow) = channel();
        let (begins, begun) = channel();
        let (source, node) = (source(Slow(Mutex::new(slow), begins), None), NodeSpec::bare("r1"));
        for _ in 0..2 {
            assert!(source.open(&node).now_or_never().is_none());
            file.send(()).unwrap();
            tokio::time::sleep(Duration::from_secs(40)).await;
            assert!(source.open(&node).await.is_ok());
        }
        assert_eq!(begun.try_iter().count(), 2);
    }

    /// Drivers that report the password with which they are created.
    struct Telling(Sender<Option<Password>>);

    impl AppHostingDrivers for Telling {
        fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError> {
            self.0.send(spec.password.clone()).unwrap();
            MemoryDevices::default().of_cluster("east".into()).driver(spec)
        }
    }

    #[tokio::test]
    async fn a_password_in_a_file_is_read_each_time_the_way_to_the_device_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let (reported, passwords) = channel();
        let (source, node) = (source(Telling(reported), Some(file.clone())), NodeSpec::bare("r1"));
        for password in ["first", "second"] {
            fs::write(&file, format!("{password}\n")).unwrap();
            assert!(source.open(&node).await.is_ok());
            assert_eq!(passwords.recv().unwrap().as_ref().map(Password::expose), Some(password));
        }
        fs::remove_file(&file).unwrap();
        let missing = source.open(&node).await.err().unwrap();
        assert_eq!(missing.reason(), Reason::NotFound);
        assert!(causes(&missing).contains(&format!("read {}", file.display())), "{missing}");
        assert!(passwords.try_recv().is_err(), "no device is asked without its password");
    }
}
