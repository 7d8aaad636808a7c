//! Tests of the status page in a headless Chromium, which `devstack/real/test` runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use axum::Router;
use axum::http::{Uri, header};
use axum::response::Html;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::page;
use super::serve::serve;
use super::testing::{failing, snapshot};
use super::text::Escaped;
use crate::observe::state::StateSnapshot;

/// The time after which Chromium ends although it has not loaded the page, in milliseconds.
const TIMEOUT: &str = "--timeout=60000";

/// Returns the state of a controller with long names, failing objects, and a handler that does not receive events yet.
fn busy() -> StateSnapshot {
    let object = |index: usize| {
        let mut object = failing(
            "POST https://neutron.example.com:9696/v2.0/ports answered 409: quota exceeded for resources: ['port']",
        );
        object["name"] = format!("web-with-a-long-name-{index}-7d4b9c6f5-{}", "x".repeat(index * 9)).into();
        object
    };
    let mut state = snapshot(&Value::Array((0..6).map(object).collect()));
    let watch = |kind: &str, objects: usize, error: Option<&str>| {
        json!({ "kind": kind, "listed": error.is_none(), "objects": objects, "undecodable": 0, "added": objects,
            "modified": 2100, "deleted": 7, "lists": 1, "errors": 0, "said": null, "silentSeconds": 1.0, "error": error })
    };
    let handler = |name: &str, kinds: &[&str], waits: &[&str], counts: [usize; 4]| {
        json!({ "name": name, "kinds": kinds, "open": waits.is_empty(), "waits": waits, "added": 900, "attempts": 1340,
            "drivers": [{ "trait": "pod_vif", "name": "nested-vlan" }, { "trait": "vif_pool", "name": "multi_pool" },
                { "trait": "service_security_groups", "name": "network-policy" }],
            "held": 0, "queued": counts[0], "running": counts[1], "retrying": counts[2], "failed": counts[3] })
    };
    state.watches = serde_json::from_value(json!([
        watch("EndpointSlice", 412, None),
        watch("Namespace", 18, None),
        watch("NetworkPolicy", 63, None),
        watch("Node", 31, None),
        watch("Pod", 1204, None),
        watch(
            "Service",
            12,
            Some("403 Forbidden: services is forbidden: User \"system:staffetta\" cannot list")
        ),
    ]))
    .unwrap();
    state.handlers = serde_json::from_value(json!([
        handler("vif", &["Pod"], &[], [12, 4, 3, 6]),
        handler("lbaas", &["Service", "EndpointSlice"], &["watch Service: 403 Forbidden"], [0; 4]),
        handler("network-policy", &["NetworkPolicy", "Pod", "Namespace"], &[], [3, 1, 0, 0]),
        handler("prefix-ip", &["Node"], &[], [0; 4]),
    ]))
    .unwrap();
    state
}

/// Serves the page `html`. Returns its URL, and the list to which the path of each request is added.
async fn served(html: String) -> (String, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let router = Router::new().fallback(move |uri: Uri| async move {
        recorded.lock().push(uri.to_string());
        ([(header::CONTENT_SECURITY_POLICY, page::POLICY)], Html(html))
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(serve(listener, router));
    (address, requests)
}

/// Runs Chromium with its state in a temporary folder.
async fn chromium(arguments: Vec<String>) -> Output {
    let run = move || {
        let profile = tempfile::tempdir().unwrap();
        Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", TIMEOUT])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(arguments)
            .output()
            .expect("chromium is installed")
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns the page without its refresh: on a slow machine, Chromium would load it twice.
fn once(state: &StateSnapshot) -> String {
    page::page(state).replace("http-equiv=\"refresh\"", "name=\"refresh\"")
}

#[tokio::test]
#[ignore = "needs chromium: devstack/real/test in_chromium"]
async fn the_page_is_one_request_and_its_pictures_are_kept_in_chromium() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tmp");
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or(folder, |target| PathBuf::from(target).join("tmp"));
    fs::create_dir_all(&folder).unwrap();
    for (width, height) in [(360, 1900), (1280, 1100)] {
        for (scheme, setting) in [("dark", 0), ("light", 1)] {
            let (address, requests) = served(once(&busy())).await;
            let file = folder.join(format!("status-page-{width}-{scheme}.png"));
            let _ = fs::remove_file(&file);
            let picture = format!("--screenshot={}", file.display());
            let size = format!("--window-size={width},{height}");
            let scheme = format!("--blink-settings=preferredColorScheme={setting}");
            chromium(vec![picture, size, scheme, address]).await;
            assert_eq!(*requests.lock(), ["/"]);
            let png = fs::read(&file).unwrap();
            assert_eq!(png[16..20], u32::to_be_bytes(width), "the width in the header of {}", file.display());
        }
    }
}

#[tokio::test]
#[ignore = "needs chromium: devstack/real/test in_chromium"]
async fn a_phone_does_not_scroll_sideways_in_chromium() {
    // A window has at least 500 pixels, so that the page is in a frame. A script outside of it measures it.
    let page = once(&busy());
    let document = format!(
        "<iframe id=\"f\" width=\"360\" height=\"800\" srcdoc=\"{}\" onload=\"document.title = \
         f.contentDocument.documentElement.scrollWidth + ' of ' + f.contentWindow.innerWidth\"></iframe>",
        Escaped(&page)
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frame.html");
    fs::write(&file, document).unwrap();
    let document = chromium(vec!["--dump-dom".into(), format!("file://{}", file.display())]).await.stdout;
    let document = String::from_utf8(document).unwrap();
    assert!(document.contains("<title>360 of 360</title>"), "{document}");
}
