use serde_json::{Value, json};
use staffetta_driver::{ExistingLoadBalancer, ExistingMark, ExistingPublicIp, Owner};
use staffetta_network::lbaasspec::LbaasServiceSpec;

use super::world::*;
use crate::operate::migrate::read::ClusterState;

const TAKEN_OVER: &str = "Service web: mark load balancer lb1, mark floating IP f1, \
    write openstack.org/kuryr-lbaas-spec and openstack.org/kuryr-lbaas-state and staffetta.dev/lb, \
    remove kuryr.openstack.org/service-finalizer, remove kuryr.openstack.org/kuryrloadbalancer-finalizers";

fn service(metadata: Value) -> Value {
    let mut all = json!({ "namespace": "shop", "name": "web", "uid": "uid-web", "resourceVersion": "1" });
    extend(&mut all, metadata);
    json!({ "metadata": all, "spec": { "type": "LoadBalancer", "clusterIP": "10.96.0.7", "ports": [{ "port": 80 }] } })
}

/// The status of a `KuryrLoadBalancer`.
fn status() -> Value {
    json!({
        "loadbalancer": { "id": "lb1", "ip": "10.96.0.7", "name": "shop/web", "port_id": "port1", "project_id": "p",
            "provider": "amphora", "security_groups": [], "subnet_id": "services" },
        "listeners": [{ "id": "l1", "loadbalancer_id": "lb1", "name": "shop/web:TCP:80", "port": 80, "project_id": "p",
            "protocol": "TCP" }],
        "pools": [{ "id": "pool1", "listener_id": "l1", "loadbalancer_id": "lb1", "name": "shop/web:TCP:80",
            "project_id": "p", "protocol": "TCP" }],
        "members": [{ "id": "m1", "ip": "10.0.0.7", "name": "shop/web:8080", "pool_id": "pool1", "port": 8080,
            "project_id": "p", "subnet_id": "services" }],
        "service_pub_ip_info": { "ip_id": "f1", "ip_addr": "203.0.113.7", "alloc_method": "pool" },
    })
}

fn balancer() -> ExistingLoadBalancer {
    ExistingLoadBalancer {
        id: "lb1".into(),
        name: "shop/web".into(),
        project: "p".into(),
        vip: Some([10, 96, 0, 7].into()),
        subnet: Some("services".into()),
        port: Some("port1".into()),
        mark: ExistingMark::Unmarked,
    }
}

fn floating() -> ExistingPublicIp {
    let (ip, port) = ([203, 0, 113, 7].into(), Some("port1".into()));
    ExistingPublicIp { id: "f1".into(), ip, port, mark: ExistingMark::Unmarked }
}

/// A service with a `KuryrLoadBalancer` of this status.
fn of_last_release(status: &Value) -> ClusterState {
    let object = json!({ "apiVersion": "openstack.org/v1", "kind": "KuryrLoadBalancer",
        "metadata": { "namespace": "shop", "name": "web", "uid": "klb", "resourceVersion": "1",
            "finalizers": ["kuryr.openstack.org/kuryrloadbalancer-finalizers"],
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "uid-web" }] },
        "spec": { "ip": "10.96.0.7" }, "status": status });
    let mut state = with_service(service(json!({ "finalizers": ["kuryr.openstack.org/service-finalizer"] })));
    state.kuryr.load_balancers.insert(("shop".into(), "web".into()), serde_json::from_value(object).unwrap());
    state
}

fn with_service(service: Value) -> ClusterState {
    let spec = json!({ "versioned_object.name": "LBaaSServiceSpec", "versioned_object.namespace": "kuryr_kubernetes",
        "versioned_object.version": "1.0", "versioned_object.data": { "ip": "10.96.0.7", "ports": [],
            "project_id": "p", "security_groups_ids": [], "subnet_id": "services", "type": "LoadBalancer" } });
    let spec = LbaasServiceSpec::read(&spec.to_string()).unwrap();
    let mut state = cluster();
    state.services.push(serde_json::from_value(service).unwrap());
    state.specs.insert(("shop".into(), "web".into()), Ok(Some(spec)));
    state.load_balancers.push(balancer());
    state.public_ips.push(floating());
    state
}

fn refusal(state: &ClusterState) -> String {
    let planned = state.planned();
    let [line] = &planned[..] else { panic!("{planned:?}") };
    line.strip_prefix("Service web: refused: ").unwrap_or_else(|| panic!("{line}")).to_owned()
}

#[test]
fn a_service_with_a_kuryr_load_balancer_keeps_its_load_balancer_and_its_address() {
    assert_eq!(of_last_release(&status()).planned(), [TAKEN_OVER]);
}

#[test]
fn a_kuryr_load_balancer_needs_no_more_than_the_id_because_the_cloud_knows_the_rest() {
    let taken_over = TAKEN_OVER.replace(" and openstack.org/kuryr-lbaas-state", "");
    for part in ["project_id", "port_id", "ip", "name", "subnet_id"] {
        let mut partial = status();
        partial["loadbalancer"].as_object_mut().unwrap().remove(part);
        assert_eq!(of_last_release(&partial).planned(), [&*taken_over], "{part}");
    }
    let address = status()["service_pub_ip_info"].clone();
    let minimal = json!({ "loadbalancer": { "id": "lb1" }, "service_pub_ip_info": address });
    assert_eq!(of_last_release(&minimal).planned(), [&*taken_over]);
    let private = of_last_release(&json!({ "loadbalancer": { "id": "lb1" } }));
    assert_eq!(private.planned(), [taken_over.replace("mark floating IP f1, ", "")]);
    // The id is checked all the same, and the address too.
    let other = json!({ "loadbalancer": { "id": "lb2" } });
    assert!(refusal(&of_last_release(&other)).starts_with("load balancer lb2 does not exist"));
    let broken = json!({ "loadbalancer": { "id": "lb1" }, "service_pub_ip_info": { "ip_id": 1 } });
    assert!(refusal(&of_last_release(&broken)).starts_with("its KuryrLoadBalancer is malformed: "));
    let nameless = json!({ "loadbalancer": { "ip": "10.96.0.7" } });
    assert!(refusal(&of_last_release(&nameless)).starts_with("its KuryrLoadBalancer is malformed: "));
}

#[test]
fn the_state_of_the_first_releases_is_on_the_service_or_on_its_endpoints() {
    let text = staffetta_network::lb::annotation_of_status(&status()).unwrap();
    let taken_over =
        "Service web: mark load balancer lb1, mark floating IP f1, write openstack.org/kuryr-lbaas-spec";
    let annotated =
        with_service(service(json!({ "annotations": { "openstack.org/kuryr-lbaas-state": text } })));
    assert_eq!(annotated.planned(), [format!("{taken_over} and staffetta.dev/lb")]);
    let mut state = with_service(service(json!({})));
    state.states_on_endpoints.insert(("shop".into(), "web".into()), text);
    assert_eq!(
        state.planned(),
        [format!("{taken_over} and openstack.org/kuryr-lbaas-state and staffetta.dev/lb")]
    );
}

#[test]
fn what_is_done_is_not_planned_again() {
    let owned = ExistingMark::Owned(Owner { uid: "uid-web".into(), ..Owner::default() });
    let mut state = of_last_release(&status());
    state.load_balancers[0].mark = owned.clone();
    assert_eq!(state.planned(), [TAKEN_OVER.replace("mark load balancer lb1, ", "")]);
    state.public_ips[0].mark = owned;
    assert_eq!(state.planned(), [TAKEN_OVER.replace("mark load balancer lb1, mark floating IP f1, ", "")]);
    state.services[0] =
        serde_json::from_value(service(json!({ "finalizers": ["staffetta.dev/lb"] }))).unwrap();
    assert_eq!(state.planned(), ["Service web: remove kuryr.openstack.org/kuryrloadbalancer-finalizers"]);
    state.kuryr.load_balancers.get_mut(&("shop".into(), "web".into())).unwrap().metadata.finalizers = None;
    assert_eq!(state.planned(), [""; 0]);
}

#[test]
fn a_finalizer_of_ours_without_a_marked_load_balancer_releases_nothing_of_kuryr() {
    let mut state = of_last_release(&status());
    state.services[0] =
        serde_json::from_value(service(json!({ "finalizers": ["staffetta.dev/lb"] }))).unwrap();
    let planned = state.planned();
    assert!(planned[0].starts_with("Service web: mark load balancer lb1, "), "{planned:?}");
}

#[test]
fn a_load_balancer_that_our_controller_would_replace_is_refused() {
    type Change = fn(&mut ExistingLoadBalancer);
    let cases: [(&str, Change); 5] = [
        ("load balancer lb1 has the address 10.96.0.8, the service needs 10.96.0.7", |found| {
            found.vip = Some([10, 96, 0, 8].into());
        }),
        ("load balancer lb1 has the subnet other, the service needs services", |found| {
            found.subnet = Some("other".into());
        }),
        ("load balancer lb1 has the project q, the service needs p", |found| found.project = "q".into()),
        ("load balancer lb1 has the mark of another owner", |found| found.mark = ExistingMark::Foreign),
        ("load balancer lb1 does not exist in the projects of the configuration", |found| {
            found.id = "lb2".into();
        }),
    ];
    for (reason, change) in cases {
        let mut state = of_last_release(&status());
        change(&mut state.load_balancers[0]);
        assert_eq!(refusal(&state), reason);
    }
}

#[test]
fn a_floating_ip_that_leads_elsewhere_is_refused_and_one_of_the_user_stays_unmarked() {
    let mut state = of_last_release(&status());
    state.public_ips[0].port = Some("port2".into());
    assert_eq!(refusal(&state), "floating IP 203.0.113.7 is not that of load balancer lb1");
    let mut of_user = status();
    of_user["service_pub_ip_info"]["alloc_method"] = json!("user");
    let planned = of_last_release(&of_user).planned();
    assert_eq!(planned, [TAKEN_OVER.replace("mark floating IP f1, ", "")]);
}

#[test]
fn a_load_balancer_that_kuryr_could_not_record_any_more_is_found_by_name_and_address() {
    let expected = TAKEN_OVER.replace("mark floating IP f1, ", "");
    let expected = expected.replace(" and openstack.org/kuryr-lbaas-state", "");
    assert_eq!(of_last_release(&json!({})).planned(), [expected]);
    let mut none = of_last_release(&json!({}));
    none.load_balancers.clear();
    let released = "Service web: remove kuryr.openstack.org/service-finalizer, \
        remove kuryr.openstack.org/kuryrloadbalancer-finalizers";
    assert_eq!(none.planned(), [released]);
}

#[test]
fn a_service_that_nothing_of_ours_would_serve_is_refused() {
    let mut state = of_last_release(&status());
    state.handlers.remove("lb");
    assert_eq!(refusal(&state), "the handlers `lb` and `lbaasspec` are not enabled");
    let mut state = of_last_release(&status());
    state.specs.insert(("shop".into(), "web".into()), Err("there is no subnet".into()));
    assert_eq!(refusal(&state), "there is no subnet");
    let mut state = of_last_release(&status());
    state.services[0].metadata.uid = Some("uid-later".into());
    assert_eq!(refusal(&state), "its KuryrLoadBalancer is that of an earlier service with the same name");
    let mut state = of_last_release(&status());
    state.services.clear();
    let planned = state.planned();
    assert!(
        planned[0].starts_with("KuryrLoadBalancer web: refused: its service does not exist"),
        "{planned:?}"
    );
}

#[test]
fn services_of_our_controller_are_not_in_the_plan() {
    let state = with_service(service(json!({ "finalizers": ["staffetta.dev/lb"],
        "annotations": { "openstack.org/kuryr-lbaas-state": "{}" } })));
    assert_eq!(state.planned(), [""; 0]);
    assert_eq!(with_service(service(json!({}))).planned(), [""; 0]);
}
