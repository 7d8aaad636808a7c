//! The plan for namespaces with a network of their own (`KuryrNetwork`).

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;
use staffetta_driver::{
    Adoption, ExistingNetwork, NAMESPACE_NETWORK, NamespaceNetwork, NetworkId, Owner, SubnetId,
};
use staffetta_network::namespace::FINALIZER;

use super::super::kuryr::{KuryrKind, ObjectKey, finalizers_of, text};
use super::super::read::ClusterState;
use super::super::write::MetadataWrite;
use super::{Obstacle, PlannedTakeover, StepList, refused};

/// Plans the takeover of each namespace whose `KuryrNetwork` has a finalizer of Kuryr.
pub(super) fn plan(state: &ClusterState) -> Vec<PlannedTakeover> {
    let networks = state.kuryr.networks.iter().filter(|(_, network)| !finalizers_of(*network).is_empty());
    let planned = networks.map(|(key, network)| PlannedTakeover {
        kind: "Namespace",
        key: (String::new(), key.0.clone()),
        steps: plan_namespace(state, key, network).map(|steps| steps.0),
    });
    planned.collect()
}

/// Plans the takeover of a namespace from its `KuryrNetwork`, which is `object`: its network and subnet are adopted, and Kuryr's
/// finalizer is removed from the object. Refused if the namespace does not exist, or if the network or the subnet cannot be adopted.
fn plan_namespace(
    state: &ClusterState,
    key: &ObjectKey,
    object: &DynamicObject,
) -> Result<StepList, Obstacle> {
    let mut steps = StepList::default();
    let namespace = state.namespaces.iter().find(|namespace| namespace.name_any() == key.0);
    let namespace = namespace.ok_or_else(|| refused("it does not exist"))?;
    if let Some(network) = text(&object.data, "/status/netId") {
        let subnet = text(&object.data, "/status/subnetId");
        let subnet = subnet
            .ok_or_else(|| refused(format!("the subnet of network {network} is not in its KuryrNetwork")))?;
        adopt(state, namespace, &network.into(), &subnet.into(), &mut steps)?;
    }
    steps.release(KuryrKind::NETWORK, &state.kuryr.networks, key);
    Ok(steps)
}

/// Returns the names that Kuryr gives to the network of a namespace: `ns/NAME-net`, and in its last releases `UID/NAME`.
pub(super) fn names(namespace: &Namespace) -> [String; 2] {
    let (name, uid) = (namespace.name_any(), namespace.uid().unwrap_or_default());
    [format!("ns/{name}-net"), format!("{uid}/{name}")]
}

/// Plans that the network and the subnet of a namespace get our ownership mark, and the namespace our annotation and finalizer. The network
/// must have the name that Kuryr gives it for this namespace: users may write the `KuryrNetwork`, so its ids alone prove nothing. Refused
/// if there is no such network with this subnet, if it has the mark of another owner, or if the handler `namespace` is not enabled.
fn adopt(
    state: &ClusterState,
    namespace: &Namespace,
    network: &NetworkId,
    subnet: &SubnetId,
    steps: &mut StepList,
) -> Result<(), Obstacle> {
    if !state.has_handlers(&["namespace"]) {
        return Err(refused("the handler `namespace` is not enabled"));
    }
    let found = state.networks.iter().find(|found| found.id == *network);
    let is_of_namespace =
        |found: &&ExistingNetwork| names(namespace).contains(&found.name) && found.subnets.contains(subnet);
    let found = found.filter(is_of_namespace);
    let found = found.ok_or_else(|| {
        let text =
            format!("network {network} with subnet {subnet} and the name of the namespace does not exist");
        refused(format!("{text} in the projects of the configuration"))
    })?;
    // The mark of a namespace has no namespace.
    let owner = Owner { namespace: String::new(), ..Owner::of(&namespace.metadata) };
    let adoption = Adoption::Network(network.clone(), subnet.clone(), owner.clone());
    steps.adopt(&found.mark, &owner, format!("network {network}"), adoption)?;
    let value = json!(NamespaceNetwork { network: network.clone(), subnet: subnet.clone() }).to_string();
    steps.write(
        MetadataWrite::of(namespace, &[]).annotate(NAMESPACE_NETWORK, &value).add_finalizer(FINALIZER),
    );
    Ok(())
}
