//! The controller with a real base: a Java process with Arklet, through a proxy that sees its commands and can lose their answers.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::java::JavaBase;
use super::world::{World, module};
use crate::process::eventually;

const NODE: &str = "vnode.base-1.dev";

/// A base that reports, as versions of Arklet with heartbeats do.
struct RealBase {
    java: JavaBase,
    /// The commands that change modules, in order.
    asked: Arc<Mutex<Vec<String>>>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl RealBase {
    /// Starts a base. With `loses`, all answers to commands that change modules get lost.
    async fn start(world: &World, loses: bool) -> Self {
        let java = JavaBase::start().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), java.port);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let proxy = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let seen = Arc::clone(&seen);
                // A client may go at any time.
                tokio::spawn(async move { drop(forward(client, target, loses, &seen).await) });
            }
        });
        let status = json!({ "baseMetadata": { "identity": "base-1", "name": "shop", "version": "1" }, "localIP": "127.0.0.1",
            "localHostName": "base-1", "port": port, "state": "ACTIVATED" });
        let (controller, body) = (world.listener(0), status.to_string());
        let heartbeats = tokio::spawn(async move {
            loop {
                if let Ok(mut stream) = TcpStream::connect(controller).await {
                    let head = format!(
                        "POST /heartbeat HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    );
                    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        });
        Self { java, asked, _tasks: [proxy, heartbeats].map(AbortOnDropHandle::new) }
    }

    /// Returns the modules with their states, as the base itself says.
    async fn modules(&self) -> Vec<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.java.port)).await.unwrap();
        let request = "POST /queryAllBiz HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await.unwrap();
        let response = String::from_utf8_lossy(&response);
        let response: Value = serde_json::from_str(&response[response.find("\r\n\r\n").unwrap()..]).unwrap();
        let modules =
            response["data"].as_array().unwrap().iter().filter(|module| module["bizName"] == "cart");
        let text = |module: &Value| {
            let [version, state] = ["bizVersion", "bizState"].map(|key| module[key].as_str().unwrap());
            format!("{version} {}", state.to_uppercase())
        };
        let mut modules: Vec<_> = modules.map(text).collect();
        modules.sort();
        modules
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Forwards a request and its response. Loses the response to a command that changes a module if `loses`.
async fn forward(
    mut client: TcpStream,
    port: u16,
    loses: bool,
    asked: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut request = Vec::new();
    let (head, length) = loop {
        if client.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        if let Some(end) = request.windows(4).position(|part| part == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            break (head, end + 4 + length.unwrap_or_default());
        }
    };
    while request.len() < length {
        client.read_buf(&mut request).await?;
    }
    let command = head.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
    let changes = ["installbiz", "uninstallbiz", "switchbiz"].contains(&command.as_str());
    if changes {
        let body = &request[request.windows(4).position(|part| part == b"\r\n\r\n").unwrap_or_default()..];
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        asked.lock().unwrap().push(format!("{command} {}", body["bizVersion"].as_str().unwrap_or_default()));
    }
    let mut base = TcpStream::connect(("127.0.0.1", port)).await?;
    base.write_all(&request).await?;
    let mut response = Vec::new();
    base.read_to_end(&mut response).await?;
    if !(changes && loses) {
        client.write_all(&response).await?;
    }
    Ok(())
}

/// Rolls a second version of a module out, and removes it.
async fn rolled_out(loses: bool) {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = RealBase::start(&world, loses).await;
    eventually("the base is there", async || world.nodes().get_opt(NODE).await.unwrap().is_some()).await;
    world.pod_with("old", NODE, &json!([module("cart", "1.0.0", &base.java.module())])).await;
    world.running("old").await;
    // Creation times are in seconds.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.pod_with("new", NODE, &json!([module("cart", "2.0.0", &base.java.second_version())])).await;
    let new = world.running("new").await;
    assert_eq!(new.status.unwrap().container_statuses.unwrap()[0].restart_count, 0);
    assert_eq!(base.modules().await, ["1.0.0 DEACTIVATED", "2.0.0 ACTIVATED"]);
    world.delete("old").await;
    world.gone("old").await;
    world.running("new").await;
    assert_eq!(base.modules().await, ["2.0.0 ACTIVATED"]);
    world.delete("new").await;
    world.gone("new").await;
    assert!(base.modules().await.is_empty());
    let once = [
        "installbiz 1.0.0",
        "installbiz 2.0.0",
        "switchbiz 2.0.0",
        "uninstallbiz 1.0.0",
        "uninstallbiz 2.0.0",
    ];
    assert_eq!(base.asked(), once);
}

#[tokio::test]
#[ignore = "needs Arklet"]
async fn a_rolling_update_activates_the_new_version_before_the_old_one_goes_on_a_real_arklet() {
    rolled_out(false).await;
}

#[tokio::test]
#[ignore = "needs Arklet"]
async fn lost_answers_repeat_no_command_to_a_real_arklet() {
    rolled_out(true).await;
}

#[tokio::test]
#[ignore = "needs Arklet"]
async fn a_wrong_version_is_reported_and_leaves_nothing_on_a_real_arklet() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = RealBase::start(&world, false).await;
    eventually("the base is there", async || world.nodes().get_opt(NODE).await.unwrap().is_some()).await;
    world.pod_with("web", NODE, &json!([module("cart", "9.0.0", &base.java.module())])).await;
    eventually("the pod says which version the JAR file has", async || {
        let pod = world.pods().get("web").await.unwrap();
        serde_json::to_string(&pod.status).unwrap().contains("cart:1.0.0")
    })
    .await;
    world.delete("web").await;
    world.gone("web").await;
    eventually("nothing is left", async || base.modules().await.is_empty()).await;
}
