//! Services: addresses and types.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::{MERGE, Place};

async fn service(place: &Place, name: &str, spec: Value) -> Value {
    place
        .post(&place.core("services"), &json!({"metadata": {"name": name}, "spec": spec}))
        .await
        .expect(201, name)
}

pub(crate) async fn a_service_gets_and_keeps_its_address(place: Arc<Place>) {
    let place = &*place;
    let first = service(place, "a", json!({"ports": [{"port": 80}]})).await;
    let second = service(place, "b", json!({"ports": [{"port": 80}]})).await;
    let spec = &first["spec"];
    assert!(spec["clusterIP"].as_str().unwrap().starts_with("10."), "{spec}");
    assert_ne!(spec["clusterIP"], second["spec"]["clusterIP"]);
    assert_eq!(spec["clusterIPs"][0], spec["clusterIP"]);
    assert_eq!(spec["ports"], json!([{"port": 80, "protocol": "TCP", "targetPort": 80}]));
    for (field, wanted) in [
        ("type", "ClusterIP"),
        ("sessionAffinity", "None"),
        ("internalTrafficPolicy", "Cluster"),
        ("ipFamilyPolicy", "SingleStack"),
    ] {
        assert_eq!(spec[field], wanted, "{field}");
    }
    assert_eq!(first["status"], json!({"loadBalancer": {}}));
    let moved = json!({"spec": {"clusterIP": "10.96.200.200", "clusterIPs": ["10.96.200.200"]}});
    let refused = place.patch(&place.core("services/a"), MERGE, &moved).await;
    refused.refused(422, "Invalid", &["spec.clusterIPs[0]"], "another address");
    let mut without = first.clone();
    for field in ["clusterIP", "clusterIPs"] {
        without["spec"].as_object_mut().unwrap().remove(field);
    }
    let kept =
        place.put(&place.core("services/a"), &without).await.expect(200, "replace without the address");
    assert_eq!(kept["spec"]["clusterIP"], spec["clusterIP"]);
    let headless = service(place, "headless", json!({"clusterIP": "None"})).await;
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let external = service(place, "external", json!({"type": "ExternalName", "externalName": "a.b"})).await;
    assert_eq!(external["spec"].get("clusterIP"), None);
}

pub(crate) async fn a_change_of_type_takes_what_belonged_to_it(place: Arc<Place>) {
    let place = &*place;
    service(place, "a", json!({"ports": [{"port": 80}]})).await;
    let path = place.core("services/a");
    let typed = async |kind: &str| {
        let patch =
            json!({"spec": {"type": kind, "externalName": (kind == "ExternalName").then_some("a.b")}});
        place.patch(&path, MERGE, &patch).await.expect(200, kind)["spec"].clone()
    };
    let balanced = typed("LoadBalancer").await;
    assert!(balanced["ports"][0]["nodePort"].is_u64(), "{balanced}");
    assert_eq!(
        (&balanced["allocateLoadBalancerNodePorts"], &balanced["externalTrafficPolicy"]),
        (&json!(true), &json!("Cluster"))
    );
    let node_port = typed("NodePort").await;
    assert_eq!(node_port["ports"], balanced["ports"]);
    assert_eq!(node_port.get("allocateLoadBalancerNodePorts"), None);
    let plain = typed("ClusterIP").await;
    assert_eq!((plain["ports"][0].get("nodePort"), plain.get("externalTrafficPolicy")), (None, None));
    let external = typed("ExternalName").await;
    assert_eq!((external.get("clusterIP"), external.get("ipFamilies")), (None, None));
}

pub(crate) async fn what_a_service_lacks_is_named(place: Arc<Place>) {
    let place = &*place;
    for (spec, fields) in [
        (json!({}), &["spec.ports"][..]),
        (json!({"type": "ExternalName"}), &["spec.externalName"]),
        (json!({"ports": [{"port": 1}, {"port": 2}]}), &["spec.ports[0].name", "spec.ports[1].name"]),
        (json!({"type": "Strange", "ports": [{"port": 1}]}), &["spec.type"]),
    ] {
        let refused =
            place.post(&place.core("services"), &json!({"metadata": {"name": "a"}, "spec": spec})).await;
        refused.refused(422, "Invalid", fields, &spec.to_string());
    }
    let path = format!("/apis/apps/v1/namespaces/{}/deployments", place.namespace);
    let mismatch = json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "c"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let refused = place.post(&path, &mismatch).await;
    refused.refused(422, "Invalid", &["spec.template.metadata.labels"], "labels that nobody selects");
}
