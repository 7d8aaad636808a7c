//! The commands of the plugin against a daemon of the test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};
use staffetta_cni::command::run;
use staffetta_cni::error::CniError;

/// Answers one request at `socket`, and passes on the first line and the body of the request. Before an `ADD`, the plugin asks for the
/// status.
fn daemon(socket: &Path, status: &'static str, body: &Value) -> Receiver<(String, Value)> {
    let listener = UnixListener::bind(socket).unwrap();
    let (sender, requests) = channel();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    thread::spawn(move || {
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            let (line, sent) = loop {
                let count = stream.read(&mut buffer).unwrap();
                request.extend(&buffer[..count]);
                let text = String::from_utf8_lossy(&request);
                if let Some((head, sent)) = text.split_once("\r\n\r\n")
                    && let Ok(sent) = serde_json::from_str(sent)
                {
                    break (head.lines().next().unwrap().to_owned(), sent);
                }
            };
            if line.contains("/status") && status != "204 No Content" {
                write!(stream, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").unwrap();
                continue;
            }
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
            return sender.send((line, sent)).unwrap();
        }
    });
    requests
}

fn call(command: &str, configuration: &Value) -> Result<String, CniError> {
    let variables = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/c1"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"),
        ("CNI_PATH", "/opt/cni/bin"),
    ];
    let variable =
        |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    run(variable, configuration.to_string().as_bytes())
}

fn envelope(name: &str, data: &Value) -> Value {
    json!({ "versioned_object.name": name, "versioned_object.data": data })
}

fn list(name: &str, objects: &[Value]) -> Value {
    envelope(name, &json!({ "objects": objects }))
}

fn vif() -> Value {
    let subnet = json!({ "cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "dns": ["10.0.0.2"],
        "routes": list("RouteList", &[envelope("Route", &json!({ "cidr": "10.1.0.0/16", "gateway": "10.0.0.3" }))]),
        "ips": list("FixedIPList", &[envelope("FixedIP", &json!({ "address": "10.0.0.9" }))]) });
    let network = json!({ "mtu": 1450, "subnets": list("SubnetList", &[envelope("Subnet", &subnet)]) });
    let id = "889e8fb0-8b3a-4f0e-9a77-0123456789ab";
    envelope(
        "VIFOpenVSwitch",
        &json!({ "id": id, "address": "fa:16:3e:00:00:01", "network": envelope("Network", &network) }),
    )
}

#[test]
fn add_prints_the_result_in_the_version_of_the_configuration() {
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let requests = daemon(&socket, "202 Accepted", &vif());
        let printed = call("ADD", &json!({ "cniVersion": version, "daemon": socket })).unwrap();
        let mut expected = json!({ "cniVersion": version,
            "interfaces": [{ "name": "tap889e8fb0-8b" },
                { "name": "eth0", "mac": "fa:16:3e:00:00:01", "sandbox": "/run/netns/c1" }],
            "ips": [{ "address": "10.0.0.9/24", "gateway": "10.0.0.1", "interface": 1 }],
            "routes": [{ "dst": "10.1.0.0/16", "gw": "10.0.0.3" }, { "dst": "0.0.0.0/0", "gw": "10.0.0.1" }],
            "dns": { "nameservers": ["10.0.0.2"] } });
        if version.starts_with('0') {
            expected["ips"][0]["version"] = "4".into();
        }
        if version == "1.1.0" {
            expected["interfaces"][1]["mtu"] = 1450.into();
        }
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), expected);
        let (line, sent) = requests.recv().unwrap();
        assert_eq!(line, "POST /addNetwork HTTP/1.1");
        assert_eq!(
            (&sent["CNI_CONTAINERID"], &sent["config_kuryr"]["cniVersion"]),
            (&"c1".into(), &version.into())
        );
    }
}

#[test]
fn add_keeps_the_result_of_the_plugins_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let _requests = daemon(&socket, "202 Accepted", &vif());
    let previous = json!({ "cniVersion": "1.0.0", "interfaces": [{ "name": "lo" }], "ips": [] });
    let printed =
        call("ADD", &json!({ "cniVersion": "1.0.0", "daemon": socket, "prevResult": previous })).unwrap();
    let result: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&result["interfaces"][0]["name"], &result["ips"][0]["interface"]), (&"lo".into(), &2.into()));
}

#[test]
fn an_error_of_the_daemon_is_printed_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let body = json!({ "code": 11, "msg": "the pod default/web has no VIF after 60 s", "details": "d" });
    let _requests = daemon(&socket, "504 Gateway Timeout", &body);
    let error = call("ADD", &json!({ "cniVersion": "1.0.0", "daemon": socket })).unwrap_err();
    let mut printed = json!(error);
    assert_eq!(printed.as_object_mut().unwrap().remove("cniVersion"), Some("1.0.0".into()));
    assert_eq!(printed, body);
}

#[test]
fn a_daemon_that_is_gone_is_named_and_the_runtime_tries_again() {
    let configuration = json!({ "cniVersion": "1.1.0", "daemon": "/run/none/cni.sock" });
    for (command, code) in [("ADD", 11), ("DEL", 11), ("STATUS", 50)] {
        let error = call(command, &configuration).unwrap_err();
        assert_eq!(
            (error.code, &*error.msg),
            (code, "the daemon staffetta does not answer at /run/none/cni.sock")
        );
    }
}

#[test]
fn a_daemon_that_ends_before_it_has_answered_is_named_and_the_runtime_tries_again() {
    for answer in ["", "HTTP/1.1 202 Accepted\r\nContent-Length: 9\r\n\r\n{"] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let daemon = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = call("ADD", &json!({ "cniVersion": "1.0.0", "daemon": socket })).unwrap_err();
        daemon.join().unwrap();
        assert_eq!(error.code, 11);
        assert!(error.msg.contains("does not answer") && error.details.contains("is its pod"), "{error:?}");
    }
}

#[test]
fn an_error_has_the_version_of_the_configuration() {
    for version in ["0.3.1", "1.1.0", "9.9.9"] {
        let error = call("DEL", &json!({ "cniVersion": version, "daemon": "/run/none" })).unwrap_err();
        assert_eq!(error.cni_version.as_deref(), Some(version));
    }
    assert_eq!(call("DEL", &json!({ "daemon": "/run/none" })).unwrap_err().cni_version, None);
}

#[test]
fn a_daemon_that_hangs_is_found_before_the_time_that_a_pod_may_wait() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    // It accepts connections, and nobody reads them.
    let _listener = UnixListener::bind(&socket).unwrap();
    let (sender, ended) = channel();
    let configuration = json!({ "cniVersion": "1.0.0", "daemon": socket });
    thread::spawn(move || sender.send(call("ADD", &configuration).unwrap_err()));
    let error =
        ended.recv_timeout(std::time::Duration::from_secs(90)).expect("it waits for the VIF, not the daemon");
    assert!(error.code == 11 && error.msg.contains("does not answer"), "{error:?}");
}

#[test]
fn each_missing_variable_is_named() {
    let all = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"];
    for missing in all {
        let variable = |name: &str| match name {
            "CNI_COMMAND" => Some("ADD".to_owned()),
            name => (name != missing && all.contains(&name)).then(|| "x".to_owned()),
        };
        let error = run(variable, &b"{}"[..]).unwrap_err();
        assert_eq!((error.code, error.msg), (4, format!("{missing} is not set")));
    }
}

#[test]
fn check_status_and_gc_reach_the_daemon() {
    let interfaces = json!([{ "name": "eth0", "sandbox": "/run/netns/c1" }]);
    let attachments = json!([{ "containerID": "c1", "ifname": "eth0" }]);
    for (command, path) in
        [("CHECK", "/checkNetwork"), ("DEL", "/delNetwork"), ("STATUS", "/status"), ("GC", "/gc")]
    {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let requests = daemon(&socket, "204 No Content", &Value::Null);
        let configuration = json!({ "cniVersion": "1.1.0", "daemon": socket,
            "prevResult": { "interfaces": interfaces }, "cni.dev/valid-attachments": attachments });
        assert_eq!(call(command, &configuration).unwrap(), "");
        assert_eq!(requests.recv().unwrap().0, format!("POST {path} HTTP/1.1"));
    }
}

#[test]
fn bad_input_has_the_codes_of_the_specification() {
    let code = |variable: fn(&str) -> Option<String>, input: &[u8]| run(variable, input).unwrap_err().code;
    let add = |name: &str| (name == "CNI_COMMAND").then(|| "ADD".to_owned());
    assert_eq!(code(add, b"{"), 6);
    assert_eq!(code(add, b"[]"), 6);
    assert_eq!(code(add, &vec![b' '; (1 << 20) + 1]), 6);
    assert_eq!(code(add, br#"{"cniVersion":"9.9.9"}"#), 1);
    assert_eq!(code(add, br#"{"cniVersion":7}"#), 1);
    assert_eq!(code(add, b"{}"), 4);
    assert_eq!(code(|_| None, b"{}"), 4);
    assert_eq!(call("GC", &json!({ "cniVersion": "1.0.0" })).unwrap_err().code, 4);
    assert_eq!(call("GC", &json!({ "cniVersion": "1.1.0" })).unwrap_err().code, 7);
    assert_eq!(call("CHECK", &json!({ "cniVersion": "1.0.0" })).unwrap_err().code, 7);
    assert_eq!(call("ADD", &json!({ "cniVersion": "1.0.0", "daemon": 7 })).unwrap_err().code, 7);
}

#[test]
fn version_answers_without_a_known_configuration() {
    for input in ["", "{", r#"{"cniVersion":"9.9.9"}"#] {
        let answer =
            run(|name| (name == "CNI_COMMAND").then(|| "VERSION".to_owned()), input.as_bytes()).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["supportedVersions"], json!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"]));
    }
}
