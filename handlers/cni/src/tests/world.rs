//! A node whose kernel is a set, and pods with VIFs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use serde_json::{Value, json};
use staffetta_cni::error::CniError;
use staffetta_cni::message::CniRequest;
use staffetta_driver::{
    DriverError, Network, Reason, SubnetAddresses, Vif, VifAttachment, VifBindingDriver, VifClass,
};
use staffetta_network::os_vif::{KURYR_VIF, PodState};

use crate::daemon::CniDaemon;
use crate::records::Records;

/// The interfaces of a node, by their names, which are no identity: the start of the port's id. Outlives the daemon.
#[derive(Default)]
pub(crate) struct Kernel {
    pub(crate) plugged: Mutex<BTreeMap<String, VifAttachment>>,
    /// The number of changes that still succeed.
    pub(crate) left: AtomicUsize,
    /// The next change waits for a message.
    pub(crate) gate: Mutex<Option<Receiver<()>>>,
    /// The port whose interface cannot be removed.
    pub(crate) stuck: Mutex<Option<String>>,
    /// The ports whose addresses were announced.
    pub(crate) announced: Mutex<Vec<String>>,
}

impl Kernel {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(usize::MAX), ..Self::default() })
    }

    pub(crate) fn ports(&self) -> Vec<String> {
        self.plugged.lock().values().map(|attachment| attachment.vif.id.to_string()).collect()
    }

    /// The owners of the interfaces.
    pub(crate) fn owners(&self) -> Vec<String> {
        self.plugged.lock().values().map(|attachment| attachment.owner.clone()).collect()
    }

    fn change(&self) -> Result<(), DriverError> {
        let gate = self.gate.lock().take();
        let _ = gate.map(|gate| gate.recv());
        let less = |left: usize| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        left.map(drop).map_err(|_| DriverError::new(Reason::Unavailable, "change the kernel"))
    }
}

impl VifBindingDriver for Kernel {
    fn plug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        self.change()?;
        let mut plugged = self.plugged.lock();
        let in_pod = (&attachment.netns, &attachment.interface);
        let is_there = |name: &String, found: &VifAttachment| {
            *name != attachment.host_interface() && (&found.netns, &found.interface) == in_pod
        };
        if plugged.iter().any(|(name, found)| is_there(name, found)) {
            return Err(DriverError::new(Reason::Conflict, "create the interface in the pod"));
        }
        let interface = plugged.entry(attachment.host_interface()).or_insert_with(|| attachment.clone());
        if interface.owner != attachment.owner {
            return Err(DriverError::new(Reason::Conflict, "create the interface"));
        }
        interface.clone_from(attachment);
        drop(plugged);
        self.change()
    }

    fn unplug(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        self.change()?;
        if self.stuck.lock().as_deref() == Some(attachment.vif.id.as_str()) {
            return Err(DriverError::new(Reason::Unavailable, "remove the interface"));
        }
        let is_other = |name: &String, interface: &mut VifAttachment| {
            *name != attachment.host_interface() || interface.owner != attachment.owner
        };
        self.plugged.lock().retain(is_other);
        Ok(())
    }

    fn unplug_unrecorded(&self, owner: &str, _: &Path, _: &str) -> Result<(), DriverError> {
        self.change()?;
        self.plugged.lock().retain(|_, interface| interface.owner != owner);
        Ok(())
    }

    fn check(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        let plugged = self.plugged.lock();
        let found = plugged.get(&attachment.host_interface());
        let is_plugged = found.is_some_and(|found| found.owner == attachment.owner);
        if is_plugged { Ok(()) } else { Err(DriverError::new(Reason::NotFound, "check")) }
    }

    fn announce(&self, attachment: &VifAttachment) -> Result<(), DriverError> {
        self.announced.lock().push(attachment.vif.id.to_string());
        Ok(())
    }
}

/// Starts a daemon with the records in `folder`, which knows all pods.
pub(crate) fn daemon(kernel: &Arc<Kernel>, folder: &Path) -> Arc<CniDaemon> {
    let daemon = starting_daemon(kernel, folder);
    daemon.set_ready();
    daemon
}

/// Starts a daemon that has not read the pods of its node yet. It does not lock the folder, because an earlier one of the test may still
/// exist.
pub(crate) fn starting_daemon(kernel: &Arc<Kernel>, folder: &Path) -> Arc<CniDaemon> {
    let driver = |class: &str| (class.to_owned(), Arc::<Kernel>::clone(kernel) as Arc<dyn VifBindingDriver>);
    let bindings = ["VIFBridge", "VIFMacvlanNested"].map(driver);
    Arc::new(CniDaemon::new(Records::read(folder).unwrap(), bindings.into(), Duration::from_secs(60)))
}

/// A VIF whose port, MAC address and IP address end in `number`.
pub(crate) fn vif(number: u8) -> Vif {
    Vif {
        id: format!("port-{number:03}-0000").as_str().into(),
        address: format!("fa:16:3e:00:00:{number:02x}").parse().unwrap(),
        active: true,
        plugin: "linux_bridge".to_owned(),
        class: VifClass::Bridge { vif_name: "tap".to_owned(), bridge_name: "br0".to_owned() },
        network: Network { mtu: Some(1400), ..Network::new("n".into()) },
        subnets: vec![SubnetAddresses {
            cidr: "10.0.0.0/24".parse().unwrap(),
            gateway: Some("10.0.0.254".parse().unwrap()),
            dns: vec!["10.0.0.2".parse().unwrap()],
            routes: Vec::new(),
            ips: vec![format!("10.0.0.{number}").parse().unwrap()],
        }],
        has_traffic_filtering: false,
        preserve_on_delete: false,
        port_profile: None,
    }
}

/// A pod with our finalizer and these VIFs.
pub(crate) fn pod(name: &str, uid: &str, state: &PodState) -> Pod {
    from(
        json!({ "metadata": { "namespace": "default", "name": name, "uid": uid, "finalizers": ["staffetta.dev/vif"],
        "annotations": { KURYR_VIF: state.write() } } }),
    )
}

pub(crate) fn from(pod: Value) -> Pod {
    serde_json::from_value(pod).unwrap()
}

/// A command for the pod `name` with that UID, and a sandbox whose namespace is named after it.
pub(crate) fn request(name: &str, uid: &str, container: &str) -> CniRequest {
    CniRequest {
        cni_containerid: container.to_owned(),
        cni_netns: format!("/run/netns/{container}"),
        cni_ifname: "eth0".to_owned(),
        cni_args: format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID={uid}"),
        ..CniRequest::default()
    }
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, CniError>) -> u32 {
    result.unwrap_err().code
}
