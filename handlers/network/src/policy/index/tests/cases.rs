//! Single features of policies.

use serde_json::json;

use super::world::{World, index, make_groups, namespace, pod, policy, populate};
use crate::policy::{AlwaysAllowed, PolicyIndex};
use staffetta_driver::Direction;
use staffetta_driver::{NamespaceObserver, NetworkPolicyObserver, Uid};

fn guards(index: &PolicyIndex, number: u8) -> Vec<String> {
    make_groups(index);
    let groups = index.pod_groups(&format!("pod-{number}").into()).unwrap().unwrap();
    groups.iter().map(|group| group.as_str().to_owned()).collect()
}

/// Creates a cluster with the namespace `shop`, the policy and two pods, one of them `app: a`.
fn shop(spec: &serde_json::Value) -> (World, PolicyIndex, Uid) {
    let pods = vec![
        pod(1, "shop", &json!({ "app": "a" }), 80, false),
        pod(2, "shop", &json!({ "app": "b" }), 8080, false),
    ];
    let policies = vec![policy("shop", "p", spec)];
    let namespaces = vec![namespace("shop", &json!({}))];
    let world = World { namespaces, pods, policies, ..World::default() };
    let index = index(&World::default());
    populate(&index, &world);
    (world, index, "policy-shop-p".into())
}

#[test]
fn a_pod_that_changes_its_labels_changes_its_groups_and_no_rule() {
    let spec = json!({ "podSelector": {}, "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": "a" } } }] }] });
    let (_, index, uid) = shop(&spec);
    let (rules, before) = (index.policy_groups(&uid), guards(&index, 1));
    index.take_changes();
    index.set_pod(&pod(1, "shop", &json!({ "app": "c" }), 80, false));
    let changes = index.take_changes();
    assert_eq!((changes.pods.len(), changes.policies.len()), (1, 0));
    assert_eq!(index.policy_groups(&uid), rules);
    assert_eq!(guards(&index, 1).len() + 1, before.len());
}

#[test]
fn an_isolated_pod_is_open_in_the_other_direction_and_to_the_nodes() {
    let spec = json!({ "podSelector": { "matchLabels": { "app": "a" } }, "policyTypes": ["Ingress"] });
    let (_, index, _) = shop(&spec);
    assert_eq!(guards(&index, 1), ["nodes", "open-egress", "policy-policy-shop-p"]);
    assert_eq!(guards(&index, 2), ["of-the-configuration"]);
}

#[test]
fn without_configured_groups_an_open_pod_has_the_groups_that_allow_everything() {
    let index = PolicyIndex::default();
    index.set_pod(&pod(1, "shop", &json!({}), 0, false));
    assert!(index.pod_groups(&"pod-1".into()).is_err(), "the groups do not exist yet");
    assert_eq!(guards(&index, 1), ["open-egress", "open-ingress"]);
}

#[test]
fn pods_whose_named_ports_have_other_numbers_have_groups_of_their_own() {
    let (_, index, uid) = shop(&json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": "http" }] }] }));
    let groups = index.policy_groups(&uid);
    assert_eq!(groups.len(), 2);
    assert!(groups.iter().all(|group| group.rules.len() == 2), "one for each version of IP: {groups:?}");
    index.take_changes();
    index.remove_pod(&"pod-2".into());
    assert_eq!(index.take_changes().policies.len(), 1);
    assert_eq!(index.policy_groups(&uid).len(), 1);
}

#[test]
fn ports_that_no_pod_has_are_reported() {
    let spec = json!({ "podSelector": { "matchLabels": { "app": "a" } },
        "ingress": [{ "ports": [{ "port": "grpc" }, { "port": "http" }] }],
        "egress": [{ "ports": [{ "port": "sql" }], "to": [{ "podSelector": {} }, { "ipBlock": { "cidr": "10.0.0.0/8" } }] }] });
    let (_, index, uid) = shop(&spec);
    let expected = [
        "no pod selected by the policy has a port named grpc/TCP",
        "no pod selected by the policy has a port named sql/TCP",
        "the port `sql` has no number in the block 10.0.0.0/8",
    ];
    assert_eq!(index.problems(&uid), expected);
}

#[test]
fn invalid_parts_of_a_policy_are_reported_and_allow_nothing() {
    let spec = json!({ "podSelector": {}, "ingress": [
        { "from": [{ "ipBlock": { "cidr": "all" } }] },
        { "ports": [{ "port": 90, "endPort": 80 }] },
        { "from": [{ "podSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } }] },
    ] });
    let (_, index, uid) = shop(&spec);
    let expected = [
        "`Like` is not an operator of a selector",
        "`all` is not an IP block",
        "there are no ports 90 to 80",
    ];
    assert_eq!(index.problems(&uid), expected);
    let rules: Vec<_> = index.policy_groups(&uid).into_iter().flat_map(|group| group.rules).collect();
    assert!(rules.iter().all(|rule| matches!(rule.remote, staffetta_driver::Remote::Group(_))), "{rules:?}");
}

#[test]
fn a_rule_beyond_the_limits_is_reported_with_its_path_and_allows_nothing() {
    let ports: Vec<_> = (1..=200).map(|port| json!({ "port": port })).collect();
    let blocks: Vec<_> =
        (0..100).map(|last| json!({ "ipBlock": { "cidr": format!("10.0.{last}.1/32") } })).collect();
    let except: Vec<_> = (0..200).map(|part| format!("2001:db8:{part:x}:1::1/128")).collect();
    let everybody = json!({ "ipBlock": { "cidr": "::/0", "except": except } });
    let many: Vec<_> = (0..501)
        .map(|app| json!({ "podSelector": { "matchLabels": { "app": format!("{app}") } } }))
        .collect();
    let spec = json!({ "podSelector": {}, "ingress": [
        { "ports": [{ "port": 80 }] },
        { "ports": ports, "from": blocks },
        { "from": [everybody] },
        { "from": many },
        { "ports": [{ "port": 81 }] },
    ] });
    let (_, index, uid) = shop(&spec);
    let problems = index.problems(&uid);
    assert_eq!(problems.len(), 3, "{problems:?}");
    for (problem, place) in problems.iter().zip(["ingress[1]", "ingress[2]", "ingress[3]"]) {
        assert!(problem.starts_with(&format!("`spec.{place}` is ignored and allows nothing: ")), "{problem}");
    }
    let rules: Vec<_> = index.policy_groups(&uid).into_iter().flat_map(|group| group.rules).collect();
    let ports: Vec<_> = rules.iter().map(|rule| rule.ports.unwrap().range.unwrap().0).collect();
    assert_eq!(ports, [80, 81, 80, 81], "one for each version of IP: {rules:?}");
}

#[test]
fn duplicates_do_not_count_toward_the_limits() {
    let addresses = (0..=255).flat_map(|third| (0..=255).map(move |last| format!("10.0.{third}.{last}/32")));
    let blocks: Vec<_> = addresses.map(|cidr| json!({ "ipBlock": { "cidr": cidr } })).collect();
    let app = json!({ "podSelector": { "matchLabels": { "app": "b" } } });
    let mut rules: Vec<_> =
        (1..=600).map(|port| json!({ "ports": [{ "port": port }], "from": [app] })).collect();
    rules.push(json!({ "from": blocks }));
    let (_, index, uid) = shop(&json!({ "podSelector": {}, "ingress": rules }));
    assert_eq!(index.problems(&uid), [""; 0]);
    let rules: Vec<_> = index.policy_groups(&uid).into_iter().flat_map(|group| group.rules).collect();
    let nets = rules.iter().filter(|rule| matches!(rule.remote, staffetta_driver::Remote::Net(_)));
    let nets: Vec<_> = nets.map(|rule| rule.remote.clone()).collect();
    assert_eq!(nets, [staffetta_driver::Remote::Net("10.0.0.0/16".parse().unwrap())]);
    assert_eq!(rules.len(), 1 + 2 * 600, "one for each version of IP");
}

#[test]
fn always_allowed_networks_are_merged() {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let from = nets(&["10.96.0.1/16", "10.96.7.0/24"]);
    let always = AlwaysAllowed { from, to: nets(&["2001:db8::1/64"]) };
    let [.., nodes] = PolicyIndex::new(Vec::new(), always).common_groups();
    let rules: Vec<_> = nodes.rules.iter().map(|rule| (rule.direction, rule.remote.clone())).collect();
    let net = |text: &str| staffetta_driver::Remote::Net(text.parse().unwrap());
    let expected = [(Direction::Ingress, net("10.96.0.0/16")), (Direction::Egress, net("2001:db8::/64"))];
    assert_eq!(rules, expected);
}

#[test]
fn a_pod_of_an_unknown_namespace_matches_no_namespace_selector() {
    let spec = json!({ "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector": {} }] }] });
    let index = index(&World::default());
    NetworkPolicyObserver::present(&index, &policy("shop", "p", &spec));
    index.set_pod(&pod(1, "blog", &json!({}), 0, false));
    assert_eq!(guards(&index, 1), ["of-the-configuration"]);
    NamespaceObserver::present(&index, &namespace("blog", &json!({})));
    assert_eq!(guards(&index, 1).len(), 2);
}
