//! Drivers for a dry run: what they are asked to read is asked of the driver behind them, and what they are asked to
//! change is written down instead.
//!
//! The answer to a change that was not made is what would most likely come of it, so that whoever asked goes on: an id
//! that only the other side can choose begins with [`PLANNED`], such an address is `0.0.0.0` or `::`. Later reads show
//! the world as it would be by then. Where nobody can know what would come of a change, the call fails and its
//! [`PlannedCall::last`] says that the plan ends there.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! use std::sync::{Arc, Mutex};
//! use staffetta_driver::memory::{MemoryNetwork, MemoryOptions, MemoryVifDriver};
//! use staffetta_driver::rehearsal::{PlannedCall, RehearsedVifDriver};
//! use staffetta_driver::{Owner, PodVifDriver, VifRequest};
//!
//! let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
//! let real = Arc::new(MemoryVifDriver::new(Arc::clone(&network), "east".into()));
//! let calls = Arc::new(Mutex::new(Vec::new()));
//! let noted = Arc::clone(&calls);
//! let driver = RehearsedVifDriver::new(real, Arc::new(move |call: PlannedCall| noted.lock().unwrap().push(call.what)));
//!
//! let vif = driver
//!     .request_vif(&VifRequest {
//!         owner: Owner { namespace: "shop".into(), name: "web".into(), uid: "u1".into() },
//!         node_name: "n1".into(),
//!         host_ip: None,
//!         project: "memory".into(),
//!         subnets: vec![network.subnet("10.10.0.0/16".parse().unwrap())],
//!         security_groups: vec![],
//!     })
//!     .await
//!     .unwrap();
//! assert_eq!(vif.id.as_str(), "planned-u1");
//! assert_eq!(*calls.lock().unwrap(), ["request a VIF"]);
//! assert!(network.ports().is_empty());
//! # });
//! ```

mod app_hosting;
mod load_balancer;
mod namespace_subnet;
mod network_policy;
mod overlay;
mod public_ip;
#[cfg(test)]
mod testing;
mod vif;

use std::borrow::Cow;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::error::{DriverError, Reason};
use crate::owner::Owner;

pub use app_hosting::RehearsedAppHostingDrivers;
pub use load_balancer::RehearsedLoadBalancerDriver;
pub use namespace_subnet::RehearsedNamespaceSubnets;
pub use network_policy::RehearsedNetworkPolicies;
pub use public_ip::RehearsedPublicIpDriver;
pub use vif::{RehearsedVifDriver, RehearsedVifPool};

/// How an id begins that only the other side can choose.
pub const PLANNED: &str = "planned-";

/// A call that would change something, and was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCall {
    /// What it would do, as an imperative that is the same for all calls of its kind: `request a VIF`.
    pub what: Cow<'static, str>,
    /// For whom; none where the call does not say.
    pub owner: Option<Owner>,
    /// With which particulars, in reading order: a name and a value each.
    pub with: Vec<(Cow<'static, str>, String)>,
    /// Whether nobody can know what would come of it, so that the plan for its object ends here.
    pub last: bool,
}

/// Takes down calls that were not made. It must not block.
pub type Planner = Arc<dyn Fn(PlannedCall) + Send + Sync>;

impl PlannedCall {
    /// A call without particulars.
    pub fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), owner: None, with: Vec::new(), last: false }
    }

    /// Says for whom.
    #[must_use]
    pub fn of(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Adds a particular; one without a value says nothing and is left out.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.with.push((name.into(), value));
        }
        self
    }

    /// Says that the plan for its object ends here.
    #[must_use]
    fn last(mut self) -> Self {
        self.last = true;
        self
    }
}

/// The values in one line.
fn listed(values: impl IntoIterator<Item = impl Display>) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(", ")
}

/// An id that the other side would choose.
fn planned(name: impl Display) -> String {
    format!("{PLANNED}{name}")
}

/// An address that the other side would choose.
fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The answer to a call after which nobody knows how it goes on.
fn unknown(step: &'static str) -> DriverError {
    DriverError::new(Reason::Refused, step)
        .detail("this is a dry run, and what follows depends on what comes of it")
}
