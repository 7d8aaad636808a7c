//! Nodes without machines: their objects are Ready, and their leases are renewed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::call::Call;
use crate::kubelet::time;
use crate::options::Options;
use crate::scheduler::is_ready;
use crate::shell::Plan;

/// The namespace of node leases.
pub(crate) const LEASES: &str = "kube-node-lease";

/// The label that carries the name of the cluster's options.
const LABEL: &str = "staffetta.dev/cluster";

/// A kubelet renews its lease this often; four times as long without, and the node counts as lost.
const RENEWAL: Duration = Duration::from_secs(10);

/// The names and addresses of the nodes.
pub(crate) fn all(options: &Options) -> impl Iterator<Item = (String, IpAddr)> + '_ {
    (1..=options.nodes)
        .map(|number| (format!("{}-{number}", options.name), IpAddr::from([192, 0, 2, number])))
}

/// Returns the calls that are due for the nodes and their leases.
pub(crate) fn plan(options: &Options, nodes: &[Arc<Node>], leases: &[Arc<Lease>], now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for (name, address) in all(options) {
        match nodes.iter().find(|node| node.name_any() == name) {
            None => plan.calls.push(Call::create(&new_node(options, &name, address, now))),
            Some(node) => {
                if !is_ready(node) {
                    plan.calls.push(Call::status(&**node, status(&name, address, now)));
                }
                let lease = leases.iter().find(|lease| lease.name_any() == name);
                renew(node, lease.map(|lease| &**lease), now, &mut plan);
            }
        }
    }
    plan
}

fn renew(node: &Node, lease: Option<&Lease>, now: Timestamp, plan: &mut Plan) {
    let name = node.name_any();
    let Some(lease) = lease else {
        let spec = json!({ "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": MicroTime(now) });
        plan.calls.push(Call::create(&Lease {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(LEASES.into()),
                ..ObjectMeta::default()
            },
            spec: typed(spec),
        }));
        return plan.wake_after(RENEWAL);
    };
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
    let age = renewed.map_or(RENEWAL, |renewed| now.duration_since(renewed.0).unsigned_abs());
    let left = RENEWAL.saturating_sub(age);
    if left.is_zero() {
        plan.calls.push(Call::patch(lease, json!({ "spec": { "renewTime": MicroTime(now) } })));
    }
    plan.wake_after(if left.is_zero() { RENEWAL } else { left });
}

fn new_node(options: &Options, name: &str, address: IpAddr, now: Timestamp) -> Node {
    let labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", LABEL: options.name,
    });
    let mut labels: BTreeMap<String, String> = typed(labels);
    labels.extend(options.labels.clone());
    Node {
        metadata: ObjectMeta { name: Some(name.into()), labels: Some(labels), ..ObjectMeta::default() },
        spec: options.spec.clone(),
        status: typed(status(name, address, now)),
    }
}

fn status(name: &str, address: IpAddr, now: Timestamp) -> Value {
    let resources = json!({ "cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "110" });
    json!({
        "capacity": resources, "allocatable": resources,
        "addresses": [{ "type": "InternalIP", "address": address }, { "type": "Hostname", "address": name }],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "This node has no machine.",
            "lastHeartbeatTime": time(now), "lastTransitionTime": time(now),
        }],
    })
}

fn typed<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("it is written above in the form of its type")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Verb;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn options() -> Options {
        Options { nodes: 1, ..Options::default() }
    }

    fn node() -> Arc<Node> {
        let Verb::Create(node) = plan(&options(), &[], &[], NOW).calls.remove(0).verb else { panic!() };
        Arc::new(typed(node))
    }

    #[test]
    fn a_missing_node_is_made_ready_and_then_gets_its_lease() {
        let node = node();
        assert!(is_ready(&node));
        assert_eq!(node.labels()[LABEL], "node");
        let plan = plan(&options(), &[node], &[], NOW);
        assert_eq!((plan.calls[0].resource.kind.as_str(), plan.calls[0].name.as_str()), ("Lease", "node-1"));
    }

    #[test]
    fn a_lease_is_renewed_in_time() {
        let node = node();
        let Verb::Create(lease) = plan(&options(), &[Arc::clone(&node)], &[], NOW).calls.remove(0).verb
        else {
            panic!()
        };
        let lease: Arc<Lease> = Arc::new(typed(lease));
        let later = |seconds| NOW + Duration::from_secs(seconds);
        let plan_at = |now| plan(&options(), &[Arc::clone(&node)], &[Arc::clone(&lease)], now);
        assert_eq!(plan_at(later(4)), Plan { calls: Vec::new(), wake: Some(Duration::from_secs(6)) });
        let Verb::Patch { subresource: None, body } = &plan_at(later(10)).calls[0].verb else { panic!() };
        assert_eq!(body["spec"]["renewTime"], json!(MicroTime(later(10))));
    }

    #[test]
    fn a_node_that_others_call_lost_says_that_it_is_ready() {
        let mut node = node();
        Arc::make_mut(&mut node).status = None;
        let plan = plan(&options(), &[node], &[], NOW);
        assert!(matches!(plan.calls[0].verb, Verb::Patch { subresource: Some("status"), .. }));
    }
}
