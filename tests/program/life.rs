//! Tests of the program as a process: its readiness, its liveness, its end, and its messages if it cannot run.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{PATIENCE, Process, eventually};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Fault, Options, Requests};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");

fn pods(server: &ApiServer) -> Api<Pod> {
    let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
    Api::namespaced(client, "default")
}

/// Creates the pod `web` on a node.
async fn create_pod(pods: &Api<Pod>) {
    let pod = json!({ "metadata": { "name": "web" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

#[tokio::test]
async fn it_becomes_ready_annotates_a_pod_and_ends_cleanly_on_sigterm() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(Path::new(PROGRAM), folder.path(), "", &server.kubeconfig()).await;
    process.ready().await;
    assert_eq!(process.get("/livez").await, (200, "ok\n".into()));

    let pods = pods(&server);
    create_pod(&pods).await;
    eventually("the pod has a VIF", async || {
        let pod = pods.get("web").await.unwrap();
        pod.metadata
            .annotations
            .is_some_and(|annotations| annotations.contains_key("openstack.org/kuryr-vif"))
    })
    .await;

    assert!(process.terminate().await.success());
    process.says("all queues are drained").await;
}

#[tokio::test]
async fn without_a_server_it_says_why_it_is_not_ready_lives_and_goes_on_when_there_is_one() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    server.faults().begin_outage();
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(Path::new(PROGRAM), folder.path(), "", &server.kubeconfig()).await;
    process.says("a request to the API server failed").await;
    let (code, reasons) = process.get("/readyz").await;
    assert_eq!(code, 503);
    assert!(reasons.starts_with("not ready\napi server: "), "{reasons}");
    assert_eq!(process.get("/livez").await.0, 200);
    server.faults().end_outage();
    process.ready().await;
    assert!(process.terminate().await.success());
}

#[tokio::test]
async fn a_log_that_nobody_reads_any_more_ends_nothing() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(Path::new(PROGRAM), folder.path(), "", &server.kubeconfig()).await;
    process.ready().await;
    process.hang_up();
    server.faults().begin_outage();
    eventually("the outage is noticed", async || process.get("/readyz").await.0 == 503).await;
    server.faults().end_outage();
    process.ready().await;
    assert!(process.terminate().await.success());
}

#[tokio::test]
async fn the_view_of_top_needs_a_terminal_and_restores_it() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(Path::new(PROGRAM), folder.path(), "", &server.kubeconfig()).await;
    process.ready().await;
    let top = |arguments: &str| format!("{PROGRAM} top --admin http://{} {arguments}", process.admin());
    let run = async |program: &str, arguments: &[&str], keys: &[u8]| {
        let mut command = tokio::process::Command::new(program);
        command.args(arguments).env("TERM", "xterm").kill_on_drop(true);
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(keys).await.unwrap();
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, _, error) = run("sh", &["-c", &top("")], b"").await;
    assert_eq!(code, Some(2));
    assert!(error.contains("not both a terminal; `--once` prints one frame"), "{error}");
    let (code, frame, error) = run("sh", &["-c", &top("--once --interval 100ms")], b"").await;
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(frame.starts_with("staffetta 0.1.0 on ") && frame.contains("  ATTEMPTS/S  HELD  "), "{frame}");
    assert!(!frame.contains('\x1b'), "{frame}");

    let (code, shown, _) = run("script", &["-qec", &top(""), "/dev/null"], b"jsq").await;
    assert_eq!(code, Some(0), "{shown}");
    let (first, last) = (shown.find("\x1b[?1049h"), shown.find("\x1b[?1049l"));
    assert!(first.is_some() && first < last, "the second screen is left: {shown:?}");
    assert!(process.terminate().await.success());
}

#[tokio::test]
async fn top_ends_without_a_panic_when_its_terminal_is_closed() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(Path::new(PROGRAM), folder.path(), "", &server.kubeconfig()).await;
    process.ready().await;
    let (shown, status) = (folder.path().join("shown"), folder.path().join("status"));
    // The shell outlives the terminal, and says how `top` ended.
    let top = format!("{PROGRAM} top --admin http://{}; echo $? >{}", process.admin(), status.display());
    let mut terminal = tokio::process::Command::new("script")
        .args(["-qfec", &format!("trap '' HUP; {top}"), shown.to_str().unwrap()])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    eventually("it shows its view", async || {
        std::fs::read_to_string(&shown).is_ok_and(|shown| shown.contains("\x1b[?1049h"))
    })
    .await;
    terminal.kill().await.unwrap();
    let mut ended = String::new();
    eventually("top ends", async || {
        ended = std::fs::read_to_string(&status).unwrap_or_default();
        ended.ends_with('\n')
    })
    .await;
    assert!(["0\n", "1\n"].contains(&&*ended), "{ended}");
    assert!(process.terminate().await.success());
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named_and_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("missing", None), ("malformed", Some("clusters: 7\n"))] {
        let path = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let output = Command::new(PROGRAM).args(["run", "--kubeconfig"]).arg(&path).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("cannot use the kubeconfig {}", path.display())), "{said}");
    }
}

/// The error of the program for a kubeconfig that it cannot use; `named` by the option or by the environment.
fn said_of(kubeconfig: &Path, named: bool) -> String {
    let mut command = Command::new(PROGRAM);
    command.arg("run");
    if named {
        command.arg("--kubeconfig").arg(kubeconfig);
    } else {
        command.env("KUBECONFIG", kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

#[test]
fn what_is_wrong_with_a_kubeconfig_is_reported_with_its_place_and_without_the_secrets_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, "users:\n- name: user\n  user:\n    token: hunter2\n   broken: [\n").unwrap();
    for named in [true, false] {
        let said = said_of(&path, named);
        assert!(said.contains("did not find expected key at line 5, column 4"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn the_output_of_a_credential_plugin_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let written = |expiration: Value| {
        let status = json!({ "token": "hunter2", "expirationTimestamp": expiration });
        json!({ "kind": "ExecCredential", "status": status })
    };
    for (written, end, expected) in [
        (written(json!(null)), "exit 3", "failed: exit status: 3"),
        (written(json!([])), "", "is not an `ExecCredential` at line 1"),
        (written(json!("hunter2")), "", "returned an invalid expiration time of the token"),
    ] {
        let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "sh", "args": ["-c", format!("echo '{written}'; {end}")], "env": [{ "name": "KEY", "value": "hunter2" }] });
        let user = json!({ "name": "user", "user": { "exec": exec } });
        let cluster = json!({ "name": "cluster", "cluster": { "server": "http://127.0.0.1:1" } });
        let context = json!({ "name": "context", "context": { "cluster": "cluster", "user": "user" } });
        let content = json!({ "users": [user], "clusters": [cluster], "contexts": [context], "current-context": "context" });
        std::fs::write(&path, content.to_string()).unwrap();
        let said = said_of(&path, true);
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn a_token_file_that_cannot_be_used_is_named_and_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, token) = (folder.path().join("kubeconfig"), folder.path().join("token"));
    let user = json!({ "name": "user", "user": { "tokenFile": token } });
    let cluster = json!({ "name": "cluster", "cluster": { "server": "http://127.0.0.1:1" } });
    let context = json!({ "name": "context", "context": { "cluster": "cluster", "user": "user" } });
    let content = json!({ "users": [user], "clusters": [cluster], "contexts": [context], "current-context": "context" });
    std::fs::write(&kubeconfig, content.to_string()).unwrap();
    for (content, why) in [
        (None, "No such file"),
        (Some(" \n"), "the file contains no token"),
        (Some("a\nb"), "is not a valid token"),
    ] {
        if let Some(content) = content {
            std::fs::write(&token, content).unwrap();
        }
        let output = Command::new(PROGRAM).args(["run", "--kubeconfig"]).arg(&kubeconfig).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("cannot use the token file {}", token.display())), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn a_client_certificate_that_is_replaced_ends_the_program_in_good_order() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = issue_certificate(folder.path(), &server);
    let mut process = Process::start(Path::new(PROGRAM), folder.path(), "", &kubeconfig).await;
    process.ready().await;
    issue_certificate(folder.path(), &server);
    process.says("the client certificate or key was replaced").await;
    assert!(process.ends().await.success());
    process.says("the lease is released").await;
}

#[tokio::test]
async fn the_daemon_of_the_cni_plugin_ends_in_good_order_on_sigterm_and_with_another_client_certificate() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, kubeconfig) = (folder.path().display(), folder.path().join("kubeconfig"));
    let configuration = format!(
        "[kubernetes]\n[cni_daemon]\nnode_name = \"n1\"\nlisten = \"{path}/cni.sock\"\nstate_folder = \"{path}/records\"\n"
    );
    for is_replaced in [false, true] {
        std::fs::write(&kubeconfig, issue_certificate(folder.path(), &server)).unwrap();
        let mut daemon =
            Process::start_cni_daemon(Path::new(PROGRAM), folder.path(), &configuration, &kubeconfig).await;
        daemon.ready().await;
        // A pod waits for its VIF.
        let mut waiting = tokio::net::UnixStream::connect(folder.path().join("cni.sock")).await.unwrap();
        let body = json!({ "CNI_CONTAINERID": "c", "CNI_NETNS": "/run/netns/c", "CNI_IFNAME": "eth0",
            "CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web" });
        let (body, head) =
            (body.to_string(), "POST /addNetwork HTTP/1.1\r\nHost: d\r\nConnection: close\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        waiting.write_all(request.as_bytes()).await.unwrap();
        if is_replaced {
            issue_certificate(folder.path(), &server);
        } else {
            daemon.kill("TERM").await;
        }
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("and the daemon stops"), "{answer}");
        assert!(daemon.ends().await.success());
        daemon.says("all queues are drained").await;
    }
}

/// Writes a new client certificate and key, and returns a kubeconfig that names their files.
fn issue_certificate(folder: &Path, server: &ApiServer) -> String {
    let pair = rcgen::generate_simple_self_signed(["staffetta".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.crt"), pair.cert.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
    let user =
        json!({ "name": "user", "user": { "client-certificate": "tls.crt", "client-key": "tls.key" } });
    let cluster = json!({ "name": "cluster", "cluster": { "server": server.url() } });
    let context = json!({ "name": "context", "context": { "cluster": "cluster", "user": "user" } });
    json!({ "users": [user], "clusters": [cluster], "contexts": [context], "current-context": "context" })
        .to_string()
}

#[tokio::test]
async fn a_signal_before_there_is_a_way_to_the_server_ends_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, asked) = (folder.path().join("kubeconfig"), folder.path().join("asked"));
    // Asks for credentials and gets none.
    let script = format!("echo $$ > {}; exec sleep 600", asked.display());
    let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "sh", "args": ["-c", script] });
    let user = json!({ "name": "user", "user": { "exec": exec } });
    let cluster = json!({ "name": "cluster", "cluster": { "server": "http://127.0.0.1:1" } });
    let context = json!({ "name": "context", "context": { "cluster": "cluster", "user": "user" } });
    let content = json!({ "users": [user], "clusters": [cluster], "contexts": [context], "current-context": "context" });
    std::fs::write(&kubeconfig, content.to_string()).unwrap();
    let mut program = tokio::process::Command::new(PROGRAM)
        .args(["run", "--kubeconfig"])
        .arg(&kubeconfig)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let id = async || std::fs::read_to_string(&asked).unwrap_or_default().trim().to_owned();
    eventually("it asks for credentials", async || !id().await.is_empty()).await;
    let kill = async |signal: &str, id: &str| {
        tokio::process::Command::new("kill").args([signal, id]).status().await.unwrap()
    };
    kill("-TERM", &program.id().unwrap().to_string()).await;
    let ended = tokio::time::timeout(PATIENCE, program.wait()).await;
    kill("-KILL", &id().await).await;
    assert!(ended.expect("it ends though it has no credentials").unwrap().success());
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_whatever_is_under_way() {
    const PATIENT: &str = "[relay]\nhandler_timeout = \"1h\"\n[shutdown]\ndrain = \"1h\"\n";
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(Path::new(PROGRAM), folder.path(), PATIENT, &server.kubeconfig()).await;
    process.ready().await;
    server.faults().inject(Requests::any().verb("patch").resource("pods"), 1, Fault::Hang);
    create_pod(&pods(&server)).await;
    eventually("a handler waits for an answer", async || server.faults().pending() == 0).await;
    process.kill("TERM").await;
    process.says("received a signal; stopping").await;
    process.kill("TERM").await;
    process.says("received a second signal; stopping immediately").await;
    assert_eq!(process.ends().await.code(), Some(1));
}

#[tokio::test]
async fn a_file_that_never_comes_does_not_keep_the_program_from_its_end() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let configuration = format!(
        "[kubernetes]\nenabled_handlers = [\"app_hosting\"]\n[app_hosting]\nread_timeout_ms = 100\n[[app_hosting.devices]]\n\
         name = \"r1\"\npasswordFile = \"{}\"\ndevice = {{ driver = \"FAKE\", address = \"192.0.2.1\" }}\n",
        file.display()
    );
    // It is read at the start, and nobody writes into it when the way to the device is opened.
    let written = tokio::task::spawn_blocking(move || std::fs::write(file, "hunter2\n"));
    let mut process =
        Process::start(Path::new(PROGRAM), folder.path(), &configuration, &server.kubeconfig()).await;
    process.ready().await;
    written.await.unwrap().unwrap();
    let nodes = Api::<Node>::all(Client::try_from(Config::new(server.url().parse().unwrap())).unwrap());
    eventually("the device does not answer", async || {
        let node = nodes.get_opt("r1").await.unwrap();
        let conditions = node.and_then(|node| node.status?.conditions).into_iter().flatten();
        let said: Vec<_> = conditions.filter_map(|condition| condition.message).collect();
        said.iter().any(|said| said.contains("no answer within"))
    })
    .await;
    assert!(process.terminate().await.success());
}

#[tokio::test]
async fn an_address_at_which_no_kubelet_api_can_listen_is_reported_and_its_node_is_ready_all_the_same() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // An address of nobody (RFC 5737).
    let configuration = "[kubernetes]\nenabled_handlers = [\"app_hosting\"]\n[app_hosting]\nkubelet_listen = \"192.0.2.1\"\n\
                         [[app_hosting.devices]]\nname = \"r1\"\ndevice = { driver = \"FAKE\", address = \"192.0.2.2\" }\n";
    let mut process =
        Process::start(Path::new(PROGRAM), folder.path(), configuration, &server.kubeconfig()).await;
    process.says("the kubelet API of a node cannot listen").await;
    let nodes = Api::<Node>::all(Client::try_from(Config::new(server.url().parse().unwrap())).unwrap());
    eventually("the node is ready", async || {
        let node = nodes.get_opt("r1").await.unwrap();
        let mut conditions = node.and_then(|node| node.status?.conditions).into_iter().flatten();
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
    .await;
    assert!(process.terminate().await.success());
}

#[tokio::test]
async fn a_second_signal_is_heard_though_a_file_that_never_comes_holds_up_the_start() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("devices.yaml");
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let configuration = format!(
        "[kubernetes]\nenabled_handlers = [\"app_hosting\"]\n[app_hosting]\ndevice_files = [\"{}\"]\n",
        file.display()
    );
    // It opens as soon as somebody wants to read from it; nothing is written.
    let opened = tokio::task::spawn_blocking(move || std::fs::File::options().write(true).open(file));
    let mut process =
        Process::start(Path::new(PROGRAM), folder.path(), &configuration, &server.kubeconfig()).await;
    let _held = opened.await.unwrap().unwrap();
    process.kill("TERM").await;
    process.says("received a signal; stopping").await;
    process.kill("TERM").await;
    process.says("received a second signal; stopping immediately").await;
    assert_eq!(process.ends().await.code(), Some(1));
}

#[tokio::test]
async fn an_address_that_is_taken_is_named_and_ends_the_program() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    let output = tokio::process::Command::new(PROGRAM)
        .env("STAFFETTA_ADMIN__LISTEN", &address)
        .args(["run", "--kubeconfig"])
        .arg(&kubeconfig)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("the admin server cannot listen at {address} (`admin.listen`)")),
        "{said}"
    );
}

#[tokio::test]
async fn the_first_line_of_the_log_names_the_version_and_what_is_enabled() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = ApiServer::start(Options::default()).await.unwrap();
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kubeconfig.path(), server.kubeconfig()).unwrap();
    let output = tokio::process::Command::new(PROGRAM)
        .env("STAFFETTA_ADMIN__LISTEN", taken.local_addr().unwrap().to_string())
        .env("STAFFETTA_KUBERNETES__ENABLED_HANDLERS", "vif,lb")
        .env("STAFFETTA_KUBERNETES__POD_VIF_DRIVER", "memory")
        .env("STAFFETTA_LOG__FORMAT", "json")
        .args(["run", "--kubeconfig"])
        .arg(kubeconfig.path())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let line: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!((&line["message"], &line["level"]), (&json!("staffetta starts"), &json!("INFO")), "{said}");
    assert_eq!((&line["version"], &line["handlers"]), (&json!("0.1.0"), &json!("vif,lb")), "{said}");
    assert!(!line["commit"].as_str().unwrap().is_empty(), "{said}");
    let drivers: Vec<_> = line["drivers"].as_str().unwrap().split(',').collect();
    assert!(drivers.contains(&"pod_vif_driver=memory"), "{said}");
}

#[tokio::test]
async fn the_probes_server_serves_probes_and_metrics_and_nothing_else() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = "[admin]\nprobes_listen = \"127.0.0.1:0\"\n";
    let process = Process::start(Path::new(PROGRAM), folder.path(), options, &server.kubeconfig()).await;
    process.ready().await;
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(process.probe(path).await.0, 200, "{path}");
    }
    for path in ["/", "/debug/state", "/debug/log-level"] {
        assert_eq!((process.probe(path).await.0, process.get(path).await.0), (404, 200), "{path}");
    }
}

/// The exit code, standard output and standard error of `staffetta log-level`.
async fn log_level(process: &Process, filter: &[&str]) -> (i32, String, String) {
    let mut command = tokio::process::Command::new(PROGRAM);
    command.args(["log-level", "--admin", process.admin()]).args(filter);
    let output = command.output().await.unwrap();
    let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().unwrap(), said, complained)
}

#[tokio::test]
async fn the_log_level_changes_while_the_program_runs() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut process = Process::start(Path::new(PROGRAM), folder.path(), "", &server.kubeconfig()).await;
    assert_eq!(log_level(&process, &[]).await, (0, "info\n".into(), String::new()));
    assert_eq!(log_level(&process, &["debug"]).await, (0, "debug\n".into(), String::new()));
    process.says("the log level changes").await;
    process.says("\"level\":\"DEBUG\"").await;
    let (code, _, complained) = log_level(&process, &["inof"]).await;
    assert_eq!((code, complained.contains("did you mean \"info\"?")), (2, true), "{complained}");
    assert_eq!(log_level(&process, &[]).await.1, "debug\n");
}
