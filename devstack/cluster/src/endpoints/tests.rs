use serde_json::{Value, json};

use super::*;
use crate::call::{Call, Verb};
use crate::testing::{object, shared};

fn service(spec: &Value) -> Arc<Service> {
    let mut service = json!({
        "metadata": { "namespace": "shop", "name": "web", "uid": "s", "labels": { "tier": "front" } },
        "spec": { "selector": { "app": "web" }, "ports": [{ "name": "http", "port": 80, "targetPort": "http" }] },
    });
    service["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    shared(service)
}

fn pod(name: &str, ip: &str, ready: bool, container_port: u16) -> Arc<Pod> {
    shared(json!({
        "metadata": { "namespace": "shop", "name": name, "uid": name, "labels": { "app": "web" } },
        "spec": { "nodeName": "n1", "containers": [
            { "name": "web", "ports": [{ "name": "http", "containerPort": container_port }] }] },
        "status": { "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }, { "ip": "fd00::1" }],
            "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] },
    }))
}

fn body(call: &Call) -> &Value {
    match &call.verb {
        Verb::Create(body) | Verb::Replace(body) => body,
        other => panic!("{other:?}"),
    }
}

fn made(plan: &Plan, kind: &str) -> Vec<Value> {
    plan.calls.iter().filter(|call| call.resource.kind == kind).map(|call| body(call).clone()).collect()
}

#[test]
fn ready_and_unready_pods_stand_in_both_forms() {
    let pods = [pod("a", "10.1.0.1", true, 8080), pod("b", "10.1.0.2", false, 8080)];
    let plan = plan(&[service(&json!({}))], &pods, &[], &[]);
    let [slice] = &made(&plan, "EndpointSlice")[..] else { panic!("{plan:?}") };
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "web");
    assert_eq!(slice["metadata"]["labels"]["tier"], "front");
    assert_eq!(slice["ports"][0]["port"], 8080);
    let ready: Vec<_> =
        slice["endpoints"].as_array().unwrap().iter().map(|found| &found["conditions"]["ready"]).collect();
    assert_eq!(ready, [true, false]);
    let [endpoints] = &made(&plan, "Endpoints")[..] else { panic!("{plan:?}") };
    assert_eq!(endpoints["subsets"][0]["addresses"][0]["targetRef"]["name"], "a");
    assert_eq!(endpoints["subsets"][0]["notReadyAddresses"][0]["ip"], "10.1.0.2");
}

#[test]
fn what_stands_there_already_is_not_written_again() {
    let (services, pods) = ([service(&json!({}))], [pod("a", "10.1.0.1", true, 8080)]);
    let first = plan(&services, &pods, &[], &[]);
    let slices: Vec<_> = made(&first, "EndpointSlice").into_iter().map(shared).collect();
    let endpoints: Vec<_> = made(&first, "Endpoints").into_iter().map(shared).collect();
    assert_eq!(plan(&services, &pods, &slices, &endpoints).calls, []);
    let gone = plan(&services, &[], &slices, &endpoints);
    assert!(gone.calls.iter().any(|call| matches!(call.verb, Verb::Replace(_))), "{gone:?}");
}

#[test]
fn pods_whose_named_ports_differ_stand_in_slices_of_their_own() {
    let pods = [pod("a", "10.1.0.1", true, 8080), pod("b", "10.1.0.2", true, 9090)];
    let plan = plan(&[service(&json!({}))], &pods, &[], &[]);
    assert_eq!(made(&plan, "EndpointSlice").len(), 2);
    assert_eq!(made(&plan, "Endpoints")[0]["subsets"].as_array().unwrap().len(), 2);
}

#[test]
fn each_family_of_the_service_has_a_slice() {
    let pods = [pod("a", "10.1.0.1", true, 8080)];
    let plan = plan(&[service(&json!({ "ipFamilies": ["IPv4", "IPv6"] }))], &pods, &[], &[]);
    let types: Vec<_> =
        made(&plan, "EndpointSlice").iter().map(|slice| slice["addressType"].clone()).collect();
    assert!(
        types.len() == 2 && types.contains(&json!("IPv4")) && types.contains(&json!("IPv6")),
        "{types:?}"
    );
}

#[test]
fn a_pod_that_is_to_go_takes_no_connections() {
    let mut going = pod("a", "10.1.0.1", true, 8080);
    Arc::make_mut(&mut going).metadata.deletion_timestamp = object(json!("2026-01-01T00:00:00Z"));
    let slice = &made(&plan(&[service(&json!({}))], &[going], &[], &[]), "EndpointSlice")[0];
    assert_eq!(
        slice["endpoints"][0]["conditions"],
        json!({ "ready": false, "serving": true, "terminating": true })
    );
}

#[test]
fn services_without_selector_and_of_type_external_name_are_left_alone() {
    let services = [service(&json!({ "selector": null })), service(&json!({ "type": "ExternalName" }))];
    assert_eq!(plan(&services, &[pod("a", "10.1.0.1", true, 8080)], &[], &[]).calls, []);
}

#[test]
fn a_slice_holds_a_hundred_endpoints() {
    let pods: Vec<_> =
        (0..150).map(|number| pod(&format!("p{number}"), &format!("10.1.0.{number}"), true, 80)).collect();
    let plan = plan(&[service(&json!({}))], &pods, &[], &[]);
    let mut sizes: Vec<_> = made(&plan, "EndpointSlice")
        .iter()
        .map(|slice| slice["endpoints"].as_array().unwrap().len())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [50, 100]);
}
