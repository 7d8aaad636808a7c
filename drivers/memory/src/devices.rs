//! Devices that exist in this process only.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

use super::addresses::AddressPool;
use super::driver::Calls;
use super::faults::Faults;
use crate::lock::lock;
use staffetta_driver::app_hosting::{DeploymentStage, HostedContainerState};
use staffetta_driver::{ClusterId, Owner, Uid};

/// The default time in which a device installs an image.
const INSTALL: Duration = Duration::from_millis(300);

/// The devices behind the drivers named `FAKE`, by address: all drivers of one address meet the same device. Its clones are
/// the same devices.
#[derive(Clone)]
pub struct MemoryDevices {
    install: Duration,
    devices: Arc<Mutex<BTreeMap<String, Arc<MemoryDevice>>>>,
}

impl MemoryDevices {
    /// Devices that take `install` to install an image.
    pub fn new(install: Duration) -> Self {
        Self { install, devices: Arc::default() }
    }

    /// The device at `address`.
    pub fn device(&self, address: &str) -> Arc<MemoryDevice> {
        let mut devices = lock(&self.devices);
        let device =
            devices.entry(address.to_owned()).or_insert_with(|| Arc::new(MemoryDevice::new(self.install)));
        Arc::clone(device)
    }
}

impl Default for MemoryDevices {
    fn default() -> Self {
        Self::new(INSTALL)
    }
}

/// A method of an [`AppHostingDriver`](staffetta_driver::app_hosting::AppHostingDriver).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppHostingMethod {
    /// `check_connection`.
    Check,
    /// `get_device_info`.
    Info,
    /// `get_device_resources`.
    Resources,
    /// `deploy_pod` and `update_pod`.
    Deploy,
    /// `delete_pod`.
    Delete,
    /// `list_pods` and `get_pod_status`.
    List,
    /// `get_usage`.
    Usage,
}

/// A call of a driver that changes a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppHostingCall {
    /// A pod was to be deployed.
    Deploy(Uid),
    /// A pod was to be deleted.
    Delete(Uid),
}

/// A device: its containers, and what goes wrong with it.
pub struct MemoryDevice {
    pub(super) install: Duration,
    pub(super) calls: Calls<AppHostingMethod, AppHostingCall>,
    state: Mutex<DeviceState>,
}

/// A container on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryContainer {
    /// The owner; `None` for one that was created by hand.
    pub owner: Option<Owner>,
    /// The cluster of its mark; `None` for one without a mark.
    pub cluster: Option<ClusterId>,
    /// The name in the pod.
    pub name: String,
    /// The image.
    pub image: String,
    /// Its place in the pod.
    pub position: usize,
    /// Its address.
    pub ip: IpAddr,
    /// The state.
    pub state: MemoryContainerState,
}

/// The state of a container on a device.
#[derive(Clone, Debug, PartialEq)]
pub enum MemoryContainerState {
    /// It is written down and nothing else.
    Configured,
    /// Its image is being installed until then.
    Installing(Instant),
    /// Its image is there.
    Installed,
    /// It only has to be started.
    Activated,
    /// It runs.
    Running,
    /// It ended.
    Ended,
    /// It failed, and may be tried again after that.
    Failed {
        /// The reason, one word in CamelCase.
        reason: String,
        /// The message, for people.
        message: String,
        /// The time after which it may be tried again.
        until: Instant,
    },
}

impl MemoryContainerState {
    /// Returns the state as a driver reports it.
    pub(super) fn hosted(&self) -> HostedContainerState {
        let waiting =
            |stage| HostedContainerState::Waiting { stage, message: format!("App state: {self:?}") };
        match self {
            Self::Configured => waiting(DeploymentStage::Configured),
            Self::Installing(_) => HostedContainerState::Waiting {
                stage: DeploymentStage::Installing,
                message: "App state: Installing".into(),
            },
            Self::Installed => waiting(DeploymentStage::Installed),
            Self::Activated => waiting(DeploymentStage::Activated),
            Self::Running => HostedContainerState::Running,
            Self::Ended => HostedContainerState::Ended { message: "App state: Ended".into() },
            Self::Failed { reason, message, .. } => {
                HostedContainerState::Failed { reason: reason.clone(), message: message.clone() }
            }
        }
    }
}

pub(super) struct DeviceState {
    pub(super) reachable: bool,
    /// `true` if application hosting is enabled.
    pub(super) hosts: bool,
    pub(super) addresses: AddressPool,
    pub(super) containers: BTreeMap<(Uid, String), MemoryContainer>,
}

impl MemoryDevice {
    fn new(install: Duration) -> Self {
        let cidr = IpNet::new(Ipv4Addr::new(10, 99, 0, 0).into(), 16).expect("16 is a length of a prefix");
        let addresses = AddressPool::new(cidr, None, Duration::ZERO);
        let state =
            Mutex::new(DeviceState { reachable: true, hosts: true, addresses, containers: BTreeMap::new() });
        Self { install, calls: Calls::default(), state }
    }

    /// Returns the faults of the next calls.
    pub fn faults(&self) -> &Faults<AppHostingMethod> {
        &self.calls.faults
    }

    /// Returns the calls so far, including failed ones.
    pub fn calls(&self) -> Vec<AppHostingCall> {
        self.calls.log()
    }

    /// Makes the device reachable, or not.
    pub fn set_reachable(&self, reachable: bool) {
        self.state().reachable = reachable;
    }

    /// Enables or disables application hosting.
    pub fn set_hosting(&self, hosts: bool) {
        self.state().hosts = hosts;
    }

    /// Returns all containers, by UID and name.
    pub fn containers(&self) -> Vec<MemoryContainer> {
        self.state().containers.values().cloned().collect()
    }

    /// Inserts a container of another controller.
    pub fn put(&self, uid: &Uid, container: MemoryContainer) {
        self.state().containers.insert((uid.clone(), container.name.clone()), container);
    }

    /// Puts a container into another state, as if that had happened on the device. One that is not there stays so.
    pub fn set_state(&self, uid: &Uid, name: &str, state: MemoryContainerState) {
        if let Some(container) = self.state().containers.get_mut(&(uid.clone(), name.to_owned())) {
            container.state = state;
        }
    }

    /// Restarts the device without its containers.
    pub fn reset(&self) {
        let mut state = self.state();
        for (_, container) in std::mem::take(&mut state.containers) {
            state.addresses.give_back(container.ip, Instant::now());
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, DeviceState> {
        lock(&self.state)
    }
}
