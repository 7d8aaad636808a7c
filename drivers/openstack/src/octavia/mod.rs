//! Load balancers of services: the driver `lbaasv2`.
//!
//! | module | what it holds |
//! |---|---|
//! | `options`, `features`, `feasible` | what is asked for, what a release can do, and what of the one the other can serve |
//! | `wire`, `api` | load balancers as Octavia writes them, and the calls |
//! | `tree`, `reading` | how what Octavia tells becomes a tree; whole trees by one list a kind |
//! | `board`, `waiting` | which load balancers are waited for, and one list that answers for many |
//! | `inventory`, `memory` | what this process knows, so that it need not ask |
//! | `member_subnets`, `vip_port` | through which subnet a member is reached; ports of addresses that are ours |
//! | `making`, `changing` | making a load balancer, and changing what hangs on it |
//! | `driver` | the driver |

mod api;
mod board;
mod changing;
mod driver;
mod feasible;
mod features;
mod filter;
mod inventory;
mod making;
mod member_subnets;
mod memory;
mod options;
mod reading;
mod tree;
mod vip_port;
mod waiting;
mod wire;

use std::sync::Arc;

use staffetta_driver::ClusterId;

use self::api::Octavia;
use self::feasible::Choices;
use self::memory::Memory;
use self::vip_port::VipPorts;
use self::waiting::Waiting;
use crate::cloud::Cloud;

pub use self::member_subnets::MemberSubnets;
pub use self::options::{LbAlgorithm, MemberMode, OctaviaDefaults};

/// The driver `lbaasv2`: load balancers in Octavia.
pub struct LbaasV2Driver {
    octavia: Octavia,
    cluster: ClusterId,
    choices: Choices,
    members: MemberSubnets,
    ports: VipPorts,
    /// Whether the ports of addresses are made by us. Those that were are ours, whatever is made by now.
    own_ports: bool,
    waiting: Waiting,
    memory: Memory,
}

impl LbaasV2Driver {
    /// Makes load balancers in `cloud` with the mark of `cluster`, by `provider` where it is not the cloud's own choice.
    pub fn new(
        cloud: &Cloud,
        cluster: ClusterId,
        members: MemberSubnets,
        options: &OctaviaDefaults,
        provider: Option<String>,
    ) -> Self {
        let octavia = Octavia::new(cloud);
        let ports = VipPorts::new(cloud, Arc::clone(&members.subnets), cluster.clone());
        let choices = Choices {
            provider,
            algorithm: options.lb_algorithm.into(),
            timeouts: options.timeouts(),
            guards: options.enforce_sg_rules,
        };
        let waiting = Waiting::new(octavia.clone(), cluster.clone());
        Self {
            octavia,
            cluster,
            choices,
            members,
            ports,
            own_ports: options.own_vip_port,
            waiting,
            memory: Memory::default(),
        }
    }
}
