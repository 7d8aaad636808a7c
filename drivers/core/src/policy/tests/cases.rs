//! Single things that policies say.

use serde_json::json;

use super::world::{World, book, make_groups, namespace, pod, policy, tell};
use crate::policy::{AlwaysAllowed, PolicyBook};
use crate::security_group::Direction;
use crate::{NamespaceObserver, NetworkPolicyObserver, Uid};

fn guards(book: &PolicyBook, number: u8) -> Vec<String> {
    make_groups(book);
    let groups = book.guards(&format!("pod-{number}").into()).unwrap().unwrap();
    groups.iter().map(|group| group.as_str().to_owned()).collect()
}

/// A shop with two pods, of which one is `app: a`.
fn shop(spec: &serde_json::Value) -> (World, PolicyBook, Uid) {
    let pods = vec![
        pod(1, "shop", &json!({ "app": "a" }), 80, false),
        pod(2, "shop", &json!({ "app": "b" }), 8080, false),
    ];
    let policies = vec![policy("shop", "p", spec)];
    let namespaces = vec![namespace("shop", &json!({}))];
    let world = World { namespaces, pods, policies, ..World::default() };
    let book = book(&World::default());
    tell(&book, &world);
    (world, book, "policy-shop-p".into())
}

#[test]
fn a_pod_that_changes_its_labels_changes_its_groups_and_no_rule() {
    let spec = json!({ "podSelector": {}, "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": "a" } } }] }] });
    let (_, book, uid) = shop(&spec);
    let (rules, before) = (book.groups(&uid), guards(&book, 1));
    book.take_due();
    book.pod_present(&pod(1, "shop", &json!({ "app": "c" }), 80, false));
    let due = book.take_due();
    assert_eq!((due.pods.len(), due.policies.len()), (1, 0));
    assert_eq!(book.groups(&uid), rules);
    assert_eq!(guards(&book, 1).len() + 1, before.len());
}

#[test]
fn an_isolated_pod_is_open_in_the_other_direction_and_to_its_nodes() {
    let spec = json!({ "podSelector": { "matchLabels": { "app": "a" } }, "policyTypes": ["Ingress"] });
    let (_, book, _) = shop(&spec);
    assert_eq!(guards(&book, 1), ["nodes", "open-egress", "policy-policy-shop-p"]);
    assert_eq!(guards(&book, 2), ["of-the-configuration"]);
}

#[test]
fn without_groups_of_the_configuration_an_open_pod_has_those_that_let_all_pass() {
    let book = PolicyBook::default();
    book.pod_present(&pod(1, "shop", &json!({}), 0, false));
    assert!(book.guards(&"pod-1".into()).is_err(), "they are not there yet");
    assert_eq!(guards(&book, 1), ["open-egress", "open-ingress"]);
}

#[test]
fn pods_whose_named_ports_have_other_numbers_have_groups_of_their_own() {
    let (_, book, uid) = shop(&json!({ "podSelector": {}, "ingress": [{ "ports": [{ "port": "http" }] }] }));
    let wishes = book.groups(&uid);
    assert_eq!(wishes.len(), 2);
    assert!(wishes.iter().all(|wish| wish.rules.len() == 2), "one for each version of IP: {wishes:?}");
    book.take_due();
    book.pod_gone(&"pod-2".into());
    assert_eq!(book.take_due().policies.len(), 1);
    assert_eq!(book.groups(&uid).len(), 1);
}

#[test]
fn ports_that_nobody_has_are_told() {
    let spec = json!({ "podSelector": { "matchLabels": { "app": "a" } },
        "ingress": [{ "ports": [{ "port": "grpc" }, { "port": "http" }] }],
        "egress": [{ "ports": [{ "port": "sql" }], "to": [{ "podSelector": {} }, { "ipBlock": { "cidr": "10.0.0.0/8" } }] }] });
    let (_, book, uid) = shop(&spec);
    let expected = [
        "no pod that it concerns has a port named grpc/TCP",
        "no pod that it concerns has a port named sql/TCP",
        "the port `sql` has no number in the block 10.0.0.0/8",
    ];
    assert_eq!(book.problems(&uid), expected);
}

#[test]
fn what_cannot_be_understood_is_told_and_allows_nothing() {
    let spec = json!({ "podSelector": {}, "ingress": [
        { "from": [{ "ipBlock": { "cidr": "all" } }] },
        { "ports": [{ "port": 90, "endPort": 80 }] },
        { "from": [{ "podSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } }] },
    ] });
    let (_, book, uid) = shop(&spec);
    let expected = [
        "`Like` is no operator of a selector",
        "`all` is no block of addresses",
        "there are no ports 90 to 80",
    ];
    assert_eq!(book.problems(&uid), expected);
    let rules: Vec<_> = book.groups(&uid).into_iter().flat_map(|wish| wish.rules).collect();
    assert!(rules.iter().all(|rule| matches!(rule.remote, crate::Remote::Group(_))), "{rules:?}");
}

#[test]
fn what_is_more_than_can_be_kept_is_told_with_its_place_and_allows_nothing() {
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
    let (_, book, uid) = shop(&spec);
    let problems = book.problems(&uid);
    assert_eq!(problems.len(), 3, "{problems:?}");
    for (problem, place) in problems.iter().zip(["ingress[1]", "ingress[2]", "ingress[3]"]) {
        assert!(problem.starts_with(&format!("`spec.{place}` allows nothing: ")), "{problem}");
    }
    let rules: Vec<_> = book.groups(&uid).into_iter().flat_map(|wish| wish.rules).collect();
    let ports: Vec<_> = rules.iter().map(|rule| rule.ports.unwrap().range.unwrap().0).collect();
    assert_eq!(ports, [80, 81, 80, 81], "one for each version of IP: {rules:?}");
}

#[test]
fn what_comes_to_little_is_kept_however_often_it_is_said() {
    let addresses = (0..=255).flat_map(|third| (0..=255).map(move |last| format!("10.0.{third}.{last}/32")));
    let blocks: Vec<_> = addresses.map(|cidr| json!({ "ipBlock": { "cidr": cidr } })).collect();
    let app = json!({ "podSelector": { "matchLabels": { "app": "b" } } });
    let mut rules: Vec<_> =
        (1..=600).map(|port| json!({ "ports": [{ "port": port }], "from": [app] })).collect();
    rules.push(json!({ "from": blocks }));
    let (_, book, uid) = shop(&json!({ "podSelector": {}, "ingress": rules }));
    assert_eq!(book.problems(&uid), [""; 0]);
    let rules: Vec<_> = book.groups(&uid).into_iter().flat_map(|wish| wish.rules).collect();
    let nets = rules.iter().filter(|rule| matches!(rule.remote, crate::Remote::Net(_)));
    let nets: Vec<_> = nets.map(|rule| rule.remote.clone()).collect();
    assert_eq!(nets, [crate::Remote::Net("10.0.0.0/16".parse().unwrap())]);
    assert_eq!(rules.len(), 1 + 2 * 600, "one for each version of IP");
}

#[test]
fn who_is_always_allowed_is_read_as_networks_each_once() {
    let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    let from = nets(&["10.96.0.1/16", "10.96.7.0/24"]);
    let always = AlwaysAllowed { from, to: nets(&["2001:db8::1/64"]) };
    let [.., (_, rules)] = PolicyBook::new(Vec::new(), always).common_groups();
    let rules: Vec<_> = rules.iter().map(|rule| (rule.direction, rule.remote.clone())).collect();
    let net = |text: &str| crate::Remote::Net(text.parse().unwrap());
    let expected = [(Direction::Ingress, net("10.96.0.0/16")), (Direction::Egress, net("2001:db8::/64"))];
    assert_eq!(rules, expected);
}

#[test]
fn a_pod_whose_namespace_is_not_known_yet_is_nobody_whom_a_namespace_selector_means() {
    let spec = json!({ "podSelector": {}, "ingress": [{ "from": [{ "namespaceSelector": {} }] }] });
    let book = book(&World::default());
    NetworkPolicyObserver::present(&book, &policy("shop", "p", &spec));
    book.pod_present(&pod(1, "blog", &json!({}), 0, false));
    assert_eq!(guards(&book, 1), ["of-the-configuration"]);
    NamespaceObserver::present(&book, &namespace("blog", &json!({})));
    assert_eq!(guards(&book, 1).len(), 2);
}
