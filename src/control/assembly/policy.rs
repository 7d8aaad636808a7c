//! Registers the handler `policy`, and the driver `policy`, which chooses the security groups of pods from the network policies.

use std::num::NonZeroUsize;
use std::sync::Arc;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::{NetworkPolicyDriver, PodSecurityGroupsDriver, SecurityGroupId};
use staffetta_handler::{Registration, Registry, Setup, SetupError};
use staffetta_network::policy::{
    AlwaysAllowed, PolicyDrivers, PolicyHandler, PolicyIndex, PolicySecurityGroups,
};
use staffetta_network::vif::VifClaims;

use super::is_enabled;

/// The name of the handler, and of the driver that chooses the security groups of pods.
const POLICY: &str = "policy";

/// Options of network policies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct NetworkPolicyOptions {
    /// Networks that may reach every pod regardless of policies, in addition to the nodes. Add the subnet from which load balancers
    /// reach their members: a policy sees the address of the load balancer instead of the client's, so every client of the load
    /// balancer reaches the pods behind it.
    always_allowed_from: Vec<IpNet>,
    /// Networks that every pod may reach regardless of policies, in addition to the nodes. With the subnet of the services here, a pod
    /// with isolated egress reaches all services; without it, only those whose addresses a policy allows by an `ipBlock`.
    always_allowed_to: Vec<IpNet>,
    /// The maximum number of security group rules of all policies of a namespace. A policy that exceeds it, together with older
    /// policies of its namespace, isolates its pods and allows nothing. Without this option, it is half of the quota of rules of the
    /// project, if the user may read it.
    max_rules_per_namespace: Option<NonZeroUsize>,
}

/// Registers the handler `policy`, the driver `policy` for the security groups of pods, and the section `[network_policy]`.
pub(super) fn register(registry: &mut Registry) {
    const GROUPS: &str =
        "The groups of the network policies that select the pod; needs the handler `policy`.";
    registry.section::<NetworkPolicyOptions>("network_policy");
    registry.driver::<dyn PodSecurityGroupsDriver>(POLICY, GROUPS, |setup| {
        if !is_enabled(setup, POLICY)? {
            let wrong = "`kubernetes.pod_security_groups_driver = \"policy\"` needs the handler `policy` in \
                         `kubernetes.enabled_handlers`";
            return Err(SetupError::Invalid(wrong.to_owned()));
        }
        Ok(Arc::new(PolicySecurityGroups::new(index(setup)?, setup.plan.is_some())))
    });
    registry.handler(POLICY, "Implements network policies by security groups of pods.", policy);
}

/// Creates the handler `policy`. Fails if pods would run unprotected: without the driver `policy` for the security groups of pods, or without
/// the handler `vif`.
fn policy(setup: &Setup) -> Result<Registration, SetupError> {
    if setup.driver_name::<dyn PodSecurityGroupsDriver>()? != POLICY {
        let wrong = "the handler `policy` needs `kubernetes.pod_security_groups_driver = \"policy\"`: pods must be \
                     protected from their creation on";
        return Err(SetupError::Invalid(wrong.to_owned()));
    }
    if !is_enabled(setup, "vif")? {
        let wrong = "the handler `policy` needs the handler `vif` in `kubernetes.enabled_handlers`, which knows the ports \
                     of each pod";
        return Err(SetupError::Invalid(wrong.to_owned()));
    }
    let claims = setup.shared(|| Ok(VifClaims::default()))?;
    let drivers = PolicyDrivers { policy: setup.driver()?, pool: setup.driver()? };
    Ok(PolicyHandler::new(drivers, claims, index(setup)?, setup.recorder.clone()).registration().erase())
}

/// Returns the index of network policies, which the handler `policy` and the driver `policy` share.
fn index(setup: &Setup) -> Result<Arc<PolicyIndex>, SetupError> {
    /// The security groups of pods that no policy selects.
    #[derive(Deserialize)]
    struct Defaults {
        #[serde(default)]
        pod_security_groups: Vec<SecurityGroupId>,
    }
    setup.shared(|| {
        let simulated = setup.driver_name::<dyn NetworkPolicyDriver>()? == "memory";
        let section = if simulated { "memory" } else { "neutron_defaults" };
        let Defaults { pod_security_groups } = setup.section(section)?;
        let NetworkPolicyOptions {
            always_allowed_from: from,
            always_allowed_to: to,
            max_rules_per_namespace,
        } = setup.section("network_policy")?;
        let index = PolicyIndex::new(pod_security_groups, AlwaysAllowed { from, to });
        Ok(index.with_max_rules(max_rules_per_namespace.map(NonZeroUsize::get)))
    })
}
