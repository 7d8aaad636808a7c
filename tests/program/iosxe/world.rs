//! An API server, devices, and a controller in a process of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta_apiserver::ApiServer;
use staffetta_iosxe_device::{Device, Options, Site, Times};

use super::refusals::refusals;
use crate::process::{PATIENCE, Process, eventually};

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");

/// Everything but the controller.
pub(crate) struct World {
    pub(crate) site: Site,
    pub(crate) devices: Vec<Device>,
    pub(crate) pods: Api<Pod>,
    pub(crate) nodes: Api<Node>,
    events: Api<Event>,
    /// The embedded API server, unless there is a real one.
    _server: Option<ApiServer>,
    /// The CA of the client certificates of a real API server.
    client_authority: Option<PathBuf>,
    kubeconfig: String,
    folder: tempfile::TempDir,
    /// The descriptions of the devices, by number.
    pub(crate) described: Vec<Value>,
    /// Further options of the section `[app_hosting]`.
    pub(crate) options: String,
}

impl World {
    /// Starts so many devices whose state changes take 20 ms each.
    pub(crate) async fn new(count: usize, change: impl Fn(&mut Options)) -> Self {
        let server = ApiServer::start(staffetta_apiserver::Options::default()).await.unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        let kubeconfig = server.kubeconfig();
        Self { _server: Some(server), ..Self::of(client, kubeconfig, "default", count, change) }
    }

    /// The same on the server of this kubeconfig, with pods in this namespace.
    pub(crate) async fn on(
        kubeconfig: &Path,
        namespace: &str,
        count: usize,
        change: impl Fn(&mut Options),
    ) -> Self {
        let client = staffetta::connect::client(Some(kubeconfig), None).await.unwrap();
        let client_authority = Some(kubeconfig.with_file_name("pki").join("ca.crt"));
        let kubeconfig = std::fs::read_to_string(kubeconfig).unwrap();
        Self { client_authority, ..Self::of(client, kubeconfig, namespace, count, change) }
    }

    fn of(
        client: Client,
        kubeconfig: String,
        namespace: &str,
        count: usize,
        change: impl Fn(&mut Options),
    ) -> Self {
        // An error means that somebody installed one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let site = Site::start().unwrap();
        let device = |number| {
            let mut options = Options {
                name: format!("edge-{number}"),
                times: Times::each(Duration::from_millis(20)),
                ..Options::default()
            };
            change(&mut options);
            site.device(options).unwrap()
        };
        let devices: Vec<_> = (1..=count).map(device).collect();
        let described = devices.iter().map(describe).collect();
        Self {
            devices,
            site,
            pods: Api::namespaced(client.clone(), namespace),
            nodes: Api::all(client.clone()),
            events: Api::namespaced(client, namespace),
            _server: None,
            client_authority: None,
            kubeconfig,
            folder: tempfile::tempdir().unwrap(),
            described,
            options: String::new(),
        }
    }

    pub(crate) fn device(&self) -> &Device {
        &self.devices[0]
    }

    /// A folder that lives as long as this.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A controller that has just been started.
    pub(crate) async fn controller(&self) -> Process {
        let devices = self.folder().join("devices.yaml");
        // JSON is YAML.
        std::fs::write(&devices, json!({ "devices": self.described }).to_string()).unwrap();
        let options = format!(
            "[kubernetes]\nenabled_handlers = [\"app_hosting\"]\n\
             [app_hosting]\ndevice_files = [{:?}]\npoll_interval_ms = 100\nhealth_interval_ms = 500\n\
             read_timeout_ms = 500\nunreachable_after_ms = 300\norphan_grace_ms = 200\n{}{}\
             [iosxe]\nrequest_timeout_ms = 1000\nstep_limit_ms = 2000\nconnect_timeout_ms = 500\n\
             [relay]\nretry_interval = \"50ms\"\nretry_max_interval = \"500ms\"\nfailed_resync = \"1s\"\n\
             [leader_election]\nenabled = false\n",
            devices.display().to_string(),
            // Only a real server asks.
            self.client_authority.as_ref().map_or_else(
                || "kubelet = false\n".to_owned(),
                |file| format!("kubelet_client_ca_file = {:?}\n", file.display().to_string()),
            ),
            self.options,
        );
        Process::start(Path::new(PROGRAM), self.folder(), &options, &self.kubeconfig).await
    }

    /// Makes a pod.
    pub(crate) async fn create(&self, pod: &Value) {
        self.pods
            .create(&PostParams::default(), &serde_json::from_value(pod.clone()).unwrap())
            .await
            .unwrap();
    }

    /// Asks for the deletion of a pod.
    pub(crate) async fn delete(&self, name: &str) {
        self.pods.delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn phase(&self, name: &str) -> Option<String> {
        self.pods.get_opt(name).await.unwrap()?.status?.phase
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) {
        let reached = async {
            while self.phase(name).await.as_deref() != Some(phase) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let reached = tokio::time::timeout(PATIENCE, reached).await.is_ok();
        assert!(reached, "not in time: {name} is {phase}; told was {:#?}", self.reported().await);
    }

    /// All that Events and the conditions of nodes say.
    async fn reported(&self) -> Vec<String> {
        let events = self.events.list(&ListParams::default()).await.unwrap().into_iter();
        let mut reported: Vec<_> =
            events.map(|event| format!("{:?}: {:?}", event.involved_object.name, event.message)).collect();
        for node in self.nodes.list(&ListParams::default()).await.unwrap() {
            let conditions = node.status.and_then(|status| status.conditions).into_iter().flatten();
            reported.extend(
                conditions.map(|one| format!("{:?}: {}: {:?}", node.metadata.name, one.type_, one.message)),
            );
        }
        reported
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let what = format!("{name} is gone");
        eventually(&what, async || self.pods.get_opt(name).await.unwrap().is_none()).await;
    }

    /// Waits until the node of a device is ready, or is not.
    pub(crate) async fn until_ready(&self, node: &str, ready: bool) {
        let what = format!("{node} is {}ready", if ready { "" } else { "not " });
        eventually(&what, async || {
            let Some(node) = self.nodes.get_opt(node).await.unwrap() else { return false };
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let status = conditions.into_iter().find(|one| one.type_ == "Ready").map(|one| one.status);
            status.is_some_and(|status| (status == "True") == ready)
        })
        .await;
    }

    /// Waits for an Event at an object of this name whose message contains this.
    pub(crate) async fn until_reported(&self, name: &str, text: &str) {
        let what = format!("an Event at {name} says {text}");
        let mut reported = Vec::new();
        let found = async {
            loop {
                let events = self.events.list(&ListParams::default()).await.unwrap();
                let of_it =
                    events.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
                reported = of_it.filter_map(|event| event.message).collect::<Vec<_>>();
                if reported.iter().any(|message| message.contains(text)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let found = tokio::time::timeout(PATIENCE, found).await;
        assert!(found.is_ok(), "not in time: {what}; told was {reported:#?}");
    }

    /// Nothing is left on any device, and each app was installed once, one after the other.
    pub(crate) fn assert_clean(&self) {
        for device in &self.devices {
            let ledger = device.ledger();
            assert_eq!(device.apps(), [], "{:#?}", ledger.entries());
            assert!(ledger.existing().is_empty() && ledger.address_conflicts().is_empty());
            assert!(ledger.most_installs_at_once() <= 1);
        }
    }

    /// Each app was installed once, and no operation was refused, unless the device had started the app by itself since
    /// its state was read: each operation is refused once at most for that, and an install or a stop never.
    pub(crate) fn assert_done_once(&self) {
        for device in &self.devices {
            let ledger = device.ledger();
            assert!(ledger.installs().values().all(|count| *count == 1), "{:#?}", ledger.entries());
            let mut refused = refusals(&ledger);
            let mut overtaken = BTreeSet::new();
            refused.retain(|refusal| {
                !(refusal.met_own_start() && overtaken.insert((refusal.app, refusal.operation)))
            });
            assert!(refused.is_empty(), "{refused:#?} in {:#?}", ledger.entries());
        }
    }
}

/// The description of a device for the controller.
fn describe(device: &Device) -> Value {
    json!({ "name": device.name(), "device": {
        "driver": "XE", "address": device.address().ip(), "port": device.address().port(),
        "username": "admin", "password": "cisco-123", "tls": { "enabled": false }, "xe": {},
    } })
}

/// A pod for the device of this number.
pub(crate) fn pod(name: &str, device: usize) -> Value {
    json!({
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": format!("edge-{device}"), "automountServiceAccountToken": false,
            "enableServiceLinks": false, "terminationGracePeriodSeconds": 1,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "app", "image": "flash:/hello.tar", "imagePullPolicy": "IfNotPresent" }],
        },
    })
}
