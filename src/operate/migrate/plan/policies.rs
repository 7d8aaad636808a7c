//! The plan for network policies (`KuryrNetworkPolicy`). Our controller creates security groups of its own, with which it replaces that of
//! Kuryr on each port. The security group of Kuryr is deleted when no port has it any more.

use k8s_openapi::api::networking::v1::NetworkPolicy;
use staffetta_driver::{SecurityGroupId, UnusedResource};
use staffetta_handler::full_name;

use super::super::kuryr::{KuryrKind, ObjectKey, finalizers_of, key_of, text};
use super::super::read::ClusterState;
use super::super::write::MetadataWrite;
use super::{MigrationStep, Obstacle, PlannedTakeover, StepList, refused};

/// Plans the takeover of each network policy that has a finalizer of Kuryr, or whose `KuryrNetworkPolicy` has one.
pub(super) fn plan(state: &ClusterState) -> Vec<PlannedTakeover> {
    let policy_of = |key: &ObjectKey| state.policies.iter().find(|policy| key_of(*policy) == *key);
    let managed = state.policies.iter().filter(|policy| !finalizers_of(*policy).is_empty()).map(key_of);
    let recorded = state.kuryr.policies.iter().filter(|(_, object)| !finalizers_of(*object).is_empty());
    let mut keys: Vec<ObjectKey> = managed.chain(recorded.map(|(key, _)| key.clone())).collect();
    keys.sort();
    keys.dedup();
    let planned = keys.into_iter().map(|key| PlannedTakeover {
        kind: "NetworkPolicy",
        steps: plan_policy(state, &key, policy_of(&key)).map(|steps| steps.0),
        key,
    });
    planned.collect()
}

/// Plans the takeover of a network policy; `policy` is `None` if it does not exist any more. Its security group is not adopted but deleted,
/// and only when no port uses it any more: our controller gives the ports groups of its own first. Returns [`Obstacle::Later`] while a port
/// uses the group, and [`Obstacle::Refused`] if the policy exists and the handler `policy` is not enabled.
fn plan_policy(
    state: &ClusterState,
    key: &ObjectKey,
    policy: Option<&NetworkPolicy>,
) -> Result<StepList, Obstacle> {
    let mut steps = StepList::default();
    if policy.is_some() && !state.has_handlers(&["policy"]) {
        return Err(refused("the handler `policy` is not enabled"));
    }
    let object = state.kuryr.policies.get(key);
    if let Some(group) = object.and_then(|object| text(&object.data, "/status/securityGroupId")) {
        let group = SecurityGroupId::from(group);
        let users = state.ports.iter().filter(|port| port.security_groups.contains(&group)).count();
        if users > 0 {
            return Err(Obstacle::Later(format!(
                "{users} ports have its security group {group}; start the controller, which replaces the group, and run the \
                 command again"
            )));
        }
        let policy = full_name(Some(&key.0), &key.1);
        steps.0.push(MigrationStep::Delete(UnusedResource::SecurityGroup(group, policy)));
    }
    if let Some(policy) = policy {
        steps.write(MetadataWrite::of(policy, &finalizers_of(policy)));
    }
    steps.release(KuryrKind::NETWORK_POLICY, &state.kuryr.policies, key);
    Ok(steps)
}
