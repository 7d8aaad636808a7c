use super::*;
use serde_json::json;

fn filled(kind: &str, object: &Value) -> Value {
    let mut once = object.clone();
    fill(kind, &mut once);
    let mut twice = once.clone();
    fill(kind, &mut twice);
    assert_eq!(once, twice, "filling in twice changes nothing");
    once
}

#[test]
fn a_pod_gets_what_a_kubelet_relies_on() {
    let pod = filled(
        "Pod",
        &json!({"spec": {"containers": [
            {"name": "a", "image": "reg:5000/a", "ports": [{"containerPort": 80}]},
            {"name": "b", "image": "b:1"},
        ]}}),
    );
    assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(pod["spec"]["containers"][1]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(pod["spec"]["containers"][0]["ports"][0]["protocol"], "TCP");
}

#[test]
fn the_quality_of_service_follows_from_the_resources() {
    let quality = |resources: Value| {
        let pod = filled("Pod", &json!({"spec": {"containers": [{"name": "a", "resources": resources}]}}));
        initial_status("Pod", &pod).unwrap()["qosClass"].clone()
    };
    assert_eq!(quality(json!({})), "BestEffort");
    assert_eq!(quality(json!({"requests": {"cpu": "1"}})), "Burstable");
    assert_eq!(quality(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), "Guaranteed");
}

#[test]
fn a_deployment_and_its_template_are_filled_in() {
    let deployment = filled("Deployment", &json!({"spec": {"template": {"spec": {"containers": []}}}}));
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"], "25%");
    assert_eq!(deployment["spec"]["template"]["spec"]["restartPolicy"], "Always");
    let recreate = filled("Deployment", &json!({"spec": {"strategy": {"type": "Recreate"}}}));
    assert_eq!(recreate["spec"]["strategy"].get("rollingUpdate"), None);
}

#[test]
fn a_service_gets_an_address_that_no_other_has() {
    let service = filled("Service", &json!({"spec": {"ports": [{"port": 80}]}}));
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 80);
    let mut first = service.clone();
    allocate_addresses(&mut first, &[]).unwrap();
    let mut second = service;
    allocate_addresses(&mut second, &[std::sync::Arc::new(first.clone())]).unwrap();
    assert_eq!(first["spec"]["clusterIP"], "10.96.0.16");
    assert_eq!(second["spec"]["clusterIP"], "10.96.0.17");
}

#[test]
fn headless_and_external_services_get_none() {
    let mut headless = filled("Service", &json!({"spec": {"clusterIP": "None"}}));
    allocate_addresses(&mut headless, &[]).unwrap();
    assert_eq!(headless["spec"]["clusterIPs"], json!(["None"]));
    let mut external = filled("Service", &json!({"spec": {"type": "ExternalName", "externalName": "a.b"}}));
    allocate_addresses(&mut external, &[]).unwrap();
    assert_eq!(external["spec"].get("clusterIP"), None);
}

#[test]
fn a_load_balancer_gets_a_node_port_for_each_port() {
    let mut service = filled(
        "Service",
        &json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30_000}, {"port": 81}]}}),
    );
    allocate_addresses(&mut service, &[]).unwrap();
    assert_eq!(service["spec"]["ports"][1]["nodePort"], 30_001);
}

#[test]
fn string_data_becomes_data() {
    let secret = filled("Secret", &json!({"stringData": {"a": "b"}}));
    assert_eq!(secret["data"]["a"], "Yg==");
    assert_eq!(secret.get("stringData"), None);
}
