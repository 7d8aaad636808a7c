//! Faults of a cloud and of its users. Each is reported on the pod, leaves nothing behind, and ends without a restart of the
//! controller.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use serde_json::json;
use staffetta_real_openstack::{Fault, Match, Subnet};

use crate::killing::start;
use crate::world::World;

/// A call that makes ports.
fn creation() -> Match {
    Match::any().method(Method::POST).path("/network/v2.0/ports")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn pods_beyond_the_quota_wait_and_say_so_and_go_on_when_it_is_raised_on_a_real_openstack() {
    let world = World::start().await;
    world.tenant.quota("port", 2).await;
    let controller = world.controller("").await;
    for name in ["one", "two"] {
        world.pod(name).await;
    }
    world.until_active(&["one", "two"]).await;
    // After them: of calls at the same moment, Neutron may let more through than the quota says.
    world.pod("three").await;
    let said = world.until_reported("three", "QuotaExceeded").await;
    assert!(said.contains("quota") && said.contains("port"), "{said}");
    assert!(world.vifs("three").await.is_empty());
    assert_eq!(world.ports().await.len(), 2);
    world.tenant.quota("port", 10).await;
    world.until_active(&["one", "two", "three"]).await;
    assert_eq!(world.ports().await.len(), 3);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn pods_of_a_full_subnet_wait_and_say_so_and_go_on_when_an_address_is_free_on_a_real_openstack() {
    let mut world = World::start().await;
    world.subnet = world.tenant.subnet("10.9.0.0/30").await; // one address beside the gateway
    let controller = world.controller("").await;
    world.pod("first").await;
    world.until_active(&["first"]).await;
    world.pod("second").await;
    let said = world.until_reported("second", "SubnetFull").await;
    assert!(said.contains("no address is free"), "{said}");
    assert_eq!(world.ports().await.len(), 1);
    world.end_pod("first").await;
    world.until_active(&["second"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_node_without_an_agent_is_reported_leaves_no_port_and_is_used_once_it_has_one_on_a_real_openstack()
{
    let world = World::start().await;
    let controller = world.controller("").await;
    let node = world.tenant.node_name("unknown");
    world.pod_on(&node, "web", json!({})).await;
    world.until("a port is made and its binding fails", async || world.gate.count(&creation()) > 0).await;
    let said = world.until_reported("web", "DriverUnavailable").await;
    assert!(said.contains(&node) && said.contains("the binding failed"), "{said}");
    world.until_ports(0).await;
    world.tenant.node("unknown", Some(Duration::ZERO)).await;
    world.until_active(&["web"]).await;
    assert_eq!(world.ports().await.len(), 1);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_network_that_is_deleted_underneath_is_reported_at_the_pod_on_a_real_openstack() {
    let mut world = World::start().await;
    let keep = world.subnet.clone();
    world.subnet = world.tenant.subnet("10.9.0.0/24").await;
    let controller = world.controller("").await;
    world.pod("first").await;
    world.until_active(&["first"]).await;
    world.end_pod("first").await;
    world.until_ports(0).await;
    let Subnet { id, network } = world.subnet.clone();
    world.tenant.delete("subnet", &id).await;
    world.tenant.delete("network", &network).await;
    world.pod("second").await;
    let said = world.until_reported("second", "ReferenceNotFound").await;
    assert!(said.contains(&id) || said.contains(&network), "{said}");
    world.end_pod("second").await;
    world.until_gone("second").await;
    world.subnet = keep;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_port_that_is_deleted_outside_is_reported_and_its_pod_can_end_on_a_real_openstack() {
    let world = World::start().await;
    let node = world.tenant.node("slow", None).await;
    let controller = world.controller("").await;
    world.pod_on(&node, "web", json!({})).await;
    let vif = world.until_annotated("web").await;
    // Its sandbox has the address, and does not get another one.
    let status = json!({ "status": { "podIP": vif.address, "podIPs": [{ "ip": vif.address }] } });
    let patch = kube::api::Patch::Merge(&status);
    world.pods().patch_status("web", &kube::api::PatchParams::default(), &patch).await.unwrap();
    world.tenant.delete("port", &vif.id).await;
    let said = world.until_reported("web", "ReferenceNotFound").await;
    assert!(said.contains(&vif.id), "{said}");
    world.end_pod("web").await;
    world.until_gone("web").await;
    world.until_ports(0).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_port_that_is_deleted_outside_is_made_again_for_a_pod_that_does_not_use_it_yet_on_a_real_openstack()
{
    let world = World::start().await;
    let node = world.tenant.node("slow", None).await;
    let controller = world.controller("").await;
    world.pod_on(&node, "web", json!({})).await;
    let lost = world.until_annotated("web").await.id;
    world.tenant.delete("port", &lost).await;
    let shown = async || world.vifs("web").await.into_iter().map(|vif| vif.id).next();
    world.until("the pod shows another port", async || shown().await.is_some_and(|id| id != lost)).await;
    world.stack.agents().up(&shown().await.unwrap()).await;
    world.until_active(&["web"]).await;
    world.until_ports(1).await;
    world.end_pod("web").await;
    world.until_ports(0).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_token_that_is_revoked_costs_a_new_one_and_no_pod_on_a_real_openstack() {
    let world = World::start().await;
    let controller = world.controller("").await;
    world.pod("before").await;
    world.until_active(&["before"]).await;
    let logins = Match::any().method(Method::POST).path("/identity/v3/auth/tokens");
    let before = world.gate.count(&logins);
    world.stack.revoke(&world.gate.token().unwrap()).await;
    for name in ["one", "two", "three"] {
        world.pod(name).await;
    }
    world.until_active(&["one", "two", "three"]).await;
    assert_eq!(world.gate.count(&logins), before + 1, "all that is in flight shares one login");
    assert_eq!(world.ports().await.len(), 4);
    controller.stop().await.unwrap();
}

/// A fault of the calls that make ports costs time, and neither a pod nor a second port. Each pod that comes meets it so often.
/// The first pod meets all of them itself, each at least `wait` after the one before.
async fn passing_after(wait: Duration, fault: Fault, times: u32, options: &str) {
    let world = World::start().await;
    let controller = world.controller(options).await;
    for name in ["one", "two", "three"] {
        let began = Instant::now();
        world.gate.inject(creation(), times as usize, fault.clone());
        world.pod(name).await;
        // Pods that come at the same time may share a call, and its fault.
        world.until(&format!("{fault:?} happens"), async || world.gate.pending() == 0).await;
        let waited = began.elapsed();
        assert!(name != "one" || waited >= wait * (times - 1), "{fault:?}: asked again after {waited:?}");
    }
    world.until_active(&["one", "two", "three"]).await;
    let ports = world.ports().await.into_iter().map(|port| port.id).collect();
    assert_eq!(world.named().await, ports, "after {fault:?} each port is a pod's");
    for name in ["one", "two", "three"] {
        world.end_pod(name).await;
    }
    world.until_ports(0).await;
    controller.stop().await.unwrap();
}

async fn passing(fault: Fault, times: u32, options: &str) {
    passing_after(Duration::ZERO, fault, times, options).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_cloud_that_is_unavailable_is_asked_again_when_it_says_on_a_real_openstack() {
    passing_after(Duration::from_secs(5), Fault::unavailable(Some(5)), 2, "").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_cloud_that_answers_with_a_page_for_people_is_asked_again_on_a_real_openstack() {
    passing(Fault::unavailable(None), 2, "").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn what_others_change_at_the_same_time_is_tried_again_on_a_real_openstack() {
    let message = "There is a conflict with another request.";
    passing(Fault::neutron(StatusCode::CONFLICT, "Conflict", message), 2, "").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_connection_that_is_cut_before_the_call_costs_no_pod_on_a_real_openstack() {
    passing(Fault::Cut, 2, "").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_port_whose_answer_was_lost_is_found_by_its_mark_and_not_made_again_on_a_real_openstack() {
    passing(Fault::CutAfter, 1, "").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_call_that_is_never_answered_is_given_up_and_made_again_on_a_real_openstack() {
    passing(Fault::Hang, 1, "[neutron]\ntimeout = 3\n").await;
}

/// The delay of a call that takes effect after it was given up: long enough for the pod to get another port before.
const LATE: Duration = Duration::from_secs(20);

/// The pod has one port for good, whatever is made late.
async fn until_what_came_late_goes(world: &World) {
    world.until_active(&["web"]).await;
    let shown = world.named().await;
    world.until_ports(2).await;
    world.until_ports(1).await;
    assert_eq!(world.ports().await.into_iter().map(|port| port.id).collect::<BTreeSet<_>>(), shown);
    assert_eq!(world.named().await, shown);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_call_that_takes_effect_after_it_was_given_up_leaves_its_pod_one_port_on_a_real_openstack() {
    let world = World::start().await;
    let controller = world.controller("[neutron]\ntimeout = 6\n").await;
    world.gate.inject(creation(), 1, Fault::Late(LATE));
    world.pod("web").await;
    until_what_came_late_goes(&world).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_call_that_takes_effect_after_its_controller_was_killed_leaves_its_pod_one_port_on_a_real_openstack()
 {
    let world = World::start().await;
    let options = world.options("");
    let mut killed = start(&world, &options).await;
    world.gate.inject(creation(), 1, Fault::Late(LATE));
    world.pod("web").await;
    world.until("the port was asked for", async || world.gate.pending() == 0).await;
    killed.kill("KILL").await;
    assert!(!killed.ends().await.success());
    let mut next = start(&world, &options).await;
    until_what_came_late_goes(&world).await;
    assert!(next.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn without_the_tags_extension_the_description_bears_the_mark_on_a_real_openstack() {
    let world = World::start().await;
    world.gate.miss_tags(true);
    let controller = world.controller("").await;
    world.pod("stays").await;
    world.pod("goes").await;
    world.until_active(&["stays", "goes"]).await;
    for port in world.ports().await {
        assert!(port.tags.is_empty() && !port.description.is_empty(), "{port:?}");
    }
    let stays = world.vifs("stays").await[0].id.clone();
    controller.stop().await.unwrap();
    let patch = json!({ "metadata": { "finalizers": null } });
    let patch = kube::api::Patch::Merge(&patch);
    world.pods().patch("goes", &kube::api::PatchParams::default(), &patch).await.unwrap();
    world.end_pod("goes").await;
    let controller = world.controller("").await;
    world.until_ports(1).await;
    assert_eq!(world.ports().await[0].id, stays);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn two_controllers_by_mistake_give_each_pod_one_port_on_a_real_openstack() {
    let world = World::start().await;
    let controllers = [world.controller("").await, world.controller("").await];
    let names: Vec<_> = (0..8).map(|number| format!("web-{number}")).collect();
    for name in &names {
        world.pod(name).await;
    }
    world.until_active(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.until_ports(names.len()).await;
    let ports = world.ports().await.into_iter().map(|port| port.id).collect();
    assert_eq!(world.named().await, ports);
    for name in &names {
        world.end_pod(name).await;
    }
    world.until_ports(0).await;
    for controller in controllers {
        controller.stop().await.unwrap();
    }
}
