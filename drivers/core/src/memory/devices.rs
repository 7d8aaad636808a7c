//! Devices that exist in this process only.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

use super::addresses::AddressPool;
use super::app_hosting_call::{AppHostingCall, AppHostingMethod};
use super::faults::Faults;
use super::ledger::Ledger;
use crate::app_hosting::{HostedState, Stage};
use crate::id::{ClusterId, Uid};
use crate::owner::Owner;

/// How long a device takes to install an image when nobody says.
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
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
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

/// A device: its containers, and what goes wrong with it.
pub struct MemoryDevice {
    pub(super) install: Duration,
    pub(super) faults: Faults<AppHostingMethod>,
    pub(super) ledger: Ledger<AppHostingCall>,
    state: Mutex<State>,
}

/// A container on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryContainer {
    /// Whose it is; none for one that somebody made by hand.
    pub owner: Option<Owner>,
    /// Whose mark it carries; none for one that an agent made which knows no such mark.
    pub cluster: Option<ClusterId>,
    /// The name in the pod.
    pub name: String,
    /// The image.
    pub image: String,
    /// Its place in the pod.
    pub position: usize,
    /// Its address.
    pub ip: IpAddr,
    /// How it is.
    pub state: MemoryState,
}

/// How a container on a device is.
#[derive(Clone, Debug, PartialEq)]
pub enum MemoryState {
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
        /// Why, in one word of CamelCase.
        reason: String,
        /// Why, for people.
        message: String,
        /// When it may be tried again.
        until: Instant,
    },
}

impl MemoryState {
    /// The state as a driver tells it.
    pub(super) fn hosted(&self) -> HostedState {
        let waiting = |stage| HostedState::Waiting { stage, message: format!("App state: {self:?}") };
        match self {
            Self::Configured => waiting(Stage::Configured),
            Self::Installing(_) => {
                HostedState::Waiting { stage: Stage::Installing, message: "App state: Installing".into() }
            }
            Self::Installed => waiting(Stage::Installed),
            Self::Activated => waiting(Stage::Activated),
            Self::Running => HostedState::Running,
            Self::Ended => HostedState::Ended { message: "App state: Ended".into() },
            Self::Failed { reason, message, .. } => {
                HostedState::Failed { reason: reason.clone(), message: message.clone() }
            }
        }
    }
}

pub(super) struct State {
    pub(super) reachable: bool,
    /// Whether it hosts applications at all.
    pub(super) hosts: bool,
    pub(super) addresses: AddressPool,
    pub(super) containers: BTreeMap<(Uid, String), MemoryContainer>,
}

impl MemoryDevice {
    fn new(install: Duration) -> Self {
        let cidr = IpNet::new(Ipv4Addr::new(10, 99, 0, 0).into(), 16).expect("16 is a length of a prefix");
        let addresses = AddressPool::new(cidr, None, Duration::ZERO);
        let state =
            Mutex::new(State { reachable: true, hosts: true, addresses, containers: BTreeMap::new() });
        Self { install, faults: Faults::default(), ledger: Ledger::default(), state }
    }

    /// What goes wrong with the next calls.
    pub fn faults(&self) -> &Faults<AppHostingMethod> {
        &self.faults
    }

    /// The calls so far, those that failed too.
    pub fn calls(&self) -> Vec<AppHostingCall> {
        self.ledger.calls()
    }

    /// Whether the device answers from now on.
    pub fn set_reachable(&self, reachable: bool) {
        self.state().reachable = reachable;
    }

    /// Whether the device says that it hosts applications from now on.
    pub fn set_hosting(&self, hosts: bool) {
        self.state().hosts = hosts;
    }

    /// Everything that is on it, by UID and name.
    pub fn containers(&self) -> Vec<MemoryContainer> {
        self.state().containers.values().cloned().collect()
    }

    /// Puts a container there as if somebody else had made it.
    pub fn put(&self, uid: &Uid, container: MemoryContainer) {
        self.state().containers.insert((uid.clone(), container.name.clone()), container);
    }

    /// Puts a container into another state, as if that had happened on the device. One that is not there stays so.
    pub fn set_state(&self, uid: &Uid, name: &str, state: MemoryState) {
        if let Some(container) = self.state().containers.get_mut(&(uid.clone(), name.to_owned())) {
            container.state = state;
        }
    }

    /// The device starts again and has forgotten its containers.
    pub fn forget(&self) {
        let mut state = self.state();
        for (_, container) in std::mem::take(&mut state.containers) {
            state.addresses.give_back(container.ip, Instant::now());
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
