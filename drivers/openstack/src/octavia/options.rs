//! The section `[octavia_defaults]`, and what the driver takes from others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::Algorithm;

/// How the driver `lbaasv2` makes load balancers in Octavia. The names are those of kuryr.conf where it has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OctaviaDefaults {
    /// How load balancers reach pods. `L3`: through the subnet of the virtual address, by its router. `L2`: through the
    /// subnet of the pod, with an interface of their own there, as the provider `ovn` needs it.
    pub member_mode: MemberMode,
    /// Whether the security groups of a service guard its virtual address. Where not, Octavia's own group does, which lets
    /// the service's ports in. With the provider `ovn` they guard nothing.
    pub enforce_sg_rules: bool,
    /// By which rule a pool chooses a member. The provider `ovn` has `SOURCE_IP_PORT` only, and gets it.
    pub lb_algorithm: LbAlgorithm,
    /// How long a client may be silent, in milliseconds; 0 for Octavia's own default, 50000. The annotation
    /// openstack.org/kuryr-timeout-client-data of a service overrides it.
    #[schemars(range(max = 2_073_600_000))]
    pub timeout_client_data: u32,
    /// How long a member may be silent, in milliseconds; 0 for Octavia's own default, 50000. The annotation
    /// openstack.org/kuryr-timeout-member-data of a service overrides it.
    #[schemars(range(max = 2_073_600_000))]
    pub timeout_member_data: u32,
    /// Whether the port of the virtual address is made by us in Neutron and handed over to Octavia, instead of by Octavia
    /// itself. It is then ours, with its mark, and is removed with the load balancer; what guards it is put there by Octavia.
    pub own_vip_port: bool,
}

/// How load balancers reach pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberMode {
    /// By an interface in the subnet of the pod.
    L2,
    /// By the router of the virtual address.
    #[default]
    L3,
}

/// By which rule a pool chooses a member, as the configuration says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LbAlgorithm {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
    /// By the client's address.
    SourceIp,
    /// By the addresses and ports of both ends.
    SourceIpPort,
}

/// What Octavia takes for a time-out that nobody names, in milliseconds.
const TIMEOUT: u32 = 50_000;

impl Default for OctaviaDefaults {
    fn default() -> Self {
        Self {
            member_mode: MemberMode::default(),
            enforce_sg_rules: true,
            lb_algorithm: LbAlgorithm::default(),
            timeout_client_data: 0,
            timeout_member_data: 0,
            own_vip_port: false,
        }
    }
}

impl OctaviaDefaults {
    /// The time-outs of clients and of members, in milliseconds.
    pub(super) fn timeouts(&self) -> (u32, u32) {
        let or_octavias = |timeout| if timeout == 0 { TIMEOUT } else { timeout };
        (or_octavias(self.timeout_client_data), or_octavias(self.timeout_member_data))
    }
}

impl From<LbAlgorithm> for Algorithm {
    fn from(algorithm: LbAlgorithm) -> Self {
        match algorithm {
            LbAlgorithm::RoundRobin => Self::RoundRobin,
            LbAlgorithm::LeastConnections => Self::LeastConnections,
            LbAlgorithm::SourceIp => Self::SourceIp,
            LbAlgorithm::SourceIpPort => Self::SourceIpPort,
        }
    }
}
