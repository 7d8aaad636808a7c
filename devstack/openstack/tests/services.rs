//! The real services are as the other tests take them to be.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;
use staffetta_real_openstack::{Fault, Match, RealOpenStack, Service, Tenant};

/// The time limit of a test step. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(60);

async fn until_active(tenant: &Tenant, port: &str) {
    let active = async {
        while !tenant.port(port).await.unwrap().active() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, active).await.expect("the port is active in time");
}

#[tokio::test]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_bound_port_is_down_until_its_agent_reports_it_on_a_real_openstack() {
    let stack = RealOpenStack::shared().await;
    let tenant = stack.tenant().await;
    let subnet = tenant.subnet("10.0.0.0/24").await;
    let node = tenant.node("slow", None).await;
    let port = tenant.create_port(&subnet, json!({ "binding:host_id": node, "tags": ["a"] })).await;
    assert_eq!((port.status.as_str(), port.vif_type.as_str()), ("DOWN", "ovs"));
    assert_eq!(port.tags, ["a"]);
    assert!(stack.agents().up(&port.id).await);
    assert!(tenant.port(&port.id).await.unwrap().active());
    assert!(stack.agents().down(&port.id).await);
    assert!(!tenant.port(&port.id).await.unwrap().active());

    let unbound = tenant.create_port(&subnet, json!({})).await;
    assert_eq!(unbound.vif_type, "unbound");
    assert!(!stack.agents().up(&unbound.id).await);
    let unknown = json!({ "binding:host_id": tenant.node_name("unknown") });
    assert_eq!(tenant.create_port(&subnet, unknown).await.vif_type, "binding_failed");
}

#[tokio::test]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn an_agent_with_a_delay_reports_ports_and_subports_by_itself_on_a_real_openstack() {
    let stack = RealOpenStack::shared().await;
    let tenant = stack.tenant().await;
    let subnet = tenant.subnet("10.0.0.0/24").await;
    let node = tenant.node("fast", Some(Duration::from_millis(100))).await;
    let port = tenant.create_port(&subnet, json!({ "binding:host_id": node })).await;
    until_active(&tenant, &port.id).await;

    let trunk = tenant.trunk(&node, &subnet).await;
    until_active(&tenant, &trunk.port).await;
    tenant.add_subport(&trunk, &subnet, 7).await;
    let subports = tenant.subports(&trunk).await;
    assert_eq!(subports.len(), 1);
    assert_eq!(subports[0].0, 7);
    until_active(&tenant, &subports[0].1).await;
    assert_eq!(tenant.port(&subports[0].1).await.unwrap().host, node);
}

#[tokio::test]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn tenants_do_not_see_each_other_and_quotas_are_theirs_on_a_real_openstack() {
    let stack = RealOpenStack::shared().await;
    let (one, other) = (stack.tenant().await, stack.tenant().await);
    let subnet = one.subnet("10.0.0.0/24").await;
    one.create_port(&subnet, json!({})).await;
    assert_eq!(one.pod_ports(&subnet.network).await.len(), 1);
    assert!(other.ports().await.is_empty());
    one.quota("port", 1).await;
    assert_eq!(one.refusal(&subnet).await, (StatusCode::CONFLICT, "OverQuota".to_owned()));
    one.quota("port", 2).await;
    one.create_port(&subnet, json!({})).await;
}

#[tokio::test]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn the_gate_counts_refuses_and_loses_calls_and_stays_in_the_catalogue_on_a_real_openstack() {
    let stack = RealOpenStack::shared().await;
    let tenant = stack.tenant().await;
    let subnet = tenant.subnet("10.0.0.0/24").await;
    let gate = stack.gate().await;
    let user = tenant.user(&tenant.login_through(&gate)).await;
    let ports = Match::any().method(Method::POST).path("/network/v2.0/ports");
    let body = json!({ "port": { "network_id": subnet.network } });
    let create = async || user.send(Method::POST, "/v2.0/ports", Some(body.clone())).await;

    assert_eq!(create().await.unwrap().0, StatusCode::CREATED);
    assert_eq!(gate.count(&ports), 1);
    gate.inject(ports.clone(), 1, Fault::unavailable(Some(2)));
    assert_eq!(create().await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(tenant.pod_ports(&subnet.network).await.len(), 1);
    gate.inject(ports.clone(), 1, Fault::Cut);
    assert!(create().await.is_err());
    assert_eq!(tenant.pod_ports(&subnet.network).await.len(), 1);
    gate.inject(ports, 1, Fault::CutAfter);
    assert!(create().await.is_err());
    assert_eq!(tenant.pod_ports(&subnet.network).await.len(), 2, "it was done all the same");
    assert_eq!(gate.pending(), 0);

    gate.miss_tags(true);
    let tagged = json!({ "port": { "network_id": subnet.network, "tags": ["a"] } });
    let (status, answer) = user.send(Method::POST, "/v2.0/ports", Some(tagged)).await.unwrap();
    assert_eq!(
        (status, answer["NeutronError"]["type"].as_str()),
        (StatusCode::BAD_REQUEST, Some("HTTPBadRequest"))
    );
    let (_, listed) = user.send(Method::GET, "/v2.0/ports", None).await.unwrap();
    assert!(listed["ports"][0].get("tags").is_none());

    stack.revoke(&gate.token().unwrap()).await;
    assert_eq!(create().await.unwrap().0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn services_count_what_they_are_asked_and_by_whom_on_a_real_openstack() {
    let stack = RealOpenStack::shared().await;
    let tenant = stack.tenant().await;
    let user = tenant.user(&tenant.login()).await;
    let before = stack.calls(Service::Neutron).await;
    for _ in 0..3 {
        user.send(Method::GET, "/v2.0/ports?limit=1", None).await.unwrap();
    }
    let calls = stack.calls(Service::Neutron).await.since(&before);
    let of_user =
        calls.count(|call| call.project == tenant.id && call.path == "/v2.0/ports" && call.status == "200");
    assert_eq!(of_user, 3);
}

#[tokio::test]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_service_that_was_stopped_goes_on_with_what_it_knew_on_a_real_openstack() {
    let stack = RealOpenStack::alone().await;
    let tenant = stack.tenant().await;
    let subnet = tenant.subnet("10.0.0.0/24").await;
    let port = tenant.create_port(&subnet, json!({})).await;
    stack.stop(Service::Neutron).await;
    let user = tenant.user(&tenant.login()).await;
    assert!(user.send(Method::GET, "/v2.0/ports", None).await.is_err());
    stack.resume().await;
    assert_eq!(tenant.port(&port.id).await.unwrap().mac_address, port.mac_address);
}
