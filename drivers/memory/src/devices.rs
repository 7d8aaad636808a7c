//! Simulated devices that run the containers of pods. They exist in this process only.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::addresses::AddressPool;
use super::driver::Calls;
use super::faults::Faults;
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
        let mut devices = self.devices.lock();
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

/// A logged call to deploy or delete a pod on a device.
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

/// A container on a simulated device, with its ownership mark. It is created with its image being installed, and runs from the end of the
/// installation on.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryContainer {
    /// The cluster in the ownership mark.
    pub cluster: ClusterId,
    /// The pod that the container belongs to.
    pub owner: Owner,
    /// The name of the container in its pod.
    pub name: String,
    /// The image of the container.
    pub image: String,
    /// The IP address of the container.
    pub ip: IpAddr,
    /// The time at which the image is installed and the container starts.
    pub running_from: Instant,
    /// `true` if the container was stopped because its pod is being removed.
    pub stopped: bool,
}

/// The state of a [`MemoryDevice`] that calls and tests change.
pub(super) struct DeviceState {
    /// `false` if all calls fail as with a device that is switched off.
    pub(super) reachable: bool,
    /// `true` if application hosting is enabled.
    pub(super) hosts: bool,
    /// The pool of IP addresses of the containers.
    pub(super) addresses: AddressPool,
    /// The containers, by the UID of their pod and their index among its containers.
    pub(super) containers: BTreeMap<(Uid, usize), MemoryContainer>,
}

impl DeviceState {
    /// Removes the containers for which `check` returns `true`. Their addresses are free at once.
    pub(super) fn remove(&mut self, check: impl Fn(&MemoryContainer) -> bool) {
        let Self { addresses, containers, .. } = self;
        containers.retain(|_, container| {
            let stays = !check(container);
            if !stays {
                addresses.give_back(container.ip, Instant::now());
            }
            stays
        });
    }
}

impl MemoryDevice {
    fn new(install: Duration) -> Self {
        let cidr = IpNet::new(Ipv4Addr::new(10, 99, 0, 0).into(), 16).expect("16 is a length of a prefix");
        let addresses = AddressPool::new(cidr, None, Duration::ZERO);
        let state =
            Mutex::new(DeviceState { reachable: true, hosts: true, addresses, containers: BTreeMap::new() });
        Self { install, calls: Calls::default(), state }
    }

    /// Returns the faults that are planned for later calls of the drivers of this device. [`Faults::inject`] adds others.
    pub fn faults(&self) -> &Faults<AppHostingMethod> {
        &self.calls.faults
    }

    /// Returns the last ten thousand calls to deploy or delete a pod, oldest first, including failed ones.
    pub fn calls(&self) -> Vec<AppHostingCall> {
        self.calls.log()
    }

    /// Makes the device reachable (`true`), or makes all calls fail as with a device that is switched off (`false`).
    pub fn set_reachable(&self, reachable: bool) {
        self.state().reachable = reachable;
    }

    /// Sets whether the device reports that application hosting is enabled.
    pub fn set_hosting(&self, hosts: bool) {
        self.state().hosts = hosts;
    }

    /// Returns all containers, sorted by the UID of their pod and by their order in it.
    pub fn containers(&self) -> Vec<MemoryContainer> {
        self.state().containers.values().cloned().collect()
    }

    /// Removes all containers, as if the device had been restarted without them.
    pub fn reset(&self) {
        self.state().remove(|_| true);
    }

    /// Locks the state of the device.
    pub(super) fn state(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock()
    }
}
