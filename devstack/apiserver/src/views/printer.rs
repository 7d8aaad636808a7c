//! The columns that kubectl prints for the most used kinds.

mod cell;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::table::Resource;

/// A column: its title, whether it shows only in wide output, and what stands in it.
type Column = (&'static str, bool, fn(&Value, Timestamp) -> Value);

const AGE: Column = ("Age", false, cell::age);
const NAME: Column = ("Name", false, cell::name);

#[rustfmt::skip]
const COLUMNS: &[(&str, &[Column])] = &[
    ("pods", &[
        NAME, ("Ready", false, cell::pod_ready), ("Status", false, cell::pod_status), ("Restarts", false, cell::pod_restarts), AGE,
        ("IP", true, |o, _| cell::text(&o["status"]["podIP"])), ("Node", true, |o, _| cell::text(&o["spec"]["nodeName"])),
    ]),
    ("services", &[
        NAME, ("Type", false, |o, _| cell::text(&o["spec"]["type"])), ("Cluster-IP", false, |o, _| cell::text(&o["spec"]["clusterIP"])),
        ("External-IP", false, cell::external_ip), ("Port(s)", false, cell::service_ports), AGE,
        ("Selector", true, |o, _| cell::labels(&o["spec"]["selector"])),
    ]),
    ("deployments.apps", &[
        NAME, ("Ready", false, cell::replicas_ready), ("Up-to-date", false, |o, _| cell::count(&o["status"]["updatedReplicas"])),
        ("Available", false, |o, _| cell::count(&o["status"]["availableReplicas"])), AGE,
        ("Selector", true, |o, _| cell::labels(&o["spec"]["selector"]["matchLabels"])),
    ]),
    ("statefulsets.apps", &[NAME, ("Ready", false, cell::replicas_ready), AGE]),
    ("replicasets.apps", &[
        NAME, ("Desired", false, |o, _| cell::count(&o["spec"]["replicas"])), ("Current", false, |o, _| cell::count(&o["status"]["replicas"])),
        ("Ready", false, |o, _| cell::count(&o["status"]["readyReplicas"])), AGE,
    ]),
    ("nodes", &[
        NAME, ("Status", false, cell::node_status), ("Roles", false, cell::node_roles), AGE,
        ("Version", false, |o, _| cell::text(&o["status"]["nodeInfo"]["kubeletVersion"])),
    ]),
    ("namespaces", &[NAME, ("Status", false, |o, _| cell::text(&o["status"]["phase"])), AGE]),
    ("configmaps", &[NAME, ("Data", false, |o, _| cell::size(&o["data"])), AGE]),
    ("secrets", &[NAME, ("Type", false, |o, _| cell::text(&o["type"])), ("Data", false, |o, _| cell::size(&o["data"])), AGE]),
    ("endpoints", &[NAME, ("Endpoints", false, cell::endpoints), AGE]),
    ("endpointslices.discovery.k8s.io", &[
        NAME, ("AddressType", false, |o, _| cell::text(&o["addressType"])), ("Ports", false, cell::slice_ports),
        ("Endpoints", false, cell::slice_endpoints), AGE,
    ]),
    ("leases.coordination.k8s.io", &[NAME, ("Holder", false, |o, _| cell::text(&o["spec"]["holderIdentity"])), AGE]),
    ("events", &[
        ("Last Seen", false, cell::last_seen), ("Type", false, |o, _| cell::text(&o["type"])), ("Reason", false, |o, _| cell::text(&o["reason"])),
        ("Object", false, cell::event_object), ("Message", false, cell::event_message), ("Name", true, cell::name),
    ]),
    ("mutatingwebhookconfigurations.admissionregistration.k8s.io", &[NAME, ("Webhooks", false, |o, _| o["webhooks"].as_array().map_or(0, Vec::len).into()), AGE]),
    ("customresourcedefinitions.apiextensions.k8s.io", &[NAME, ("Created At", false, |o, _| cell::text(&o["metadata"]["creationTimestamp"]))]),
];

fn of(resource: &Resource) -> &'static [Column] {
    let known = COLUMNS.iter().find(|(stored_as, _)| *stored_as == &*resource.stored_as);
    known.map_or(&[NAME, AGE], |(_, columns)| columns)
}

/// The heads of the columns.
pub(super) fn columns(resource: &Resource) -> Vec<Value> {
    let head = |name: &str, kind: &str, description: &str, priority: i64| {
        let format = if name == "Name" { "name" } else { "" };
        json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
    };
    if resource.columns.is_empty() {
        let columns = of(resource).iter();
        return columns.map(|(name, wide, _)| head(name, "string", name, i64::from(*wide))).collect();
    }
    let mut heads = vec![head("Name", "string", "Name", 0)];
    heads.extend(resource.columns.iter().map(|column| {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        head(text("name"), text("type"), text("description"), column["priority"].as_i64().unwrap_or_default())
    }));
    heads
}

/// The cells of one object.
pub(super) fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    if resource.columns.is_empty() {
        return of(resource).iter().map(|(_, _, cell)| cell(object, now)).collect();
    }
    let mut cells = vec![cell::name(object, now)];
    cells.extend(resource.columns.iter().map(|column| cell::declared(column, object, now)));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::builtins;

    #[test]
    fn every_resource_has_as_many_cells_as_columns() {
        for resource in builtins() {
            let cells = cells(&resource, &json!({"metadata": {"name": "a"}}), Timestamp::UNIX_EPOCH);
            assert_eq!(cells.len(), columns(&resource).len(), "{}", resource.plural);
        }
    }

    #[test]
    fn a_pod_reads_as_people_know_it() {
        let pod = json!({
            "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z"},
            "spec": {"containers": [{}, {}]},
            "status": {"phase": "Running", "containerStatuses": [{"ready": true, "restartCount": 2}, {"ready": false}]},
        });
        let pods = crate::table::builtin("", "pods");
        let now = "1970-01-01T00:03:05Z".parse().unwrap();
        assert_eq!(
            cells(&pods, &pod, now)[..5],
            [json!("a"), json!("1/2"), json!("Running"), json!(2), json!("3m5s")]
        );
    }
}
