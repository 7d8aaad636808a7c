//! Load balancers of services: the driver `lbaasv2`.
//!
//! | module | content |
//! |---|---|
//! | `options`, `features`, `feasible` | the options, the features of a release, and the part of a spec that it serves |
//! | `wire`, `request`, `api` | bodies of responses, bodies of requests, calls |
//! | `tree`, `reading` | conversion of bodies to load balancers, and reads of all of them by one list of each kind |
//! | `pacing`, `provisioning` | the times of polls and creations; polls of the provisioning status, and changes |
//! | `cache` | the load balancers and members that this process knows |
//! | `member_subnets`, `vip_port` | the subnets of members, and ports of virtual addresses |
//! | `creation`, `changes`, `members` | creation of load balancers, and changes of their listeners, pools and members |
//! | `adoption` | adoption of load balancers of Kuryr, for a migration |
//! | `driver` | the driver |

mod adoption;
mod api;
mod cache;
mod changes;
mod creation;
mod driver;
mod feasible;
mod features;
mod member_subnets;
mod members;
mod options;
mod pacing;
mod provisioning;
mod reading;
mod request;
mod tree;
mod vip_port;
mod wire;

use std::sync::Arc;

use staffetta_driver::ClusterId;

use self::api::OctaviaApi;
use self::cache::LoadBalancerCache;
use self::feasible::SpecDefaults;
use self::provisioning::ProvisioningPoller;
use self::vip_port::VipPorts;
use crate::cloud::Cloud;

pub(crate) use self::adoption::LoadBalancerAdoption;
pub use self::member_subnets::MemberSubnets;
pub use self::options::{MemberMode, OctaviaDefaults};

/// The driver `lbaasv2`, which creates load balancers in Octavia.
pub struct LbaasV2Driver {
    octavia: OctaviaApi,
    cluster: ClusterId,
    defaults: SpecDefaults,
    members: MemberSubnets,
    ports: VipPorts,
    /// `true` if this driver, and not Octavia, creates the ports of the virtual addresses of new load balancers. Ports that this driver
    /// created before are deleted in any case.
    own_ports: bool,
    provisioning: ProvisioningPoller,
    cache: LoadBalancerCache,
}

impl LbaasV2Driver {
    /// Creates the driver. Its load balancers carry the ownership mark of `cluster`, and use `provider` or, without one, the default
    /// provider of the cloud.
    pub fn new(
        cloud: &Cloud,
        cluster: ClusterId,
        members: MemberSubnets,
        options: &OctaviaDefaults,
        provider: Option<String>,
    ) -> Self {
        let octavia = OctaviaApi::new(cloud);
        Self {
            ports: VipPorts::new(cloud, Arc::clone(&members.subnets), cluster.clone()),
            defaults: SpecDefaults {
                provider,
                algorithm: options.lb_algorithm,
                timeouts: options.timeouts(),
                apply_groups: options.enforce_sg_rules,
            },
            provisioning: ProvisioningPoller::new(octavia.clone(), cluster.clone()),
            octavia,
            cluster,
            members,
            own_ports: options.own_vip_port,
            cache: LoadBalancerCache::default(),
        }
    }
}
