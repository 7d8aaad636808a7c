//! The server, through the plugin and through its bare socket.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::{Value, json};
use staffetta_network::os_vif::PodState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

use super::*;
use crate::tests::world::{Kernel, daemon, pod, request, vif};

/// Starts a server, and returns its address.
async fn serve(daemon: &Arc<CniDaemon>, listen: &Listen) -> String {
    let server = CniServer::bind(listen).await.unwrap();
    let address = match &server.listener {
        SocketListener::Unix(_) => server.address.clone(),
        SocketListener::Tcp(listener) => listener.local_addr().unwrap().to_string(),
    };
    tokio::spawn(server.serve(Arc::clone(daemon), std::future::pending()));
    address
}

/// Runs a command of the plugin for the pod `web`.
async fn plugin(command: &'static str, address: &str) -> Result<String, CniError> {
    let sent = request("web", "u1", "c1");
    let variables = HashMap::from([
        ("CNI_COMMAND", command.to_owned()),
        ("CNI_CONTAINERID", sent.cni_containerid),
        ("CNI_NETNS", sent.cni_netns.clone()),
        ("CNI_IFNAME", sent.cni_ifname),
        ("CNI_ARGS", sent.cni_args),
    ]);
    let interface = json!({ "name": "eth0", "sandbox": sent.cni_netns });
    let configuration = json!({ "cniVersion": "1.1.0", "daemon": address, "prevResult": { "interfaces": [interface] },
        "cni.dev/valid-attachments": [] });
    let input = io::Cursor::new(configuration.to_string());
    spawn_blocking(move || staffetta_cni::command::run(|name| variables.get(name).cloned(), input))
        .await
        .unwrap()
}

/// Sends a request to the socket.
async fn send(address: &str, path: &str, body: &str) -> UnixStream {
    let mut stream = UnixStream::connect(address).await.unwrap();
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: d\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    // The server refuses a huge request before it has read it.
    let _ = stream.write_all((head + body).as_bytes()).await;
    stream
}

/// Waits until `condition` holds.
async fn eventually(condition: impl Fn() -> bool) {
    let search = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), search).await.unwrap();
}

#[tokio::test]
async fn the_plugin_reaches_the_daemon_by_its_socket_and_on_loopback() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    let socket = folder.path().join("run/cni.sock");
    for listen in [Listen::Unix(socket.clone()), Listen::Tcp("127.0.0.1:0".parse().unwrap())] {
        let address = serve(&daemon, &listen).await;
        plugin("STATUS", &address).await.unwrap();
        let result: Value = serde_json::from_str(&plugin("ADD", &address).await.unwrap()).unwrap();
        assert_eq!(result["ips"][0]["address"], "10.0.0.1/24", "{result}");
        plugin("CHECK", &address).await.unwrap();
        plugin("DEL", &address).await.unwrap();
        assert_eq!(plugin("CHECK", &address).await.unwrap_err().code, 3);
        plugin("ADD", &address).await.unwrap();
        plugin("GC", &address).await.unwrap();
        assert!(kernel.ports().is_empty());
    }
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn malformed_and_huge_requests_are_answered_with_an_error() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    let address = serve(&daemon, &Listen::Unix(folder.path().join("cni.sock"))).await;
    let huge = format!("\"{}\"", "x".repeat(MAX_MESSAGE));
    for (path, body, status) in [
        ("/addNetwork", "{", "400"),
        ("/delNetwork", "[]", "400"),
        ("/gc", "{}", "400"),
        ("/addNetwork", &huge, "413"),
        ("/none", "{}", "404"),
    ] {
        let mut answer = String::new();
        let _ = send(&address, path, body).await.read_to_string(&mut answer).await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_plugin_that_is_killed_while_it_waits_binds_nothing_later() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    let address = serve(&daemon, &Listen::Unix(folder.path().join("cni.sock"))).await;
    let body = json!(request("web", "u1", "c1")).to_string();
    let killed = send(&address, "/addNetwork", &body).await;
    eventually(|| daemon.pods.waiting() == 1).await;
    drop(killed);
    eventually(|| daemon.pods.waiting() == 0).await;
    // The runtime has unbound the sandbox, and only now the pod gets its VIF.
    plugin("DEL", &address).await.unwrap();
    daemon.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    assert!(kernel.ports().is_empty());
    assert!(daemon.add(&request("web", "u1", "c2")).await.is_ok());
}

#[tokio::test]
async fn a_plugin_that_is_killed_while_its_pod_is_bound_leaves_it_bound_as_a_whole() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    let address = serve(&daemon, &Listen::Unix(folder.path().join("cni.sock"))).await;
    daemon.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    let (release, gate) = channel();
    *kernel.gate.lock() = Some(gate);
    let body = json!(request("web", "u1", "c1")).to_string();
    let killed = send(&address, "/addNetwork", &body).await;
    eventually(|| kernel.gate.lock().is_none()).await;
    drop(killed);
    release.send(()).unwrap();
    eventually(|| kernel.ports() == ["port-001-0000"]).await;
    plugin("DEL", &address).await.unwrap();
    assert!(kernel.ports().is_empty());
}

#[tokio::test]
async fn a_daemon_that_stops_answers_those_that_wait_at_once_and_ends() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    // One pod waits for its VIF, and one that is bound for its port.
    let mut inactive = vif(2);
    inactive.active = false;
    daemon.pods.put(&pod("bound", "u2", &PodState::new(inactive)));
    let listen = Listen::Unix(folder.path().join("cni.sock"));
    let (server, address) = (CniServer::bind(&listen).await.unwrap(), String::from(listen));
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let serving = tokio::spawn(server.serve(Arc::clone(&daemon), async { drop(stopped.await) }));
    let mut waiting = Vec::new();
    for (name, uid) in [("web", "u1"), ("bound", "u2")] {
        waiting.push(send(&address, "/addNetwork", &json!(request(name, uid, uid)).to_string()).await);
    }
    eventually(|| daemon.pods.waiting() == 2 && kernel.ports() == ["port-002-0000"]).await;
    stop.send(()).unwrap();
    for mut stream in waiting {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("and the daemon stops"), "{answer}");
    }
    tokio::time::timeout(Duration::from_secs(30), serving).await.unwrap().unwrap().unwrap();
    // The runtime unbinds by the next daemon what was bound.
    let next = crate::tests::world::daemon(&kernel, folder.path());
    next.delete(&request("bound", "u2", "u2")).await.unwrap();
    assert!(kernel.ports().is_empty());
}

#[tokio::test]
async fn a_socket_has_its_mode_before_it_has_its_name() {
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    let folder = tempfile::tempdir().unwrap();
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, folder.path(), WatchFlags::ATTRIB | WatchFlags::MOVED_TO).unwrap();
    let _listener = bind_unix(&folder.path().join("cni.sock")).unwrap();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let (mut events, mut seen) = (inotify::Reader::new(&watch, &mut buffer), Vec::new());
    while let Ok(event) = events.next() {
        let is_final = event.file_name().is_some_and(|name| name == c"cni.sock");
        seen.push((is_final, event.events()));
    }
    assert_eq!(seen, [(false, ReadFlags::ATTRIB), (true, ReadFlags::MOVED_TO)]);
}
