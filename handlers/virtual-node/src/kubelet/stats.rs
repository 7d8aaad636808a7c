//! Builds the responses with the resource usage of pods, in the formats of a kubelet: `/stats/summary`
//! (`k8s.io/kubelet/pkg/apis/stats/v1alpha1`) and `/metrics/resource` (the text format of Prometheus). No I/O.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use staffetta_driver::Uid;
use staffetta_driver::virtual_node::{ContainerUsage, PodUsage};
use tokio::time::Instant;

/// The resource usage of the pods of a node at one time.
#[derive(Clone)]
pub(super) struct UsageReport {
    /// The monotonic time of the report, from which its age is computed.
    pub(super) at: Instant,
    /// The wall-clock time of the report: the timestamp of its metric samples.
    time: Timestamp,
    /// The usage of each pod.
    pub(super) pods: Arc<[PodUsage]>,
    /// The CPU time of each container in seconds, by the UID of its pod and its name. Machines report only the current usage,
    /// which is added up from the first report on.
    cpu_seconds: Arc<HashMap<(Uid, String), f64>>,
    /// The CPU time of all containers of the node in seconds, since the first report.
    node_cpu_seconds: f64,
}

impl UsageReport {
    /// Creates the report of `pods` at the time `at`, which continues the CPU times of the report `last`.
    pub(super) fn new(pods: Arc<[PodUsage]>, last: Option<&Self>, at: Instant, time: Timestamp) -> Self {
        let elapsed = last.map_or(0.0, |last| at.saturating_duration_since(last.at).as_secs_f64());
        let mut node_cpu_seconds = last.map_or(0.0, |last| last.node_cpu_seconds);
        let mut cpu_seconds = HashMap::new();
        for (pod, container) in containers(&pods) {
            let Some(nanocores) = container.cpu_nanocores else { continue };
            let container = (pod.owner.uid.clone(), container.name.clone());
            let before = last.and_then(|last| last.cpu_seconds.get(&container));
            #[expect(clippy::cast_precision_loss, reason = "a part of 2^53 does not matter")]
            let used = before.map_or(0.0, |_| nanocores as f64 / 1e9 * elapsed);
            node_cpu_seconds += used;
            cpu_seconds.insert(container, before.copied().unwrap_or_default() + used);
        }
        Self { at, time, pods, cpu_seconds: Arc::new(cpu_seconds), node_cpu_seconds }
    }
}

/// Returns all containers of the pods, each with its pod.
fn containers(pods: &[PodUsage]) -> impl Iterator<Item = (&PodUsage, &ContainerUsage)> {
    pods.iter().flat_map(|pod| pod.containers.iter().map(move |container| (pod, container)))
}

/// Returns the response of `/metrics/resource`. Values that the machine does not report are omitted; the values of a pod or the node are
/// sums over containers. Without a report, the response contains only the metric that signals the error.
pub(super) fn resource_metrics(report: Option<&UsageReport>) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, String)]| {
        if !samples.is_empty() {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    if let Some(report) = report {
        let at = report.time.as_millisecond();
        let (mut of_containers, mut of_pods, mut of_node) =
            (Samples::default(), Samples::default(), Samples::default());
        for pod in &*report.pods {
            let labels = format!("namespace={:?},pod={:?}", pod.owner.namespace, pod.owner.name);
            let cpu_of = |container: &ContainerUsage| {
                report.cpu_seconds.get(&(pod.owner.uid.clone(), container.name.clone())).copied()
            };
            for container in &pod.containers {
                let labels = format!("{{container={:?},{labels}}}", container.name);
                of_containers.add(&labels, cpu_of(container), container.memory_bytes, at);
            }
            let cpu = pod.containers.iter().filter_map(cpu_of).reduce(|one, other| one + other);
            let memory = pod
                .containers
                .iter()
                .filter_map(|container| container.memory_bytes)
                .reduce(u64::saturating_add);
            of_pods.add(&format!("{{{labels}}}"), cpu, memory, at);
        }
        let cpu = (!report.cpu_seconds.is_empty()).then_some(report.node_cpu_seconds);
        let memory = containers(&report.pods)
            .filter_map(|(_, container)| container.memory_bytes)
            .reduce(u64::saturating_add);
        of_node.add("", cpu, memory, at);
        for (object, samples) in [("node", of_node), ("pod", of_pods), ("container", of_containers)] {
            let help = format!("[STABLE] Cumulative cpu time consumed by the {object} in core-seconds");
            family(&format!("{object}_cpu_usage_seconds_total"), "counter", &help, &samples.cpu);
            let help = format!("[STABLE] Current working set of the {object} in bytes");
            family(&format!("{object}_memory_working_set_bytes"), "gauge", &help, &samples.memory);
        }
    }
    let failed = u8::from(report.is_none()).to_string();
    let help = "1 if there was an error while getting container metrics, 0 otherwise";
    for name in ["resource_scrape_error", "scrape_error"] {
        family(name, "gauge", help, &[(String::new(), failed.clone())]);
    }
    text
}

/// The samples of the CPU and the memory metric of nodes, pods or containers: labels, and the value with its time.
#[derive(Default)]
struct Samples {
    cpu: Vec<(String, String)>,
    memory: Vec<(String, String)>,
}

impl Samples {
    fn add(&mut self, labels: &str, cpu: Option<f64>, memory: Option<u64>, at: i64) {
        self.cpu.extend(cpu.map(|seconds| (labels.to_owned(), format!("{seconds} {at}"))));
        self.memory.extend(memory.map(|bytes| (labels.to_owned(), format!("{bytes} {at}"))));
    }
}

/// Returns the resource usage of a node and its pods, in the JSON format of the type `Summary`. Values that the machine
/// does not report are left out; the usage of the node is the sum over its pods.
pub(super) fn summary(node: &str, pods: &[Arc<Pod>], usage: &[PodUsage], now: Timestamp) -> Value {
    let started = |uid: &str| {
        let pod = pods.iter().find(|pod| pod.metadata.uid.as_deref() == Some(uid));
        pod.and_then(|pod| pod.status.as_ref()?.start_time.as_ref().map(|time| time.0)).unwrap_or(now)
    };
    let together = |pick: fn(&ContainerUsage) -> Option<u64>| {
        containers(usage).filter_map(|(_, container)| pick(container)).reduce(u64::saturating_add)
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

/// Returns the resource usage of a container, in the JSON format of the type `ContainerStats`.
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

/// Returns a JSON object with the time `now` and those of `amounts` that are known, by name.
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
    fn metrics_add_up_the_cpu_usage_between_reports_and_invent_nothing() {
        let container = |name: &str, cpu, memory| ContainerUsage {
            name: name.into(),
            cpu_nanocores: cpu,
            memory_bytes: memory,
            storage_bytes: None,
        };
        let owner = Owner { namespace: "shop".into(), name: "web".into(), uid: "u1".into() };
        let containers =
            vec![container("app", Some(500_000_000), Some(100)), container("side", None, Some(20))];
        let pods: Arc<[PodUsage]> =
            [PodUsage { owner, containers, received_bytes: None, sent_bytes: None }].into();
        let (start, time) = (Instant::now(), Timestamp::from_second(60).unwrap());
        let first = UsageReport::new(Arc::clone(&pods), None, start, Timestamp::UNIX_EPOCH);
        let ten_later = start + std::time::Duration::from_secs(10);
        let text = resource_metrics(Some(&UsageReport::new(pods, Some(&first), ten_later, time)));
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "node_cpu_usage_seconds_total 5 60000",
            "node_memory_working_set_bytes 120 60000",
            "pod_cpu_usage_seconds_total{namespace=\"shop\",pod=\"web\"} 5 60000",
            "pod_memory_working_set_bytes{namespace=\"shop\",pod=\"web\"} 120 60000",
            "container_cpu_usage_seconds_total{container=\"app\",namespace=\"shop\",pod=\"web\"} 5 60000",
            "container_memory_working_set_bytes{container=\"app\",namespace=\"shop\",pod=\"web\"} 100 60000",
            "container_memory_working_set_bytes{container=\"side\",namespace=\"shop\",pod=\"web\"} 20 60000",
            "resource_scrape_error 0",
            "scrape_error 0",
        ];
        assert_eq!(samples, expected);
        assert!(text.starts_with("# HELP node_cpu_usage_seconds_total "), "{text}");
        let failed = resource_metrics(None);
        assert!(failed.contains("\nresource_scrape_error 1\n") && !failed.contains("node_"), "{failed}");
    }

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
