use serde_json::{Value, json};
use staffetta_driver::{ExistingMark, ExistingNetwork, ExistingPort, Owner};

use super::world::*;
use crate::operate::migrate::read::ClusterState;

fn object(kind: &str, name: &str, finalizer: &str, status: &Value) -> Value {
    json!({ "apiVersion": "openstack.org/v1", "kind": kind, "status": status,
        "metadata": { "namespace": "shop", "name": name, "uid": "o", "resourceVersion": "1", "finalizers": [finalizer] } })
}

fn with_network(status: &Value) -> ClusterState {
    let finalizer = "kuryrnetwork.finalizers.kuryr.openstack.org";
    let mut state = cluster();
    let namespace = json!({ "metadata": { "name": "shop", "uid": "uid-shop", "resourceVersion": "1" } });
    state.namespaces.push(serde_json::from_value(namespace).unwrap());
    let network = serde_json::from_value(object("KuryrNetwork", "shop", finalizer, status)).unwrap();
    state.kuryr.networks.insert(("shop".into(), "shop".into()), network);
    state.networks.push(ExistingNetwork {
        id: "n1".into(),
        name: "uid-shop/shop".into(),
        subnets: vec!["s1".into()],
        mark: ExistingMark::Unmarked,
    });
    state
}

#[test]
fn a_namespace_keeps_its_network() {
    let status = json!({ "netId": "n1", "subnetId": "s1", "subnetCIDR": "10.1.0.0/24", "routerId": "r1" });
    let (written, released) = (
        "write staffetta.dev/namespace-network and staffetta.dev/namespace",
        "remove kuryrnetwork.finalizers.kuryr.openstack.org",
    );
    let mut state = with_network(&status);
    assert_eq!(state.planned(), [format!("Namespace shop: mark network n1, {written}, {released}")]);
    state.networks[0].mark = ExistingMark::Owned(Owner { uid: "uid-shop".into(), ..Owner::default() });
    assert_eq!(state.planned(), [format!("Namespace shop: {written}, {released}")]);
    state.networks[0].name = "ns/shop-net".into();
    assert_eq!(state.planned(), [format!("Namespace shop: {written}, {released}")]);
    for another in ["other", "ns/shop-prod-net", "uid-workshop/workshop", "uid-other/shop"] {
        state.networks[0].name = another.into();
        assert!(state.planned()[0].starts_with("Namespace shop: refused: network n1 with subnet s1"));
    }
    state.handlers.remove("namespace");
    assert_eq!(state.planned(), ["Namespace shop: refused: the handler `namespace` is not enabled"]);
    assert_eq!(with_network(&json!({})).planned(), [format!("Namespace shop: {released}")]);
}

fn with_policy() -> ClusterState {
    let finalizer = "kuryr.openstack.org/networkpolicy-finalizer";
    let mut state = cluster();
    let policy = json!({ "metadata": { "namespace": "shop", "name": "deny", "uid": "uid-deny", "resourceVersion": "1",
        "finalizers": [finalizer] }, "spec": { "podSelector": {} } });
    state.policies.push(serde_json::from_value(policy).unwrap());
    let status = json!({ "securityGroupId": "g1", "securityGroupRules": [] });
    let recorded = serde_json::from_value(object("KuryrNetworkPolicy", "deny", finalizer, &status)).unwrap();
    state.kuryr.policies.insert(("shop".into(), "deny".into()), recorded);
    state
}

#[test]
fn the_group_of_a_policy_is_deleted_when_our_controller_has_replaced_it_on_every_port() {
    let protected =
        ExistingPort { security_groups: vec!["g1".into()], ..port("p1", "10.0.0.7", Some("web")) };
    let waiting = with_policy().with_ports([protected]);
    let later = "NetworkPolicy deny: later: 1 ports have its security group g1; start the controller, which replaces \
        the group, and run the command again";
    assert_eq!(waiting.planned(), [later]);
    let finalizer = "remove kuryr.openstack.org/networkpolicy-finalizer";
    let released = format!("NetworkPolicy deny: delete security group g1, {finalizer}, {finalizer}");
    assert_eq!(with_policy().planned(), [released]);
    let mut state = with_policy();
    state.handlers.remove("policy");
    assert_eq!(state.planned(), ["NetworkPolicy deny: refused: the handler `policy` is not enabled"]);
}
