//! A client of few words: one request a connection.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use staffetta_iosxe_device::{Device, Options, Site, Times};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const CFG: &str = "/restconf/data/Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data";
pub(crate) const OPER: &str = "/restconf/data/Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data";
pub(crate) const ARP: &str = "/restconf/data/Cisco-IOS-XE-arp-oper:arp-data";
pub(crate) const HARDWARE: &str = "/restconf/data/Cisco-IOS-XE-device-hardware-oper:device-hardware-data";
pub(crate) const RPC: &str = "/restconf/operations/Cisco-IOS-XE-rpc:app-hosting";
const JSON: &str = "application/yang-data+json";

/// The time limit of a test step. It does not measure speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A site with one device whose changes of state take a millisecond.
pub(crate) fn device(change: impl FnOnce(&mut Options)) -> (Site, Device) {
    let mut options = Options { times: Times::each(Duration::from_millis(1)), ..Options::default() };
    change(&mut options);
    let site = Site::start().unwrap();
    let device = site.device(options).unwrap();
    (site, device)
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.body))
    }

    /// The tag of the error, in either form.
    pub(crate) fn tag(&self) -> String {
        let error = &self.json()["ietf-restconf:errors"]["error"];
        let error = error.get(0).unwrap_or(error);
        error["error-tag"].as_str().unwrap_or_default().to_owned()
    }
}

/// A request in the making.
pub(crate) struct Asking<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: Vec<(&'a str, String)>,
    pub(crate) body: String,
}

impl<'a> Asking<'a> {
    /// With the right credentials and media types.
    pub(crate) fn new(method: &'a str, path: &'a str, body: &Value) -> Self {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = vec![
            ("Authorization", basic("admin", "cisco-123")),
            ("Accept", JSON.into()),
            ("Content-Type", JSON.into()),
        ];
        Self { method, path, headers, body }
    }

    pub(crate) fn header(mut self, name: &'a str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Over this connection, which ends with it.
    pub(crate) async fn over(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<Answer> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nHost: device\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.method,
            self.path,
            self.body.len()
        );
        for (name, value) in &self.headers {
            text.extend([name, ": ", value, "\r\n"]);
        }
        stream.write_all((text + "\r\n" + &self.body).as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Answer { code, head: head.to_ascii_lowercase(), body: body.to_owned() })
    }

    pub(crate) async fn of(self, device: &Device) -> io::Result<Answer> {
        let asked = async { self.over(TcpStream::connect(device.address()).await?).await };
        tokio::time::timeout(PATIENCE, asked).await.expect("it is answered in time")
    }
}

pub(crate) fn basic(username: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{username}:{password}")))
}

pub(crate) async fn ask(device: &Device, method: &str, path: &str, body: &Value) -> Answer {
    Asking::new(method, path, body).of(device).await.unwrap()
}

pub(crate) async fn get(device: &Device, path: &str) -> Answer {
    ask(device, "GET", path, &Value::Null).await
}

/// The body that configures an app, with its labels and a profile.
pub(crate) fn app(name: &str) -> Value {
    json!({ "Cisco-IOS-XE-app-hosting-cfg:app": [{
        "application-name": name,
        "application-network-resource": {
            "vnic-gateway-0": "0", "virtualportgroup-guest-interface-name-1": "0",
        },
        "application-resource-profile": {
            "profile-name": "custom", "cpu-units": 1000, "memory-capacity-mb": 512, "disk-size-mb": 1024, "vcpu": 1,
        },
        "run-optss": { "run-opts": [
            { "line-index": 1, "line-run-opts": "--label cisco.vk/pod-name=web" },
            { "line-index": 2, "line-run-opts": "--label cisco.vk/pod-namespace=default" },
        ] },
        "start": true,
    }] })
}

pub(crate) async fn configure(device: &Device, name: &str) -> Answer {
    ask(device, "POST", &format!("{CFG}/apps"), &app(name)).await
}

pub(crate) async fn operate(device: &Device, operation: &str, name: &str) -> Answer {
    let mut arguments = json!({ "appid": name });
    if operation == "install" {
        arguments["package"] = "flash:/hello.tar".into();
    }
    ask(device, "POST", RPC, &json!({ "Cisco-IOS-XE-rpc:input": { operation: arguments } })).await
}

/// Asks again until the operational data of the app tell this state; None: until there are none.
pub(crate) async fn until_state(device: &Device, name: &str, state: Option<&str>) {
    let asked = async {
        loop {
            let answer = get(device, &format!("{OPER}/app={name}")).await;
            let reported = match answer.code {
                200 => answer.json()["Cisco-IOS-XE-app-hosting-oper:app"][0]["details"]["state"].clone(),
                _ => Value::Null,
            };
            if reported.as_str() == state {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, asked).await;
    waited.unwrap_or_else(|_| panic!("{name} is not {state:?}: {:?}", device.apps()));
}
