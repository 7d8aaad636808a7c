//! Drivers of pods: they choose the project, the subnets and the security groups, and manage the VIFs.

mod lifecycle;
mod placement;
mod vif;

pub use self::lifecycle::PodLifecycle;
pub use self::placement::{PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver};
pub use self::vif::{Activation, PodVifDriver, VifRequest};
