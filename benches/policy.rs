//! `cargo bench --bench policy`: what one change means for a thousand pods and a hundred policies.
//!
//! Reckoning alone, without a cloud: the time from the change to the list of those for whom something came out differently,
//! and the number of things that are then sent.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod report;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::json;
use staffetta_driver::policy::PolicyBook;
use staffetta_driver::{NamespaceObserver, NetworkPolicyObserver, Uid};

use report::{Row, median, tell};

const PODS: usize = 1_000;
const POLICIES: usize = 100;
const NAMESPACES: usize = 10;
/// How many changes are measured.
const CHANGES: usize = 200;

fn main() {
    let book = PolicyBook::new(vec!["default".into()], Vec::new());
    for number in 0..NAMESPACES {
        NamespaceObserver::present(&book, &namespace(number));
    }
    let began = Instant::now();
    for number in 0..POLICIES {
        NetworkPolicyObserver::present(&book, &policy(number));
    }
    for number in 0..PODS {
        book.pod_present(&pod(number, number % 20));
    }
    for name in book.names().into_iter().chain(book.common_groups().map(|(name, _)| name)) {
        book.ready(&name, &name.as_str().into());
    }
    book.take_due();
    let whole = milliseconds(began.elapsed());
    let rules = wanted_rules(&book);

    let (mut times, mut calls) = (Vec::new(), 0);
    for change in 0..CHANGES {
        let changed = pod(change, (change + 7) % 20);
        let uid: Uid = changed.metadata.uid.clone().expect("it has one").into();
        let before = book.guards(&uid);
        let began = Instant::now();
        book.pod_present(&changed);
        let due = book.take_due();
        let after = book.guards(&uid);
        times.push(milliseconds(began.elapsed()));
        assert!(before != after && due.pods.len() == 1 && due.policies.is_empty(), "one pod moves: {due:?}");
        calls += due.pods.len();
    }
    let changed_rules = difference(&rules, &wanted_rules(&book));
    let typical = median(times.clone());
    let worst = times.iter().copied().fold(0.0, f64::max);
    tell(
        "policy",
        &[
            Row::new("the first reckoning of all", "ms", whole),
            Row::new("one label change, median", "ms", typical).goal("< 10", typical < 10.0),
            Row::new("one label change, the slowest", "ms", worst).goal("< 10", worst < 10.0),
            Row::new("calls for each label change", "", calls as f64 / CHANGES as f64)
                .goal("= 1", calls == CHANGES),
            Row::new("rules that change with labels", "", changed_rules as f64)
                .goal("= 0", changed_rules == 0),
        ],
    );
}

type Rules = Vec<(String, usize, String)>;

/// The rules of all groups, as text.
fn wanted_rules(book: &PolicyBook) -> Rules {
    let policies = (0..POLICIES).map(|number| format!("policy-{number}").into());
    let wishes = policies.flat_map(|uid: Uid| book.groups(&uid));
    wishes.map(|wish| (wish.name.to_string(), wish.rules.len(), format!("{:?}", wish.rules))).collect()
}

fn difference(before: &Rules, after: &Rules) -> usize {
    after.iter().filter(|rules| !before.contains(rules)).count()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn namespace(number: usize) -> Namespace {
    let meta = json!({ "metadata": { "name": format!("ns-{number}"), "uid": format!("ns-{number}"),
        "labels": { "team": format!("t{}", number % 3) } } });
    serde_json::from_value(meta).expect("it is a namespace")
}

fn pod(number: usize, app: usize) -> Pod {
    let meta = json!({ "namespace": format!("ns-{}", number % NAMESPACES), "name": format!("pod-{number}"),
        "uid": format!("pod-{number}"), "labels": { "app": format!("a{app}"), "zone": format!("z{}", app % 4) } });
    let spec =
        json!({ "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": 8080 }] }] });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec })).expect("it is a pod")
}

/// Policies of the usual kinds: a default deny, an application that admits another one, one that admits other namespaces.
fn policy(number: usize) -> NetworkPolicy {
    let (own, other) = (format!("a{}", number % 20), format!("a{}", (number + 1) % 20));
    let spec = match number % 5 {
        0 => json!({ "podSelector": {}, "policyTypes": ["Ingress"] }),
        1 | 2 => json!({ "podSelector": { "matchLabels": { "app": own } },
            "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": other } } }],
                "ports": [{ "port": 80 }, { "port": 443 }] }] }),
        3 => json!({ "podSelector": { "matchLabels": { "app": own } },
            "ingress": [{ "from": [{ "namespaceSelector": { "matchLabels": { "team": "t1" } },
                "podSelector": { "matchLabels": { "app": other } } }], "ports": [{ "port": 8080, "endPort": 8090 }] }] }),
        _ => {
            json!({ "podSelector": { "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["z1", "z2"] }] },
            "policyTypes": ["Egress"], "egress": [{ "to": [{ "namespaceSelector": {} }, { "ipBlock": {
                "cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"] } }] }] })
        }
    };
    let meta = json!({ "namespace": format!("ns-{}", number % NAMESPACES), "name": format!("p{number}"),
        "uid": format!("policy-{number}") });
    serde_json::from_value(json!({ "metadata": meta, "spec": spec })).expect("it is a policy")
}
