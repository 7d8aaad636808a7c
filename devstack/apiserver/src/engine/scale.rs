//! The subresource `/scale`: the replicas of a workload as an object of kind `Scale`.

use serde_json::{Value, json};

use crate::object::{is_empty, list, map_mut, meta};
use crate::status::{Cause, Status};
use crate::table::{Resource, ScalePaths, Trait};

/// The Scale of an object.
pub(crate) fn of(paths: &ScalePaths, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut shown = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !is_empty(&metadata[field]) {
            shown[field] = metadata[field].clone();
        }
    }
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": shown,
        "spec": {"replicas": at(object, &paths.wanted).as_i64().unwrap_or_default()},
        "status": {"replicas": at(object, &paths.present).as_i64().unwrap_or_default()},
    });
    if !paths.selector.is_empty() {
        scale["status"]["selector"] = selector(at(object, &paths.selector)).into();
    }
    scale
}

/// The object with the replicas, and under the version, that a Scale asks for.
pub(crate) fn applied(resource: &Resource, object: &Value, scale: &Value) -> Result<Value, Status> {
    let replicas = &scale["spec"]["replicas"];
    let wanted = if replicas.is_null() { Some(0) } else { replicas.as_i64() };
    let wanted = wanted.ok_or_else(|| Status::bad_request("spec.replicas: must be a number"))?;
    if wanted < 0 {
        let name = meta(object, "name");
        return Err(if resource.has(Trait::Custom) {
            let field = format!(".{}", resource.scale.wanted);
            Status::invalid(
                resource,
                name,
                &[Cause::invalid(&field, replicas, "should be a non-negative integer")],
            )
        } else {
            let cause = Cause::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
            Status::invalid_kind("autoscaling", "Scale", name, &[cause])
        });
    }
    let mut object = object.clone();
    let mut place = &mut object;
    for step in resource.scale.wanted.split('.') {
        place = map_mut(place).entry(step).or_insert(Value::Null);
    }
    *place = wanted.into();
    object["metadata"]["resourceVersion"] = scale["metadata"]["resourceVersion"].clone();
    Ok(object)
}

fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, step| &value[step])
}

/// A label selector in the form of a query.
fn selector(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.into();
    }
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut parts: Vec<_> =
        labels.map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect();
    for expression in list(&selector["matchExpressions"]) {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<_> = list(&expression["values"]).iter().filter_map(Value::as_str).collect();
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
    use crate::table::builtin;

    #[test]
    fn a_scale_shows_and_changes_the_replicas_alone() {
        let deployments = builtin("apps", "deployments");
        let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"replicas": 2,
            "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "e", "operator": "Exists"}]}}});
        let mut scale = of(&deployments.scale, &object);
        assert_eq!(scale["status"]["selector"], "app=web,e");
        scale["spec"]["replicas"] = json!(5);
        let next = applied(&deployments, &object, &scale).unwrap();
        assert_eq!(next["spec"]["replicas"], 5);
        assert_eq!(next["metadata"]["labels"], json!({"x": "y"}));
        assert!(applied(&deployments, &object, &json!({"spec": {"replicas": -1}})).is_err());
    }

    #[test]
    fn a_custom_resource_says_where_its_replicas_are() {
        let mut widgets = Resource::clone(&builtin("apps", "deployments"));
        widgets.scale =
            ScalePaths { wanted: "spec.size".into(), present: "status.size".into(), selector: String::new() };
        let object = json!({"metadata": {"name": "a"}, "spec": {"size": 3}, "status": {"size": 1}});
        let scale = of(&widgets.scale, &object);
        assert_eq!((&scale["spec"]["replicas"], &scale["status"]), (&json!(3), &json!({"replicas": 1})));
        let next = applied(&widgets, &object, &json!({"spec": {"replicas": 4}})).unwrap();
        assert_eq!(next["spec"], json!({"size": 4}));
    }
}
