//! Simulated devices, which exist in this process only.

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

/// The default time that a device needs to install an image.
const INSTALL: Duration = Duration::from_millis(300);

/// The simulated devices of the drivers named `FAKE`, by address. All drivers with the same address use the same device. Clones share the
/// devices.
#[derive(Clone)]
pub struct MemoryDevices {
    install: Duration,
    devices: Arc<Mutex<BTreeMap<String, Arc<MemoryDevice>>>>,
}

impl MemoryDevices {
    /// Creates devices that need `install` to install an image.
    pub fn new(install: Duration) -> Self {
        Self { install, devices: Arc::default() }
    }

    /// Returns the device at `address`, which is created at the first call.
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

/// A method of an [`AppHostingDriver`](staffetta_driver::app_hosting::AppHostingDriver), for planned faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppHostingMethod {
    /// The method `check_connection`.
    Check,
    /// The method `get_device_info`.
    Info,
    /// The method `get_device_resources`.
    Resources,
    /// The methods `deploy_pod` and `update_pod`.
    Deploy,
    /// The method `delete_pod`.
    Delete,
    /// The methods `list_pods` and `get_pod_status`.
    List,
    /// The method `get_usage`.
    Usage,
}

/// A logged call to change a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppHostingCall {
    /// A call to deploy the pod with this UID.
    Deploy(Uid),
    /// A call to delete the pod with this UID.
    Delete(Uid),
}

/// A simulated device with its containers, its planned faults and its log of calls.
pub struct MemoryDevice {
    /// The time that the device needs to install an image.
    pub(super) install: Duration,
    /// The planned faults and the log of calls.
    pub(super) calls: Calls<AppHostingMethod, AppHostingCall>,
    state: Mutex<DeviceState>,
}

/// A container on a simulated device.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryContainer {
    /// The pod that the container belongs to; `None` for a container that was created by hand.
    pub owner: Option<Owner>,
    /// The cluster in the ownership mark; `None` for a container without a mark.
    pub cluster: Option<ClusterId>,
    /// The name of the container in its pod.
    pub name: String,
    /// The image of the container.
    pub image: String,
    /// The index of the container among the containers of its pod.
    pub position: usize,
    /// The IP address of the container.
    pub ip: IpAddr,
    /// The state of the container.
    pub state: MemoryContainerState,
}

/// The state of a container on a simulated device.
#[derive(Clone, Debug, PartialEq)]
pub enum MemoryContainerState {
    /// The container is configured, and nothing else has been done.
    Configured,
    /// The image is being installed until this time.
    Installing(Instant),
    /// The image is installed.
    Installed,
    /// The resources of the container are reserved, and it can be started.
    Activated,
    /// The container runs.
    Running,
    /// The container has ended.
    Ended,
    /// The container has failed. It may be deployed again after the time `until`.
    Failed {
        /// The reason, one word in CamelCase.
        reason: String,
        /// The message, for users.
        message: String,
        /// The time from which the container may be deployed again.
        until: Instant,
    },
}

impl MemoryContainerState {
    /// Converts the state to the one that a driver reports.
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

/// The state of a [`MemoryDevice`] that calls and tests change.
pub(super) struct DeviceState {
    /// `false` if all calls fail as with a device that is switched off.
    pub(super) reachable: bool,
    /// `true` if application hosting is enabled.
    pub(super) hosts: bool,
    /// The pool of IP addresses of the containers.
    pub(super) addresses: AddressPool,
    /// The containers, by the UID of their pod and their name.
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

    /// Returns the planned faults, to which others can be added.
    pub fn faults(&self) -> &Faults<AppHostingMethod> {
        &self.calls.faults
    }

    /// Returns the last ten thousand calls, oldest first, including failed ones.
    pub fn calls(&self) -> Vec<AppHostingCall> {
        self.calls.log()
    }

    /// Makes the device reachable (`true`), or makes all calls fail as with a device that is switched off (`false`).
    pub fn set_reachable(&self, reachable: bool) {
        self.state().reachable = reachable;
    }

    /// Sets if the device reports that application hosting is enabled.
    pub fn set_hosting(&self, hosts: bool) {
        self.state().hosts = hosts;
    }

    /// Returns all containers, sorted by the UID of their pod and by their name.
    pub fn containers(&self) -> Vec<MemoryContainer> {
        self.state().containers.values().cloned().collect()
    }

    /// Inserts a container, which another controller may have created, for the pod with this UID.
    pub fn put(&self, uid: &Uid, container: MemoryContainer) {
        self.state().containers.insert((uid.clone(), container.name.clone()), container);
    }

    /// Changes the state of a container, as if the device itself had changed it. Does nothing if the container does not exist.
    pub fn set_state(&self, uid: &Uid, name: &str, state: MemoryContainerState) {
        if let Some(container) = self.state().containers.get_mut(&(uid.clone(), name.to_owned())) {
            container.state = state;
        }
    }

    /// Removes all containers, as if the device had been restarted without them.
    pub fn reset(&self) {
        let mut state = self.state();
        for (_, container) in std::mem::take(&mut state.containers) {
            state.addresses.give_back(container.ip, Instant::now());
        }
    }

    /// Locks the state of the device.
    pub(super) fn state(&self) -> MutexGuard<'_, DeviceState> {
        lock(&self.state)
    }
}
