//! Drivers of services: they choose the project, the subnets and the security groups, and manage public addresses.

mod placement;
mod public_ip;

pub use self::placement::{ServiceProjectDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver};
pub use self::public_ip::{Allocation, PublicIp, PublicIpRequest, ServicePublicIpDriver};
