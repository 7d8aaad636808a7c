use super::*;
use serde_json::json;

fn merged(kind: &str, object: &Value, patch: &Value) -> Value {
    merge(kind, object, patch).unwrap()
}

#[test]
fn containers_are_matched_by_name() {
    let object = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}});
    let patch = json!({"spec": {"containers": [{"name": "a", "image": "2"}]}});
    let wanted = json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "b"}]}});
    assert_eq!(merged("Pod", &object, &patch), wanted);
}

#[test]
fn a_new_element_goes_before_those_it_does_not_name() {
    let object = json!({"metadata": {"finalizers": ["a/x"]}});
    let patch = json!({"metadata": {"finalizers": ["b/y"]}});
    assert_eq!(merged("Pod", &object, &patch), json!({"metadata": {"finalizers": ["b/y", "a/x"]}}));
}

#[test]
fn a_finalizer_that_stands_is_not_added_twice() {
    let object = json!({"metadata": {"finalizers": ["a/x", "b/y"]}});
    let patch = json!({"metadata": {"finalizers": ["b/y"]}});
    assert_eq!(merged("Pod", &object, &patch), object);
}

#[test]
fn delete_from_primitive_list_removes_only_what_it_names() {
    let object = json!({"metadata": {"finalizers": ["a/x", "b/y"]}});
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x", "not/there"]}});
    assert_eq!(merged("Pod", &object, &patch), json!({"metadata": {"finalizers": ["b/y"]}}));
    let all = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/x", "b/y"]}});
    assert_eq!(merged("Pod", &object, &all), json!({"metadata": {}}));
    assert_eq!(merged("Pod", &json!({"metadata": {}}), &all), json!({"metadata": {}}));
}

#[test]
fn elements_and_maps_can_be_deleted_and_replaced() {
    let object = json!({"spec": {"ports": [{"port": 80}, {"port": 443}], "selector": {"a": "b"}}});
    let deleted = json!({"spec": {"ports": [{"port": 80, "$patch": "delete"}]}});
    assert_eq!(merged("Service", &object, &deleted)["spec"]["ports"], json!([{"port": 443}]));
    let replaced = json!({"spec": {"ports": [{"port": 1}, {"$patch": "replace"}]}});
    assert_eq!(merged("Service", &object, &replaced)["spec"]["ports"], json!([{"port": 1}]));
    let map = json!({"spec": {"selector": {"$patch": "replace", "c": "d"}}});
    assert_eq!(merged("Service", &object, &map)["spec"]["selector"], json!({"c": "d"}));
    let gone = json!({"spec": {"selector": {"$patch": "delete"}}});
    assert_eq!(merged("Service", &object, &gone)["spec"].get("selector"), None);
}

#[test]
fn element_order_is_obeyed_and_strangers_keep_their_place() {
    let object = json!({"spec": {"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]}});
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
        "containers": [{"name": "b", "image": "2"}],
    }});
    let containers = &merged("Pod", &object, &patch)["spec"]["containers"];
    assert_eq!(*containers, json!([{"name": "x"}, {"name": "b", "image": "2"}, {"name": "a"}]));
}

#[test]
fn retain_keys_drops_what_it_does_not_name() {
    let object = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(merged("Deployment", &object, &patch)["spec"]["strategy"], json!({"type": "Recreate"}));
}

#[test]
fn lists_without_a_key_are_replaced() {
    let object = json!({"endpoints": [{"addresses": ["a"]}], "spec": {"tolerations": [{"key": "a"}]}});
    assert_eq!(
        merged("EndpointSlice", &object, &json!({"endpoints": [{"addresses": ["b"]}]}))["endpoints"],
        json!([{"addresses": ["b"]}])
    );
    assert_eq!(
        merged("Pod", &object, &json!({"spec": {"tolerations": [{"key": "b"}]}}))["spec"]["tolerations"],
        json!([{"key": "b"}])
    );
}

#[test]
fn mistakes_name_the_place() {
    let unknown = merge("Pod", &json!({}), &json!({"spec": {"$patch": "melt"}})).unwrap_err();
    assert_eq!(unknown, Error::UnknownDirective { path: "spec".into(), directive: "melt".into() });
    let keyless = merge("Pod", &json!({}), &json!({"spec": {"containers": [{"image": "1"}]}})).unwrap_err();
    assert_eq!(keyless, Error::NoMergeKey { path: "spec.containers".into(), key: "name" });
}
