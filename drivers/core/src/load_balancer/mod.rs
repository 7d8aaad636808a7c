//! The load balancers of services: their driver, their state and their settings.

mod driver;
mod settings;
mod types;

pub use self::driver::{ListenerDriver, LoadBalancerDriver};
pub use self::settings::{Algorithm, HealthMonitor, ListenerSettings, PoolSettings, SessionPersistence};
pub use self::types::{
    Listener, ListenerChange, ListenerPort, ListenerSpec, LoadBalancer, LoadBalancerProgress,
    LoadBalancerSpec, Member, MemberSpec, NormalizedSpec, Pool, PoolSpec, Protocol, ProvisioningStatus,
};
