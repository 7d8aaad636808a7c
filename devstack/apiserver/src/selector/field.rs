//! Field selectors: `metadata.name=x,status.phase!=Running`, for the fields that a real server indexes.

use serde_json::Value;

use crate::object::meta;
use crate::status::Status;
use crate::table::Resource;

#[derive(Clone, Debug)]
pub(super) struct Requirement {
    field: String,
    value: String,
    equal: bool,
}

impl Requirement {
    pub(super) fn holds(&self, object: &Value) -> bool {
        (read(object, &self.field) == self.value) == self.equal
    }
}

/// The fields of each resource besides `metadata.name` and `metadata.namespace`.
const FIELDS: &[(&str, &[&str])] = &[
    (
        "pods",
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
    ),
    ("nodes", &["spec.unschedulable"]),
    ("namespaces", &["status.phase"]),
    ("services", &["spec.clusterIP", "spec.type"]),
    ("secrets", &["type"]),
    ("replicasets.apps", &["status.replicas"]),
    (
        "events",
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
    ),
];

/// Fields whose absence reads as a value.
const WHEN_ABSENT: &[(&str, &str)] =
    &[("spec.unschedulable", "false"), ("spec.hostNetwork", "false"), ("status.replicas", "0")];

pub(super) fn parse(resource: &Resource, selector: &str) -> Result<Vec<Requirement>, Status> {
    let known =
        FIELDS.iter().find(|(of, _)| *of == &*resource.stored_as).map_or(&[][..], |(_, known)| *known);
    let parts = selector.split(',').filter(|part| !part.trim().is_empty());
    parts
        .map(|part| {
            let requirement = requirement(resource, part.trim())?;
            let field = requirement.field.as_str();
            if ["metadata.name", "metadata.namespace"].contains(&field) || known.contains(&field) {
                return Ok(requirement);
            }
            Err(Status::bad_request(format!("field label not supported: {field}")))
        })
        .collect()
}

fn requirement(resource: &Resource, part: &str) -> Result<Requirement, Status> {
    let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
        (field, value, false)
    } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (field, value, true)
    } else {
        return Err(Status::bad_request(format!("invalid selector: '{part}'; can't understand '{part}'")));
    };
    let field = match field.trim() {
        of_event if resource.group == "events.k8s.io" => {
            of_event.replacen("regarding.", "involvedObject.", 1)
        }
        field => field.to_owned(),
    };
    Ok(Requirement { field, value: value.trim().into(), equal })
}

fn read(object: &Value, field: &str) -> String {
    if field == "source" {
        let component = object["source"]["component"].as_str().filter(|component| !component.is_empty());
        return component.or(object["reportingComponent"].as_str()).unwrap_or_default().into();
    }
    if let Some(field) = field.strip_prefix("metadata.") {
        return meta(object, field).into();
    }
    let value = field.split('.').fold(object, |value, step| &value[step]);
    match value {
        Value::Null => {
            let absent = WHEN_ABSENT.iter().find(|(of, _)| *of == field);
            absent.map_or_else(String::new, |(_, reads)| (*reads).into())
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::builtin;
    use serde_json::json;

    fn selects(plural: &str, selector: &str, object: &Value) -> bool {
        parse(&builtin("", plural), selector).unwrap().iter().all(|requirement| requirement.holds(object))
    }

    #[test]
    fn absent_fields_read_as_their_zero() {
        assert!(selects("pods", "spec.nodeName=", &json!({})));
        assert!(selects(
            "pods",
            "status.phase!=Running,metadata.name=a",
            &json!({"metadata": {"name": "a"}})
        ));
        assert!(selects("nodes", "spec.unschedulable=false", &json!({})));
        assert!(!selects("nodes", "spec.unschedulable==true", &json!({})));
    }

    #[test]
    fn a_field_nobody_indexes_is_refused_by_name() {
        let refused = parse(&builtin("", "pods"), "spec.color=red").unwrap_err();
        assert_eq!(refused.json()["message"], "field label not supported: spec.color");
        assert_eq!(refused.code(), 400);
    }

    #[test]
    fn both_kinds_of_events_are_selected_by_what_they_are_about() {
        let event = json!({"involvedObject": {"name": "a"}});
        assert!(selects("events", "involvedObject.name=a", &event));
        let newer = parse(&builtin("events.k8s.io", "events"), "regarding.name=a").unwrap();
        assert!(newer[0].holds(&event));
    }
}
