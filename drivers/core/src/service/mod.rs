//! Drivers of services: project, subnets, security groups and public address.

mod project;
mod public_ip;
mod security_groups;
mod subnets;

pub use self::project::ServiceProjectDriver;
pub use self::public_ip::{Allocation, PublicIp, PublicIpRequest, ServicePublicIpDriver};
pub use self::security_groups::ServiceSecurityGroupsDriver;
pub use self::subnets::ServiceSubnetsDriver;
