//! The control API.

use std::net::SocketAddr;

use serde_json::{Value, json};
use staffetta_iosxe_device::Entry;
use tokio::net::TcpStream;

use crate::client::{Answer, Asking, CFG, configure, device, get, operate, until_state};

async fn asked(at: SocketAddr, method: &str, path: &str, body: &Value) -> Answer {
    let asking = Asking::new(method, path, body).header("Content-Type", "application/json");
    asking.over(TcpStream::connect(at).await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn another_process_sees_the_devices_and_breaks_them() {
    let (site, device) = device(|_| ());
    let at = site.control("127.0.0.1:0".parse().unwrap()).unwrap();
    let devices = asked(at, "GET", "/devices", &Value::Null).await.json();
    assert_eq!(devices, json!([{ "name": "edge-1", "url": device.url() }]));

    let fault = json!({ "requests": { "method": "GET", "skip": 1 }, "times": 1,
        "fault": { "refuse": { "code": 503, "tag": "in-use" } } });
    assert_eq!(asked(at, "POST", "/devices/edge-1/faults", &fault).await.code, 204);
    assert_eq!(get(&device, CFG).await.code, 204);
    assert_eq!(get(&device, CFG).await.code, 503);
    let planned = json!({ "app": "web", "times": 1, "install": { "takes_ms": 3 } });
    assert_eq!(asked(at, "POST", "/devices/edge-1/installs", &planned).await.code, 204);
    configure(&device, "web").await;
    operate(&device, "install", "web").await;
    until_state(&device, "web", Some("RUNNING")).await;

    let apps = asked(at, "GET", "/devices/edge-1/apps", &Value::Null).await.json();
    assert_eq!((&apps[0]["name"], &apps[0]["state"]), (&json!("web"), &json!("RUNNING")));
    let counts = asked(at, "GET", "/devices/edge-1/counts", &Value::Null).await.json();
    assert_eq!(counts["by_kind"]["install"], 1);
    let ledger = asked(at, "GET", "/devices/edge-1/ledger?after=1", &Value::Null).await;
    let entries: Vec<Entry> = serde_json::from_str(&ledger.body).unwrap();
    assert_eq!(entries, device.entries(1));

    assert_eq!(asked(at, "POST", "/devices/edge-1/reachability", &"refuses".into()).await.code, 204);
    let reboot = json!({ "kept": "nothing", "down_ms": 1 });
    assert_eq!(asked(at, "POST", "/devices/edge-1/reboot", &reboot).await.code, 204);
    assert!(device.ledger().existing().is_empty());
    assert_eq!(asked(at, "DELETE", "/devices/edge-9/faults", &Value::Null).await.code, 404);
    assert_eq!(asked(at, "POST", "/devices/edge-1/reboot", &json!({ "kept": "all" })).await.code, 422);
}
