//! The section `[octavia_defaults]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::Algorithm;

/// Options of load balancers of the driver `lbaasv2`. Options that Kuryr has too have the names of kuryr.conf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OctaviaDefaults {
    /// The path from load balancers to pods. `L3`: through the subnet of the virtual address and its router. `L2`: through an interface of
    /// the load balancer in the subnet of the pod, which the provider `ovn` needs.
    pub member_mode: MemberMode,
    /// Apply the security groups of a service to its virtual address. Otherwise Octavia's own group applies, which allows
    /// the service's ports. With the provider `ovn`, neither has an effect.
    pub enforce_sg_rules: bool,
    /// The algorithm of pools. With the provider `ovn`, which supports no other, it is always `SOURCE_IP_PORT`.
    pub lb_algorithm: Algorithm,
    /// The inactivity timeout of clients, in milliseconds; 0 for Octavia's own default, 50000. The annotation
    /// openstack.org/kuryr-timeout-client-data of a service overrides it.
    #[schemars(range(max = 2_073_600_000))]
    pub timeout_client_data: u32,
    /// The inactivity timeout of members, in milliseconds; 0 for Octavia's own default, 50000. The annotation
    /// openstack.org/kuryr-timeout-member-data of a service overrides it.
    #[schemars(range(max = 2_073_600_000))]
    pub timeout_member_data: u32,
    /// Create the port of the virtual address in Neutron, and pass it to Octavia, instead of letting Octavia create it. The port then has
    /// the ownership mark of the cluster and is deleted with the load balancer. Octavia sets its security groups.
    pub own_vip_port: bool,
}

/// The path from load balancers to pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberMode {
    /// The load balancer reaches a pod by an interface of its own in the subnet of the pod.
    L2,
    /// The load balancer reaches a pod by the router of the virtual address.
    #[default]
    L3,
}

/// Octavia's default timeout of idle connections, of clients and of members, in milliseconds.
const TIMEOUT: u32 = 50_000;

impl Default for OctaviaDefaults {
    fn default() -> Self {
        Self {
            member_mode: MemberMode::default(),
            enforce_sg_rules: true,
            lb_algorithm: Algorithm::default(),
            timeout_client_data: 0,
            timeout_member_data: 0,
            own_vip_port: false,
        }
    }
}

impl OctaviaDefaults {
    /// Returns the default timeouts of idle connections to clients and to members, in milliseconds.
    pub(super) fn timeouts(&self) -> (u32, u32) {
        let or_octavias = |timeout| if timeout == 0 { TIMEOUT } else { timeout };
        (or_octavias(self.timeout_client_data), or_octavias(self.timeout_member_data))
    }
}
