//! The reports that bases send to the listener.

use std::time::Duration;

use serde_json::json;
use staffetta_driver::tunnel::{NodeActivation, NodeDescription, Tunnel, TunnelEvent};
use staffetta_virtual_node::vnode::{TunnelLimits, channel};

use staffetta_driver::app_hosting::Password;
use staffetta_koupleless::HttpTunnelOptions;
use staffetta_koupleless_base::{SimulatedBase, SimulatedBaseOptions};

use crate::world::{World, base, cart, options};

#[tokio::test]
async fn a_base_that_reports_is_discovered_and_its_latest_report_counts() {
    let mut world = World::start(options()).await;
    let base = base("base-1").await;
    for state in ["ACTIVATED", "ACTIVATED", "DEACTIVATED"] {
        let mut heartbeat = base.heartbeat();
        heartbeat["state"] = state.into();
        assert_eq!(world.post("heartbeat", &heartbeat).await, (200, "SUCCESS".to_owned()));
    }
    let (id, event) = world.receiver.recv().await.unwrap();
    let TunnelEvent::NodeDiscovered(node) = event else { panic!("{event:?}") };
    assert_eq!((id.as_str(), node.metadata.status), ("base-1", NodeActivation::Deactivated));
    assert_eq!(
        (node.metadata.name.as_str(), node.network_info.port),
        ("shop", base.address().map(|address| address.port()))
    );
    assert_eq!(node.network_info.node_ip, Some("127.0.0.1".parse().unwrap()));
    drop(world.running);
    assert!(world.receiver.recv().await.is_none(), "earlier reports were replaced");
}

#[tokio::test]
async fn only_a_base_with_the_token_can_report_if_there_is_one() {
    let token = "0123456789abcdef";
    let with_token = HttpTunnelOptions { token: Some(Password::new(token)), ..options() };
    let mut world = World::start(with_token).await;
    let heartbeat = base("base-1").await.heartbeat();
    let metadata = json!({ "identity": "base-1" });
    for prefix in
        ["", "/", "0123456789abcdeF/", "0123456789abcde/", "0123456789abcdefg/", "a/0123456789abcdef/"]
    {
        for (endpoint, report) in [("heartbeat", &heartbeat), ("queryBaseline", &metadata)] {
            assert_eq!(world.post(&format!("{prefix}{endpoint}"), report).await.0, 401, "{prefix}{endpoint}");
        }
    }
    assert_eq!(world.tunnel.dropped_reports(), 12);
    assert_eq!(world.post(&format!("{token}/heartbeat"), &heartbeat).await.0, 200);
    let (id, _) = world.receiver.recv().await.unwrap();
    assert_eq!(id.as_str(), "base-1");
    assert_eq!(world.post(&format!("{token}/other"), &heartbeat).await.0, 404);
}

#[tokio::test]
async fn a_base_speaks_for_itself_only() {
    let (mut world, base, _) = World::with_base(options()).await;
    let mut heartbeat = base.heartbeat();
    heartbeat["localIP"] = "192.0.2.9".into();
    let (status, text) = world.post("heartbeat", &heartbeat).await;
    assert!(status == 403 && text.contains("127.0.0.1, not from 192.0.2.9"), "{status} {text}");
    for ip in ["127.0.0.2", ""] {
        heartbeat["localIP"] = ip.into();
        let (status, text) = world.post_from("127.0.0.2", "heartbeat", heartbeat.to_string()).await;
        assert!(status == 409 && text.contains("another base has this identity"), "{status} {text}");
    }
    let metadata = json!({ "identity": "base-1" }).to_string();
    assert_eq!(world.post_from("127.0.0.2", "queryBaseline", metadata).await.0, 409);
    drop(world.running);
    assert!(world.receiver.recv().await.is_none(), "nothing was passed on");
}

#[tokio::test]
async fn a_base_that_answers_keeps_its_id_though_its_reports_go_to_other_replicas() {
    let (world, base, id) = World::with_base(options()).await;
    let claim = base.heartbeat().to_string().replace("127.0.0.1", "127.0.0.2");
    let wait = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
    };
    for _ in 0..2 {
        wait(45).await;
        world.tunnel.fetch_health_data(&id).await.unwrap();
    }
    assert_eq!(world.post_from("127.0.0.2", "heartbeat", claim.clone()).await.0, 409);
    wait(60).await;
    assert_eq!(world.post_from("127.0.0.2", "heartbeat", claim).await.0, 200, "the base is silent");
}

#[tokio::test]
async fn a_report_that_waits_is_replaced_by_the_node_object_of_the_base() {
    let (mut world, base, id) = World::with_base(options()).await;
    world.tunnel.on_node_stop(&id).await;
    let known = base.heartbeat();
    let impostor = known.to_string().replace("127.0.0.1", "127.0.0.2");
    assert_eq!(world.post_from("127.0.0.2", "heartbeat", impostor).await.0, 200);
    let metadata = json!({ "name": "shop", "version": "1.1", "status": "activated" });
    let mut description: NodeDescription = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    description.network_info.node_ip = Some("127.0.0.1".parse().unwrap());
    description.network_info.port = Some(base.address().unwrap().port());
    world.tunnel.on_node_start(&id, &description).await;
    let (_, event) = world.receiver.recv().await.unwrap();
    let TunnelEvent::NodeDiscovered(found) = event else { panic!("{event:?}") };
    assert_eq!(found.network_info, description.network_info);
    world.tunnel.fetch_health_data(&id).await.unwrap();
}

#[tokio::test]
async fn a_base_behind_another_address_reports_within_the_networks_of_the_options() {
    let base_networks = vec!["192.0.2.0/24".parse().unwrap()];
    let world = World::start(HttpTunnelOptions { base_networks, ..options() }).await;
    let mut heartbeat = base("base-1").await.heartbeat();
    for (ip, status) in [("192.0.2.9", 200), ("198.51.100.9", 403)] {
        heartbeat["localIP"] = ip.into();
        assert_eq!(world.post("heartbeat", &heartbeat).await.0, status, "{ip}");
    }
}

#[tokio::test]
async fn a_base_behind_another_address_gets_its_baseline_and_the_id_of_others_is_protected() {
    let base_networks = vec!["192.0.2.0/24".parse().unwrap()];
    let mut world = World::start(HttpTunnelOptions { base_networks, ..options() }).await;
    for (id, ip) in [("base-1", "192.0.2.9"), ("base-2", "127.0.0.1")] {
        let mut heartbeat = base(id).await.heartbeat();
        heartbeat["localIP"] = ip.into();
        assert_eq!(world.post("heartbeat", &heartbeat).await.0, 200, "{id}");
    }
    // Nobody answers the queries that are passed on.
    world.receiver = channel(TunnelLimits::default()).1;
    for (id, status) in [("base-1", 503), ("base-2", 409)] {
        let metadata = json!({ "identity": id }).to_string();
        assert_eq!(world.post_from("127.0.0.2", "queryBaseline", metadata).await.0, status, "{id}");
    }
}

#[tokio::test]
async fn a_base_that_floods_the_listener_delays_no_other() {
    let mut world = World::start(options()).await;
    let tunnel = world.tunnel.address().unwrap();
    let mut floods = Vec::new();
    for _ in 0..4 {
        // Processes with one id at one address, which open connections at the same time.
        let flooding = SimulatedBase::http(SimulatedBaseOptions::default(), &[tunnel]).await.unwrap();
        flooding.behave(|behaviour| behaviour.flood = true);
        floods.push(flooding);
    }
    let quiet = SimulatedBaseOptions { ip: "127.0.0.2".parse().unwrap(), ..SimulatedBaseOptions::default() };
    let quiet = SimulatedBaseOptions { identity: "base-2".to_owned(), ..quiet };
    let quiet = SimulatedBase::http(quiet, &[]).await.unwrap();
    let heartbeat = quiet.heartbeat().to_string();
    for _ in 0..20 {
        for _ in 0..2 {
            assert_eq!(world.receiver.recv().await.unwrap().0.as_str(), "base-1");
        }
        assert_eq!(world.post_from("127.0.0.2", "heartbeat", heartbeat.clone()).await.0, 200);
        let (one, other) = (world.receiver.recv().await.unwrap(), world.receiver.recv().await.unwrap());
        let quiet = [&one.0, &other.0].map(|id| id.as_str() == "base-2");
        assert_eq!(
            quiet.iter().filter(|quiet| **quiet).count(),
            1,
            "it waits for one report of another base at most"
        );
    }
}

#[tokio::test]
async fn a_malformed_or_oversized_report_is_rejected_with_its_place() {
    let mut world = World::start(options()).await;
    let base = base("base-1").await;
    let mut escaping = base.heartbeat();
    escaping["baseMetadata"]["identity"] = "../admin".into();
    let mut asleep = base.heartbeat();
    asleep["state"] = "asleep".into();
    for (body, expected, text) in [
        ("{".to_owned(), 400, "line 1 column 1"),
        ("[]".to_owned(), 400, ""),
        (escaping.to_string(), 400, "baseMetadata.identity: \"../admin\""),
        (asleep.to_string(), 400, "state: \"asleep\""),
        (format!("{{\"x\":\"{}\"}}", "x".repeat(70_000)), 413, ""),
    ] {
        let (status, said) = world.post_from("127.0.0.1", "heartbeat", body).await;
        assert!(status == expected && said.contains(text), "{status} {said}");
    }
    let address = world.tunnel.address().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    assert_eq!(client.get(format!("http://{address}/heartbeat")).send().await.unwrap().status(), 405);
    assert_eq!(world.post_from("127.0.0.1", "queryBaseline", "{".to_owned()).await.0, 400);
    assert_eq!(world.tunnel.dropped_reports(), 6);
    drop(world.running);
    assert!(world.receiver.recv().await.is_none());
}

#[tokio::test]
async fn a_base_gets_its_baseline_and_what_is_no_module_is_left_out() {
    let mut world = World::start(options()).await;
    let answering = async {
        let (id, event) = world.receiver.recv().await.unwrap();
        let TunnelEvent::BaselineQuery(query) = event else { panic!("{event:?}") };
        assert_eq!((id.as_str(), query.request.name.as_str()), ("base-1", "shop"));
        assert_eq!(query.request.custom_labels["base.koupleless.io/cluster-name"], "east");
        let mut other = cart();
        other.env = None;
        query.answer(vec![other, cart()]);
    };
    let metadata = json!({ "identity": "base-1", "name": "shop", "version": "1.1", "clusterName": "east" });
    let address = world.tunnel.address().unwrap();
    let asking =
        reqwest::Client::new().post(format!("http://{address}/queryBaseline")).json(&metadata).send();
    let (answer, ()) = tokio::join!(asking, answering);
    let models: serde_json::Value = answer.unwrap().json().await.unwrap();
    let cart = json!({ "bizName": "cart", "bizVersion": "1.0.0", "bizUrl": "https://example.com/cart.jar" });
    assert_eq!(models, json!([cart]));
}

#[tokio::test]
async fn a_baseline_that_nobody_tells_is_an_error_and_never_an_empty_list() {
    let mut world = World::start(options()).await;
    let address = world.tunnel.address().unwrap();
    let asking = reqwest::Client::new()
        .post(format!("http://{address}/queryBaseline"))
        .json(&json!({ "identity": "base-1" }))
        .send();
    let (answer, ()) = tokio::join!(asking, async { drop(world.receiver.recv().await) });
    assert_eq!(answer.unwrap().status(), 503);
}
