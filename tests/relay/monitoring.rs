//! Tests that the dashboard and the alerts use only metrics that the program exports, and that no metric is missing at the start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::admin::metrics;
use crate::exposition::{Exposition, Sample};
use crate::promql::{self, Query, Selector};
use crate::world::World;

/// The labels that Prometheus adds to each series of a process.
const OF_THE_TARGET: [&str; 2] = ["job", "instance"];

/// Pools and virtual nodes tell of themselves where there are any.
const POOLED: &str = "[kubernetes]\nenabled_handlers = [\"vif\", \"lb\", \"lbaasspec\", \"app_hosting\"]\nvif_pool_driver = \"memory\"\n";

fn file(name: &str) -> String {
    fs::read_to_string(format!("{}/etc/monitoring/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// A query of the dashboard with values for Grafana's variables.
fn filled(expression: &str) -> String {
    expression.replace("$__rate_interval", "5m").replace("$job", "staffetta").replace("$handler", ".*")
}

/// All queries of the dashboard and the alerts, each with the place where it stands.
fn queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    let dashboard: Value = serde_json::from_str(&file("dashboard.json")).unwrap();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push((format!("panel {title}"), filled(target["expr"].as_str().unwrap())));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            let name = variable["name"].as_str().unwrap();
            let inner =
                query.strip_prefix("label_values(").and_then(|query| query.strip_suffix(')')).unwrap();
            let (series, label) = inner.rsplit_once(", ").unwrap();
            queries.push((format!("variable {name}"), filled(&format!("count by ({label}) ({series})"))));
        }
    }
    for rule in rules() {
        let name = rule["alert"].as_str().unwrap().to_owned();
        queries.push((format!("alert {name}"), rule["expr"].as_str().unwrap().to_owned()));
    }
    queries
}

/// The rules of all alerts.
pub(crate) fn rules() -> Vec<Value> {
    let alerts: Value = serde_saphyr::from_str(&file("alerts.yaml")).unwrap();
    let groups = alerts["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// Returns `true` if `selector` selects `sample`, for any target.
fn chosen(sample: &Sample, selector: &Selector) -> bool {
    let matches = |matcher: &promql::Matcher| {
        let value = sample.labels.get(&matcher.label);
        OF_THE_TARGET.contains(&matcher.label.as_str())
            || match matcher.operator.as_str() {
                "=" => value == Some(&matcher.value),
                "!=" => value != Some(&matcher.value),
                "=~" => value.is_some_and(|value| alternatives(&matcher.value).any(|one| fits(value, one))),
                operator => panic!("the test does not know the operator {operator}"),
            }
    };
    sample.name == selector.metric && selector.matchers.iter().all(matches)
}

fn alternatives(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.split('|')
}

/// Returns `true` if `value` matches `pattern`, in which `.` is any character and `.*` any text.
fn fits(value: &str, pattern: &str) -> bool {
    if pattern == ".*" {
        return true;
    }
    assert!(!pattern.contains(['*', '+', '(', '[', '\\']), "the test does not know the pattern {pattern}");
    value.len() == pattern.len() && value.chars().zip(pattern.chars()).all(|(c, p)| p == '.' || c == p)
}

/// The errors of a query against the metrics of the program.
fn wrong(query: &Query, page: &Exposition) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut known: BTreeSet<&str> = OF_THE_TARGET.into();
    for selector in &query.selectors {
        let name = &selector.metric;
        let series: Vec<_> = page.samples.iter().filter(|sample| sample.name == *name).collect();
        known.extend(series.iter().flat_map(|sample| sample.labels.keys().map(String::as_str)));
        for matcher in &selector.matchers {
            let label = matcher.label.as_str();
            if !OF_THE_TARGET.contains(&label)
                && !series.iter().all(|sample| sample.labels.contains_key(label))
            {
                wrong.push(format!("{name} has no label {label}"));
            }
        }
        for matcher in selector.matchers.iter().filter(|matcher| matcher.operator == "=~") {
            for one in alternatives(&matcher.value) {
                if !OF_THE_TARGET.contains(&matcher.label.as_str())
                    && !series.iter().any(|sample| fits(&sample.labels[&matcher.label], one))
                {
                    wrong.push(format!("{name} is never {}=~\"{one}\"", matcher.label));
                }
            }
        }
        if !series.iter().any(|sample| chosen(sample, selector)) {
            wrong.push(format!("there is no series {selector:?}"));
        }
        let grows = ["_total", "_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end));
        let of_growth = |function: &str| ["rate", "irate", "increase"].contains(&function);
        if selector.range.as_ref().is_some_and(|range| of_growth(&range.function)) != grows {
            wrong.push(format!("{name} is read as what it is not: {:?}", selector.range));
        }
    }
    wrong.extend(
        query.labels.iter().filter(|label| !known.contains(label.as_str())).map(|l| format!("no label {l}")),
    );
    wrong
}

#[tokio::test]
async fn every_query_of_the_dashboard_and_the_alerts_matches_exposed_metrics() {
    let world = World::with(POOLED).await;
    let controller = world.controller().await;
    let page = metrics(&controller).await;
    let mut asked = BTreeSet::new();
    let mut mistakes = Vec::new();
    for (place, text) in queries() {
        match promql::read(&text) {
            Err(why) => mistakes.push(format!("{place}: {why}: {text}")),
            Ok(query) => {
                mistakes
                    .extend(wrong(&query, &page).into_iter().map(|why| format!("{place}: {why}: {text}")));
                asked.extend(query.selectors.into_iter().map(|selector| selector.metric));
            }
        }
    }
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    assert!(asked.len() > 30, "the queries were read: {asked:?}");
    let unasked: Vec<_> =
        page.forms.keys().filter(|family| !asked.iter().any(|name| name.starts_with(*family))).collect();
    assert!(unasked.is_empty(), "nobody looks at {unasked:?}");
    controller.stop().await.unwrap();
}

#[test]
fn each_alert_says_how_bad_it_is_what_happened_and_what_to_do() {
    let rules = rules();
    let names: BTreeSet<_> = rules.iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    assert_eq!(names.len(), rules.len());
    for rule in &rules {
        let known = ["alert", "expr", "for", "labels", "annotations"];
        assert!(rule.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{rule}");
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{rule}");
        for annotation in ["summary", "description"] {
            let text = rule["annotations"][annotation].as_str().unwrap();
            assert!(
                text.ends_with('.') && text.matches("{{").count() == text.matches("}}").count(),
                "{text}"
            );
        }
    }
}

#[test]
fn the_dashboard_can_be_imported_and_no_panel_covers_another() {
    let dashboard: Value = serde_json::from_str(&file("dashboard.json")).unwrap();
    assert!(
        dashboard["id"].is_null() && dashboard["uid"] == "staffetta" && dashboard["schemaVersion"].is_u64()
    );
    let (mut ids, mut covered) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "two panels have one id: {}", panel["title"]);
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24, "{}", panel["title"]);
        for place in (y..y + h).flat_map(|row| (x..x + w).map(move |column| (row, column))) {
            assert!(covered.insert(place), "{} covers another panel", panel["title"]);
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        }
    }
}

#[tokio::test]
async fn every_series_is_there_from_the_start() {
    let world = World::new().await;
    let controller = world.controller().await;
    let page = metrics(&controller).await;
    let handlers = ["vif", "lb", "lbaasspec"];
    let kinds = ["EndpointSlice", "Pod", "Service"];
    for name in [
        "adds_total",
        "depth",
        "retries_total",
        "unfinished_work_seconds",
        "longest_running_processor_seconds",
    ] {
        zero(&page, &format!("workqueue_{name}"), "name", &handlers, &[("", "")]);
    }
    for name in ["queue_duration_seconds_count", "work_duration_seconds_sum"] {
        zero(&page, &format!("workqueue_{name}"), "name", &handlers, &[("", "")]);
    }
    let phases = ["held", "queued", "running", "retrying", "failed"].map(|phase| ("phase", phase));
    zero(&page, "staffetta_objects", "handler", &handlers, &phases);
    let outcomes = ["transient", "permanent", "panic", "timeout"].map(|outcome| ("outcome", outcome));
    zero(&page, "staffetta_failures_total", "handler", &handlers, &outcomes);
    zero(&page, "staffetta_garbage_collection_orphans_total", "handler", &handlers, &[("", "")]);
    zero(&page, "staffetta_garbage_collections_total", "handler", &handlers, &[("outcome", "failure")]);
    let changes = ["added", "modified", "deleted"].map(|change| ("change", change));
    zero(&page, "staffetta_events_received_total", "kind", &kinds, &changes);
    for name in ["staffetta_watched_objects", "staffetta_undecodable_objects", "staffetta_watch_errors_total"]
    {
        zero(&page, name, "kind", &kinds, &[("", "")]);
    }
    let unused = page.samples.iter().filter(|sample| sample.name == "rest_client_requests_total");
    assert!(unused.clone().any(|sample| sample.labels["code"] == "<error>"));
    assert_eq!(page.count("staffetta_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1);
    assert_eq!(page.count("leader_election_master_status", &[("name", "staffetta")]), 1);
    assert_eq!(page.count("leader_election_slowpath_total", &[("name", "staffetta")]), 0);
    assert_eq!(page.count("staffetta_leadership_losses_total", &[("name", "staffetta")]), 0);
    for outcome in ["created", "updated", "dropped", "refused", "failed"] {
        assert_eq!(page.count("staffetta_kubernetes_events_total", &[("outcome", outcome)]), 0);
    }
    assert!(page.value("process_resident_memory_bytes", &[]) > 1e6);
    let mut series = BTreeMap::new();
    for sample in &page.samples {
        *series.entry((&sample.name, &sample.labels)).or_insert(0) += 1;
    }
    assert!(series.values().all(|count| *count == 1), "no series stands there twice");
    controller.stop().await.unwrap();
}

/// Each of `values` of `label` has one series for each of the `others`, and it is 0.
fn zero(page: &Exposition, name: &str, label: &str, values: &[&str], others: &[(&str, &str)]) {
    for value in values {
        for other in others {
            let both = [(label, *value), *other];
            let labels = if other.0.is_empty() { &both[..1] } else { &both[..] };
            assert_eq!(page.count(name, labels), 0, "{name} {labels:?}");
        }
    }
}
