//! The security groups of network policies, with their driver and an observer.

mod driver;
mod security_group;

pub use self::driver::{NetworkPolicyDriver, NetworkPolicyObserver};
pub use self::security_group::{
    Direction, ExistingRule, IpFamily, ProtocolPorts, Remote, RuleChange, SecurityGroup, SecurityRule,
    VifSecurityGroups,
};
