//! The requests of a controller, as a real API server counts them.

use std::ops::{Add, Sub};
use std::path::Path;
use std::time::Duration;

use kube::Client;
use serde_json::Value;

/// Requests for pods and Events. Watches, discovery, the lease and the cluster id are excluded: they do not depend on the number of
/// pods. Counts are whole numbers, in the type of the server's metrics.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) struct Requests {
    /// Changes of pods.
    pub(crate) writes: f64,
    /// Pages of lists of pods.
    pub(crate) lists: f64,
    /// All others.
    pub(crate) others: f64,
}

impl Requests {
    fn count(&mut self, resource: &str, verb: &str, times: f64) {
        match (resource, verb) {
            (_, "watch") | ("" | "leases" | "namespaces", _) => {}
            ("pods", "patch" | "update") => self.writes += times,
            ("pods", "list") => self.lists += times,
            _ => self.others += times,
        }
    }
}

impl Add for Requests {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let Self { writes, lists, others } = other;
        Self { writes: self.writes + writes, lists: self.lists + lists, others: self.others + others }
    }
}

impl Sub for Requests {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        let Self { writes, lists, others } = before;
        Self { writes: self.writes - writes, lists: self.lists - lists, others: self.others - others }
    }
}

/// The requests of the controller, by the server's audit log.
pub(crate) fn logged(log: &Path) -> Requests {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let mut requests = Requests::default();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).expect("the audit log is JSON, a record a line");
        let ours = record["userAgent"].as_str().is_some_and(|agent| agent.starts_with("staffetta/"));
        let of = |field: &Value| field.as_str().unwrap_or_default().to_owned();
        if ours {
            requests.count(&of(&record["objectRef"]["resource"]), &of(&record["verb"]), 1.0);
        }
    }
    requests
}

/// The requests of all clients for pods and Events that the server has answered since its start, by its metrics. The server counts
/// a request just after its answer, so the metrics are read until two reads agree.
pub(crate) async fn answered(client: &Client) -> Requests {
    let mut before = None;
    loop {
        let now = counted(client).await;
        if before == Some(now) {
            return now;
        }
        before = Some(now);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn counted(client: &Client) -> Requests {
    let request = http::Request::get("/metrics").body(Vec::new()).expect("the request is well-formed");
    let text = client.request_text(request).await.expect("the server has metrics");
    let mut requests = Requests::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
        let (labels, count) = line.rsplit_once("} ").expect("a metric has a value");
        let label = |name: &str| {
            let of = |pair: &str| {
                pair.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"').map(str::to_owned)
            };
            labels.split(',').find_map(of).unwrap_or_default()
        };
        let resource = label("resource");
        if ["pods", "events"].contains(&resource.as_str()) {
            let count = count.parse().expect("it is a number");
            requests.count(&resource, &label("verb").to_lowercase(), count);
        }
    }
    requests
}
