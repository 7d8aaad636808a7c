//! Network policies: the handler, what it and the driver of pods' security groups know together, and the section.

use std::sync::Arc;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::policy::{AlwaysAllowed, PolicyBook, PolicySecurityGroups};
use staffetta_driver::rehearsal::RehearsedNetworkPolicies;
use staffetta_driver::{NetworkPolicyDriver, PodSecurityGroupsDriver, SecurityGroupId};
use staffetta_handler::{Registration, Registry, Setup, SetupError};
use staffetta_network::policy::{PolicyDrivers, PolicyHandler};

use super::rehearsal::planner;
use crate::config::Kubernetes;

/// The name of the driver of pods' security groups that goes with the handler, and the handler's own.
const POLICY: &str = "policy";

/// How network policies are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct NetworkPolicyOptions {
    /// Who may reach every pod, whatever policies say, besides the nodes. The subnet from which load balancers reach their members
    /// belongs here: a policy sees the load balancer and not who stands before it, so a pod that offers a service is
    /// reached through it by all who reach the load balancer.
    always_allowed_from: Vec<IpNet>,
    /// What every pod may reach, whatever policies say, besides the nodes. With the subnet of the services, a pod whose egress is
    /// isolated reaches all of them; without it, those alone whose addresses a policy allows by an `ipBlock`.
    always_allowed_to: Vec<IpNet>,
}

/// Adds the driver trait, the driver of pods' security groups that goes with it, the handler and the section.
pub(super) fn register(registry: &mut Registry) {
    const ABOUT: &str = "Makes the security groups by which network policies are kept.";
    const GROUPS: &str = "As the network policies say that select the pod; goes with the handler `policy`.";
    registry.section::<NetworkPolicyOptions>("network_policy");
    registry.interface::<dyn NetworkPolicyDriver>("network_policy", "memory", ABOUT).rehearsed(
        |inner, plan| {
            let planner = planner(plan, "network_policy", "NetworkPolicy");
            Arc::new(RehearsedNetworkPolicies::new(inner, planner))
        },
    );
    registry.driver::<dyn PodSecurityGroupsDriver>(POLICY, GROUPS, |setup| {
        let Kubernetes { enabled_handlers, .. } = setup.section("kubernetes")?;
        if !enabled_handlers.iter().any(|name| name == POLICY) {
            let wrong = "`kubernetes.pod_security_groups_driver = \"policy\"` needs the handler `policy` in \
                         `kubernetes.enabled_handlers`";
            return Err(SetupError::Invalid(wrong.to_owned()));
        }
        Ok(Arc::new(PolicySecurityGroups::new(book(setup)?, setup.plan().is_some())))
    });
    registry.handler(POLICY, "Network policies become security groups of pods.", policy);
}

fn policy(setup: &Setup) -> Result<Registration, SetupError> {
    if setup.driver_name::<dyn PodSecurityGroupsDriver>()? != POLICY {
        let wrong = "the handler `policy` needs `kubernetes.pod_security_groups_driver = \"policy\"`: a pod must be \
                     guarded from its first moment";
        return Err(SetupError::Invalid(wrong.to_owned()));
    }
    let drivers = PolicyDrivers { policy: setup.driver()?, pool: setup.driver()? };
    Ok(PolicyHandler::new(drivers, book(setup)?, setup.notes()).registration().erase())
}

/// The handler and the driver of pods' security groups share what they know.
fn book(setup: &Setup) -> Result<Arc<PolicyBook>, SetupError> {
    /// What pods have that no policy isolates.
    #[derive(Deserialize)]
    struct Defaults {
        #[serde(default)]
        pod_security_groups: Vec<SecurityGroupId>,
    }
    setup.shared(|| {
        let simulated = setup.driver_name::<dyn NetworkPolicyDriver>()? == "memory";
        let section = if simulated { "memory" } else { "neutron_defaults" };
        let Defaults { pod_security_groups } = setup.section(section)?;
        let NetworkPolicyOptions { always_allowed_from: from, always_allowed_to: to } =
            setup.section("network_policy")?;
        Ok(PolicyBook::new(pod_security_groups, AlwaysAllowed { from, to }))
    })
}
