//! `/scale`: the replicas of a workload as an object of their own.

use serde_json::{Value, json};

use crate::object::is_empty;

/// The Scale of an object.
pub(crate) fn of(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut shown = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !is_empty(&metadata[field]) {
            shown[field] = metadata[field].clone();
        }
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown,
        "spec": {"replicas": object["spec"]["replicas"].as_i64().unwrap_or_default()},
        "status": {
            "replicas": object["status"]["replicas"].as_i64().unwrap_or_default(),
            "selector": selector(&object["spec"]["selector"]),
        },
    })
}

/// The object with the replicas, and under the version, that a Scale asks for.
pub(crate) fn applied(object: &Value, scale: &Value) -> Result<Value, String> {
    let replicas = &scale["spec"]["replicas"];
    let wanted = if replicas.is_null() { 0 } else { replicas.as_i64().ok_or("spec.replicas: must be a number")? };
    if wanted < 0 {
        return Err("spec.replicas: must be greater than or equal to 0".into());
    }
    let mut object = object.clone();
    object["spec"]["replicas"] = wanted.into();
    object["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"].clone();
    Ok(object)
}

/// A label selector in the form of a query.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut parts: Vec<_> =
        labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    for expression in crate::object::list(&selector["matchExpressions"]) {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<_> =
            crate::object::list(&expression["values"]).iter().filter_map(Value::as_str).collect();
        parts.push(match expression["operator"].as_str().unwrap_or_default() {
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            _ => format!("{key} in ({})", values.join(",")),
        });
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_shows_and_changes_the_replicas_alone() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"replicas": 2,
            "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "e", "operator": "Exists"}]}}});
        let mut scale = of(&object);
        assert_eq!(scale["status"]["selector"], "app=web,e");
        scale["spec"]["replicas"] = json!(5);
        let next = applied(&object, &scale).unwrap();
        assert_eq!(next["spec"]["replicas"], 5);
        assert_eq!(next["metadata"]["labels"], json!({"x": "y"}));
        assert!(applied(&object, &json!({"spec": {"replicas": -1}})).is_err());
    }
}
