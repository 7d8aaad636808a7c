//! Builds the response of `/stats/summary`: the resource usage of pods, in the format of a kubelet
//! (`k8s.io/kubelet/pkg/apis/stats/v1alpha1`). No I/O.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use staffetta_driver::virtual_node::{ContainerUsage, PodUsage};

/// Returns the resource usage of a node and its pods, in the JSON format of the type `Summary`. Values that the machine
/// does not report are left out; the usage of the node is the sum over its pods.
pub(super) fn summary(node: &str, pods: &[Arc<Pod>], usage: &[PodUsage], now: Timestamp) -> Value {
    let started = |uid: &str| {
        let pod = pods.iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid));
        pod.and_then(|pod| pod.status.as_ref()?.start_time.as_ref().map(|time| time.0)).unwrap_or(now)
    };
    let together = |pick: fn(&ContainerUsage) -> Option<u64>| {
        let amounts = usage.iter().flat_map(|pod| &pod.containers).filter_map(pick);
        amounts.fold(None, |sum: Option<u64>, amount| Some(sum.unwrap_or(0).saturating_add(amount)))
    };
    let pods: Vec<Value> = usage
        .iter()
        .map(|pod| {
            let start = started(pod.owner.uid.as_str());
            let containers: Vec<Value> =
                pod.containers.iter().map(|container| container_stats(container, start, now)).collect();
            let mut stats = json!({
                "podRef": { "name": pod.owner.name, "namespace": pod.owner.namespace, "uid": pod.owner.uid },
                "startTime": start,
                "containers": containers,
            });
            if pod.received_bytes.is_some() || pod.sent_bytes.is_some() {
                let network = [("rxBytes", pod.received_bytes), ("txBytes", pod.sent_bytes)];
                stats["network"] = values(now, network);
            }
            stats
        })
        .collect();
    let mut of_node = json!({ "nodeName": node, "startTime": now });
    put(&mut of_node, "cpu", now, [("usageNanoCores", together(|container| container.cpu_nanocores))]);
    let memory = together(|container| container.memory_bytes);
    put(&mut of_node, "memory", now, [("usageBytes", memory), ("workingSetBytes", memory)]);
    json!({ "node": of_node, "pods": pods })
}

fn container_stats(container: &ContainerUsage, start: Timestamp, now: Timestamp) -> Value {
    let mut stats = json!({ "name": container.name, "startTime": start });
    put(&mut stats, "cpu", now, [("usageNanoCores", container.cpu_nanocores)]);
    let memory = container.memory_bytes;
    put(&mut stats, "memory", now, [("usageBytes", memory), ("workingSetBytes", memory)]);
    put(&mut stats, "rootfs", now, [("usedBytes", container.storage_bytes)]);
    stats
}

/// Adds `group` (such as `cpu`) with its values to `stats`, unless all values are unknown.
fn put<const N: usize>(stats: &mut Value, group: &str, now: Timestamp, amounts: [(&str, Option<u64>); N]) {
    if amounts.iter().any(|(_, amount)| amount.is_some()) {
        stats[group] = values(now, amounts);
    }
}

fn values<const N: usize>(now: Timestamp, amounts: [(&str, Option<u64>); N]) -> Value {
    let mut values = json!({ "time": now });
    for (name, amount) in amounts {
        if let Some(amount) = amount {
            values[name] = json!(amount);
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use staffetta_driver::Owner;

    use super::*;

    #[test]
    fn a_summary_has_what_is_known_and_the_node_what_its_pods_use_together() {
        let usage = |uid: &str, cpu, memory| PodUsage {
            owner: Owner { namespace: "default".into(), name: uid.into(), uid: uid.into() },
            containers: vec![ContainerUsage {
                name: "app".into(),
                cpu_nanocores: cpu,
                memory_bytes: memory,
                storage_bytes: None,
            }],
            received_bytes: Some(5),
            sent_bytes: None,
        };
        let usage = [usage("a", Some(10), Some(100)), usage("b", Some(20), None)];
        let summary = summary("r1", &[], &usage, Timestamp::UNIX_EPOCH);
        assert_eq!(summary["node"]["cpu"]["usageNanoCores"], 30);
        assert_eq!(summary["node"]["memory"]["workingSetBytes"], 100);
        assert_eq!(summary["pods"][0]["podRef"]["uid"], "a");
        assert_eq!(summary["pods"][0]["network"]["rxBytes"], 5);
        let other = &summary["pods"][1]["containers"][0];
        assert!(other["memory"].is_null() && other["cpu"]["time"] == "1970-01-01T00:00:00Z");
    }
}
