//! Drivers of services: project, subnets, security groups and public address.

mod placement;
mod public_ip;

pub use self::placement::{ServiceProjectDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver};
pub use self::public_ip::{Allocation, PublicIp, PublicIpRequest, ServicePublicIpDriver};
