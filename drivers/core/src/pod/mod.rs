//! Drivers of pods: project, subnets, security groups and VIF.

mod lifecycle;
mod placement;
mod vif;

pub use self::lifecycle::PodLifecycle;
pub use self::placement::{PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver};
pub use self::vif::{Activation, PodVifDriver, VifRequest};
