//! The methods of all driver traits of a [`SimulatedDriver`](super::SimulatedDriver), by name.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident = $path:literal, $does:ident $step:literal;)+) => {
        /// A method of a driver trait. In JSON and in URLs, its name is `<trait>/<method>`, such as `pod_vif/request_vif`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Method {
            $($(#[$doc])* #[serde(rename = $path)] $name,)+
        }

        impl Method {
            /// Every method.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the name of the trait and of the method, such as `pod_vif/request_vif`.
            pub fn path(self) -> &'static str {
                match self {
                    $(Self::$name => $path,)+
                }
            }

            /// Returns the operation of the method, which the errors of failed HTTP requests name.
            pub(super) fn step(self) -> CallStep {
                match self {
                    $(Self::$name => CallStep::$does($step),)+
                }
            }
        }
    };
}

/// The operation of a request, as an imperative that errors contain (`request a VIF`). The variant tells if it changes the cloud.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallStep {
    /// An operation that changes nothing, so that a lost response is not ambiguous.
    Reads(&'static str),
    /// An operation that may have taken effect even if its response was lost.
    Changes(&'static str),
}

impl CallStep {
    /// Returns the operation as an imperative, such as `request a VIF`.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Reads(text) | Self::Changes(text) => text,
        }
    }
}

methods! {
    /// The method [`PodProjectDriver::project`](staffetta_driver::PodProjectDriver::project).
    PodProject = "pod_project/project", Reads "find the project of a pod";
    /// The method [`PodSubnetsDriver::subnets`](staffetta_driver::PodSubnetsDriver::subnets).
    PodSubnets = "pod_subnets/subnets", Reads "find the subnets of a pod";
    /// The method [`PodSecurityGroupsDriver::security_groups`](staffetta_driver::PodSecurityGroupsDriver::security_groups).
    PodSecurityGroups = "pod_security_groups/security_groups", Reads "find the security groups of a pod";
    /// The method [`PodVifDriver::request_vif`](staffetta_driver::PodVifDriver::request_vif).
    RequestVif = "pod_vif/request_vif", Changes "request a VIF";
    /// The method [`PodVifDriver::release_vif`](staffetta_driver::PodVifDriver::release_vif).
    ReleaseVif = "pod_vif/release_vif", Changes "release a VIF";
    /// The method [`PodVifDriver::activate_vif`](staffetta_driver::PodVifDriver::activate_vif).
    ActivateVif = "pod_vif/activate_vif", Reads "activate a VIF";
    /// The method [`PodVifDriver::vifs`](staffetta_driver::PodVifDriver::vifs).
    ListVifs = "pod_vif/vifs", Reads "list VIFs";
    /// The method [`ServiceProjectDriver::project`](staffetta_driver::ServiceProjectDriver::project).
    ServiceProject = "service_project/project", Reads "find the project of a service";
    /// The method [`ServiceSubnetsDriver::subnets`](staffetta_driver::ServiceSubnetsDriver::subnets).
    ServiceSubnets = "service_subnets/subnets", Reads "find the subnets of a service";
    /// The method [`ServiceSecurityGroupsDriver::security_groups`](staffetta_driver::ServiceSecurityGroupsDriver::security_groups).
    ServiceSecurityGroups = "service_security_groups/security_groups", Reads "find the security groups of a service";
    /// The method [`LoadBalancerDriver::load_balancers`](staffetta_driver::LoadBalancerDriver::load_balancers).
    ListLoadBalancers = "load_balancer/load_balancers", Reads "list load balancers";
    /// The method [`LoadBalancerDriver::ensure_load_balancer`](staffetta_driver::LoadBalancerDriver::ensure_load_balancer).
    EnsureLoadBalancer = "load_balancer/ensure_load_balancer", Changes "make a load balancer";
    /// The method [`LoadBalancerDriver::progress`](staffetta_driver::LoadBalancerDriver::progress).
    GetProgress = "load_balancer/progress", Reads "read the status of a load balancer";
    /// The method [`LoadBalancerDriver::release_load_balancer`](staffetta_driver::LoadBalancerDriver::release_load_balancer).
    ReleaseLoadBalancer = "load_balancer/release_load_balancer", Changes "release a load balancer";
    /// The method [`ListenerDriver::change_listener`](staffetta_driver::ListenerDriver::change_listener).
    ChangeListener = "load_balancer/change_listener", Changes "change a listener";
    /// The method [`ServicePublicIpDriver::public_ips`](staffetta_driver::ServicePublicIpDriver::public_ips).
    ListPublicIps = "service_public_ip/public_ips", Reads "list public addresses";
    /// The method [`ServicePublicIpDriver::acquire`](staffetta_driver::ServicePublicIpDriver::acquire).
    AcquirePublicIp = "service_public_ip/acquire", Changes "allocate a public address";
    /// The method [`ServicePublicIpDriver::associate`](staffetta_driver::ServicePublicIpDriver::associate).
    AssociatePublicIp = "service_public_ip/associate", Changes "associate a public address";
    /// The method [`ServicePublicIpDriver::disassociate`](staffetta_driver::ServicePublicIpDriver::disassociate).
    DisassociatePublicIp = "service_public_ip/disassociate", Changes "disassociate a public address";
    /// The method [`ServicePublicIpDriver::release`](staffetta_driver::ServicePublicIpDriver::release).
    ReleasePublicIp = "service_public_ip/release", Changes "release a public address";
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}
