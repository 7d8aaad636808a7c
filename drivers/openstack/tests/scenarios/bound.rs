//! The driver `neutron-vif`.

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use staffetta_driver::{Activation, Owned, PodVifDriver, Reason, Vif, VifClass};

use super::world::{World, activated, text};

pub(crate) async fn a_pod_gets_a_port_on_its_node_that_is_active_when_an_agent_wired_it(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let vif = driver.request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    assert!(matches!(&vif.class, VifClass::OpenVSwitch { bridge_name, .. } if bridge_name == "br-int"));
    assert!(!vif.active && vif.ips().all(|ip| subnet.cidr.contains(&ip)) && vif.ips().count() == 1);
    assert_eq!((&vif.network.label, vif.network.mtu), (&subnet.network.label, subnet.network.mtu));
    let port = world.port(vif.id.as_str()).await;
    let owner = world.owner("web");
    assert_eq!((text(&port["binding:host_id"]), text(&port["device_id"])), (&*host, owner.uid.as_str()));
    assert_eq!((text(&port["device_owner"]), text(&port["name"])), ("compute:staffetta", "default/web"));
    assert_eq!(
        text(&port["description"]),
        format!("staffetta:cluster={} uid={} pod=default/web", world.cluster("east"), owner.uid)
    );
    let unnamed =
        world.bound_unnamed("east").request_vif(&world.request("other", &host, &subnet)).await.unwrap();
    assert_eq!(text(&world.port(unnamed.id.as_str()).await["name"]), "", "names are for `port_debug`");
    assert!(matches!(driver.activate_vif(&owner, &vif).await.unwrap(), Activation::NotYet { .. }));
    world.wire(&vif.id, &host).await;
    assert_eq!(activated(&driver, &owner, &vif).await.unwrap(), Vif { active: true, ..vif });
}

pub(crate) async fn pods_that_come_together_each_get_the_port_that_was_made_for_them(world: &World) {
    let host = world.host("node").await;
    let subnets = [world.subnet("10.1.0.0/24").await, world.subnet("10.2.0.0/24").await];
    let driver = world.bound("east");
    let requests: Vec<_> =
        (0..24).map(|number| world.request(&format!("pod-{number}"), &host, &subnets[number % 2])).collect();
    let made = join_all(requests.iter().map(|request| driver.request_vif(request))).await;
    let made: Vec<_> = made.into_iter().map(Result::unwrap).collect();
    for (vif, request) in made.iter().zip(&requests) {
        assert_eq!(vif.network.id, request.subnets[0].network.id);
        let port = world.port(vif.id.as_str()).await;
        assert_eq!(text(&port["device_id"]), request.owner.uid.as_str());
    }
    for subnet in &subnets {
        assert_eq!(world.ports(subnet).await.len(), 12);
    }
}

pub(crate) async fn a_port_is_given_back_once_and_by_its_owner_only(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let vif = driver.request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    // Whether this process made it or not.
    for driver in [&driver, &world.bound("east")] {
        driver.release_vif(&world.owner("other"), &vif).await.unwrap();
        world.bound("west").release_vif(&world.owner("web"), &vif).await.unwrap();
        assert_eq!(world.ports(&subnet).await.len(), 1);
    }
    for _ in 0..2 {
        world.bound("east").release_vif(&world.owner("web"), &vif).await.unwrap();
        driver.release_vif(&world.owner("web"), &vif).await.unwrap();
        assert!(world.ports(&subnet).await.is_empty());
    }
}

pub(crate) async fn marks_are_those_of_one_cluster_and_where_asked_of_one_pod(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let (east, west) = (world.bound("east"), world.bound("west"));
    for pod in ["a", "b"] {
        east.request_vif(&world.request(pod, &host, &subnet)).await.unwrap();
    }
    west.request_vif(&world.request("a", &host, &subnet)).await.unwrap();
    let foreign = json!({ "network_id": subnet.network.id, "project_id": world.project, "fixed_ips": [{ "subnet_id": subnet.id }] });
    world.create("ports", "port", foreign).await;
    let of = async |driver: &dyn PodVifDriver, owner| {
        let mut names: Vec<String> =
            driver.vifs(owner).await.unwrap().into_iter().map(|marked| marked.owner.unwrap().name).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(of(&east, None).await, ["a", "b"]);
    assert_eq!(of(&west, None).await, ["a"]);
    let (b, c) = (world.owner("b"), world.owner("c"));
    assert_eq!(of(&east, Some(&b)).await, ["b"]);
    assert!(of(&east, Some(&c)).await.is_empty());
}

pub(crate) async fn a_vif_that_is_found_by_its_mark_is_the_one_that_was_made(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let vif = world.bound("east").request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    let owner = world.owner("web");
    let found = world.bound("east").vifs(Some(&owner)).await.unwrap();
    assert_eq!(found, [Owned { owner: Some(owner), resource: vif }]);
}

pub(crate) async fn a_binding_that_fails_is_an_error_and_leaves_no_port(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let error = world.bound("east").request_vif(&world.request("web", "nowhere", &subnet)).await.unwrap_err();
    assert_eq!((error.reason(), error.ambiguous()), (Reason::Unavailable, false));
    assert!(error.to_string().contains("`nowhere`: the binding failed"), "{error}");
    assert!(world.ports(&subnet).await.is_empty());
}

pub(crate) async fn a_port_that_somebody_removed_is_reported_by_name_and_given_back(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let vif = driver.request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    world.remove(&format!("ports/{}", vif.id)).await;
    let error = activated(&driver, &world.owner("web"), &vif).await.unwrap_err();
    assert_eq!(error.reason(), Reason::NotFound);
    assert!(error.to_string().contains(vif.id.as_str()), "{error}");
    driver.release_vif(&world.owner("web"), &vif).await.unwrap();
}

pub(crate) async fn what_an_annotation_calls_a_port_is_never_taken_for_a_path(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let vif = driver.request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    driver.release_vif(&world.owner("web"), &vif).await.unwrap();
    for id in [
        format!("../networks/{}", subnet.network.id),
        format!("{}/../../networks/{}", vif.id, subnet.network.id),
    ] {
        let forged = Vif { id: id.into(), ..vif.clone() };
        driver.release_vif(&world.owner("web"), &forged).await.unwrap();
        assert_eq!(
            driver.activate_vif(&world.owner("web"), &forged).await.unwrap_err().reason(),
            Reason::NotFound
        );
    }
    let (_, answer) =
        world.ask(Method::GET, &format!("networks?id={}", subnet.network.id), &serde_json::Value::Null).await;
    assert_eq!(answer["networks"].as_array().unwrap().len(), 1);
}

pub(crate) async fn only_a_port_of_the_pod_is_activated_and_those_of_kuryr_are_listed_with_their_pods(
    world: &World,
) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let (driver, web) = (world.bound("east"), world.owner("web"));
    let made = driver.request_vif(&world.request("other", &host, &subnet)).await.unwrap();
    let wish = |device_id: &str| {
        json!({ "network_id": subnet.network.id, "project_id": world.project, "device_owner": "compute:kuryr",
            "device_id": device_id, "binding:host_id": host, "fixed_ips": [{ "subnet_id": subnet.id }] })
    };
    let kuryrs = world.create("ports", "port", wish(web.uid.as_str())).await;
    let pooled = world.create("ports", "port", wish("")).await;
    for driver in [driver, world.bound("east")] {
        for foreign in [made.id.as_str(), text(&pooled["id"])] {
            let named = Vif { id: foreign.into(), ..made.clone() };
            assert_eq!(driver.activate_vif(&web, &named).await.unwrap_err().reason(), Reason::Refused);
        }
        let listed = driver.unmarked_vifs().await.unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        assert_eq!(listed[0].owner.as_ref().unwrap().uid, web.uid);
        assert_eq!(listed[0].resource.id.as_str(), text(&kuryrs["id"]));
        assert!(matches!(listed[0].resource.class, VifClass::OpenVSwitch { .. }));
        driver.activate_vif(&web, &listed[0].resource).await.unwrap();
    }
}

pub(crate) async fn a_port_that_kuryr_made_for_the_pod_is_given_back_and_a_foreign_one_is_not(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let vif = driver.request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    let uid = world.owner("web").uid;
    for (device_owner, device_id, stays) in [
        ("compute:kuryr", uid.as_str(), false),
        ("compute:kuryr", "another pod", true),
        ("compute:kuryr", "", true),
        ("compute:nova", "", true),
    ] {
        let wish = json!({
            "network_id": subnet.network.id, "project_id": world.project, "device_owner": device_owner,
            "device_id": device_id, "fixed_ips": [{ "subnet_id": subnet.id }],
        });
        let port = world.create("ports", "port", wish).await;
        let named = Vif { id: text(&port["id"]).into(), ..vif.clone() };
        driver.release_vif(&world.owner("web"), &named).await.unwrap();
        assert_eq!(!world.port(text(&port["id"])).await.is_null(), stays, "{device_owner} {device_id}");
    }
}
