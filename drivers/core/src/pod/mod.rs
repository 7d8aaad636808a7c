//! Drivers of pods: project, subnets, security groups and VIF.

mod lifecycle;
mod project;
mod security_groups;
mod subnets;
mod vif;

pub use self::lifecycle::PodLifecycle;
pub use self::project::PodProjectDriver;
pub use self::security_groups::PodSecurityGroupsDriver;
pub use self::subnets::PodSubnetsDriver;
pub use self::vif::{Activation, PodVifDriver, VifRequest};
