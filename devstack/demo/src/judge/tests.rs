use serde_json::{Value, json};

use super::testing::{deployment, object, pod, service, slice, vif_annotation};
use super::*;

fn well() -> Objects {
    Objects {
        deployments: vec![object(deployment(1))],
        pods: vec![object(pod("web-1", "10.1.0.4"))],
        services: vec![object(service("10.1.0.4"))],
        slices: vec![object(slice("10.1.0.4", true))],
    }
}

/// The only objection to a world whose pod is `pod`.
fn objection_to_pod(pod: Value) -> String {
    let objects = Objects { pods: vec![object(pod)], ..well() };
    let mut reasons = reasons(&objects);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    reasons.remove(0)
}

fn objection_to_service(service: Value) -> String {
    let objects = Objects { services: vec![object(service)], ..well() };
    reasons(&objects).join("; ")
}

fn changed(mut object: Value, pointer: &str, value: Value) -> Value {
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

const VIF: &str = "/metadata/annotations/openstack.org~1kuryr-vif";

#[test]
fn there_is_no_objection_when_all_is_well() {
    assert_eq!(reasons(&well()), Vec::<String>::new());
    assert_eq!(reasons(&Objects::default()), Vec::<String>::new());
}

#[test]
fn a_pod_needs_an_active_vif_with_its_own_address_and_must_run() {
    let pod = || pod("web-1", "10.1.0.4");
    let with_vif = |text: String| objection_to_pod(changed(pod(), VIF, json!(text)));
    assert!(with_vif("{}".into()).ends_with("has no VIF"));
    assert!(with_vif(vif_annotation(false, "10.1.0.4")).ends_with("not active"));
    assert!(with_vif(vif_annotation(true, "192.168.0.4")).contains("not in its subnet"));
    assert!(with_vif(vif_annotation(true, "10.1.0.5")).contains("another address"));
    assert!(objection_to_pod(changed(pod(), "/status/phase", json!("Pending"))).contains("does not run"));
    assert!(objection_to_pod(changed(pod(), "/spec/nodeName", json!(null))).ends_with("has no node"));
    let in_host_network =
        changed(pod(), "/spec", json!({ "nodeName": "n", "hostNetwork": true, "containers": [] }));
    assert!(objection_to_pod(in_host_network).contains("though it lives in its node's network"));
}

#[test]
fn a_pod_on_windows_needs_an_address_of_an_interface_and_runs_with_it() {
    const ADDRESS: &str = "/metadata/annotations/vpc.amazonaws.com~1PrivateIPv4Address";
    let pod = || {
        let mut pod = pod("web-1", "10.1.0.4");
        pod["metadata"]["annotations"] = json!({ "vpc.amazonaws.com/PrivateIPv4Address": "10.1.0.4/32" });
        pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/os": "windows" });
        pod
    };
    assert!(objection_to_pod(changed(pod(), ADDRESS, json!("x"))).ends_with("has no address of its node"));
    assert!(objection_to_pod(changed(pod(), ADDRESS, json!("10.1.0.5/32"))).contains("another address"));
    assert!(objection_to_pod(changed(pod(), "/status/phase", json!("Pending"))).contains("does not run"));
    let objects = Objects { pods: vec![object(pod())], ..well() };
    assert_eq!(not_addressed(&objects, &["10.1.0.0/28".parse().unwrap()].into()), Vec::<String>::new());
    let reasons = not_addressed(&objects, &BTreeSet::new());
    assert_eq!(reasons, ["the pod shop/web-1 has 10.1.0.4, which no interface of a node has"]);
}

#[test]
fn no_two_pods_share_an_address() {
    let pods = vec![object(pod("web-1", "10.1.0.4")), object(pod("web-2", "10.1.0.4"))];
    let reasons = reasons(&Objects { pods, ..well() });
    assert_eq!(reasons, ["the address 10.1.0.4 belongs to shop/web-1 and shop/web-2"]);
}

#[test]
fn a_service_needs_a_load_balancer_with_the_ready_endpoints_and_its_public_address() {
    let service = || service("10.1.0.4");
    let without = |annotation: &str| {
        let mut service = service();
        service["metadata"]["annotations"].as_object_mut().unwrap().remove(annotation);
        objection_to_service(service)
    };
    assert!(without("openstack.org/kuryr-lbaas-spec").contains("no description"));
    assert!(without("openstack.org/kuryr-lbaas-state").contains("no load balancer"));
    assert!(objection_to_service(self::service("10.1.0.5")).contains("not the same ones"));
    assert!(objection_to_service(changed(service(), "/status", json!({}))).contains("public address"));
    assert!(
        objection_to_service(changed(service(), "/spec/clusterIP", json!("10.96.0.1")))
            .contains("its own address")
    );
    let port = json!([{ "port": 443, "targetPort": 8080 }]);
    assert!(objection_to_service(changed(service(), "/spec/ports", port)).contains("has the ports"));
    let unready = Objects { slices: vec![object(slice("10.1.0.4", false))], ..well() };
    assert!(reasons(&unready).concat().contains("0 ready endpoints and 1 members"));
    let headless = changed(without_annotations(service()), "/spec/clusterIP", json!("None"));
    assert_eq!(objection_to_service(headless), "");
}

fn without_annotations(service: Value) -> Value {
    changed(service, "/metadata/annotations", json!({}))
}

#[test]
fn a_deployment_needs_all_its_pods_new_and_available() {
    for (pointer, value) in [
        ("/status/availableReplicas", 0),
        ("/status/updatedReplicas", 0),
        ("/status/replicas", 2),
        ("/status/observedGeneration", 1),
    ] {
        let deployment = object(changed(deployment(1), pointer, json!(value)));
        let reasons = reasons(&Objects { deployments: vec![deployment], ..well() });
        assert!(
            matches!(&reasons[..], [reason] if reason.contains("the deployment shop/web")),
            "{reasons:?}"
        );
    }
}

#[test]
fn what_hangs_on_a_finalizer_is_named_with_it() {
    let mut pod = pod("web-1", "10.1.0.4");
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod["metadata"]["finalizers"] = json!(["staffetta.dev/vif"]);
    assert_eq!(objection_to_pod(pod), "the pod shop/web-1 is to be deleted and waits for staffetta.dev/vif");
}

#[test]
fn a_subnet_is_full_when_as_many_pods_run_as_it_has_addresses_and_the_others_wait() {
    let waiting = || changed(pod("web-2", "10.1.0.5"), "/metadata/annotations", json!({}));
    let full = |replicas| Objects {
        deployments: vec![object(deployment(replicas))],
        pods: vec![object(pod("web-1", "10.1.0.4")), object(waiting())],
        ..Objects::default()
    };
    assert_eq!(not_full(&full(2), "shop", 1), Vec::<String>::new());
    assert_eq!(not_full(&full(3), "shop", 1).len(), 1, "a third pod is neither here nor there");
    assert_eq!(not_full(&full(2), "shop", 2).len(), 1);
    assert_eq!(not_full(&full(2), "edge", 1).len(), 1);
}

#[test]
fn a_roll_ends_when_no_pod_has_the_old_image() {
    assert_eq!(not_rolled(&well(), "shop/web", "web:1"), Vec::<String>::new());
    assert_eq!(not_rolled(&well(), "shop/web", "web:2").len(), 1);
}

#[test]
fn what_was_deleted_is_gone_with_its_pods() {
    assert_eq!(not_deleted(&well(), "shop/reports"), Vec::<String>::new());
    assert_eq!(not_deleted(&well(), "shop/web").len(), 3);
}

#[test]
fn what_was_left_behind_or_is_missing_in_the_other_world_is_named() {
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let elsewhere = Elsewhere {
        ports: set(&["port-10.1.0.4"]),
        load_balancers: set(&["shop/web"]),
        public_ips: set(&["shop/web"]),
    };
    assert_eq!(leaks(&well(), &elsewhere), Vec::<String>::new());
    let leaking =
        Elsewhere { ports: set(&["port-10.1.0.4", "port-x"]), load_balancers: set(&[]), ..elsewhere };
    let expected = [
        "the port port-x exists and no pod has it",
        "the load balancer of shop/web does not exist and a service has it",
    ];
    assert_eq!(leaks(&well(), &leaking), expected);
}
