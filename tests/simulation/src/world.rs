//! The world outside of the replicas: the API server and the cloud, the record of what happened, and the invariants, which are checked
//! after each request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::Value;
use staffetta_apiserver::{InProcess, Options};
use staffetta_driver::{ProvisioningStatus, VifId};
use staffetta_memory::{MemoryNetwork, MemoryOptions, MemoryServices};
use tokio::time::Instant;

use crate::bases::Bases;
use crate::choices::Choices;
use crate::leases::Leases;
use crate::views::{PodView, ServiceView, text};

pub(crate) type Body = http_body_util::combinators::UnsyncBoxBody<axum::body::Bytes, Error>;
pub(crate) type Error = tower::BoxError;

/// The maximum number of ready ports for each node, as configured.
const POOL_MAX: usize = 4;

/// The world of one seed.
pub(crate) struct World {
    pub(crate) choices: Choices,
    pub(crate) server: InProcess,
    pub(crate) network: Arc<MemoryNetwork>,
    pub(crate) services: Arc<MemoryServices>,
    pub(crate) bases: Bases,
    leases: Leases,
    begin: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `true` while faults happen.
    stormy: bool,
    /// One line for each request that was executed, in their order.
    trace: Vec<String>,
    violations: Vec<String>,
    pods: BTreeMap<String, PodView>,
    /// The node of each pod, also of one that is gone, by its name.
    nodes: BTreeMap<String, String>,
    /// The VIF that a replica wrote into the annotation of each pod, by its UID.
    shown: BTreeMap<String, VifId>,
    /// The VIFs that somebody wrote into the annotation of another pod: nothing proves to a new leader which of two pods that have not
    /// been started yet is the right one.
    copied: BTreeSet<VifId>,
    /// The VIF with which each pod was started, by its UID.
    bound: BTreeMap<String, VifId>,
    services: BTreeMap<String, ServiceView>,
    policies: Vec<Value>,
    /// The addresses of the endpoints of each service, by its name.
    endpoints: BTreeMap<String, BTreeSet<String>>,
    /// The number of requests that changed something, without renewals of Leases and without Events.
    changes: usize,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let server = Options { bookmark_interval: Duration::from_secs(20), ..Options::default() };
        let options = MemoryOptions { activation_delay_ms: 500, cool_down_ms: 0, ..MemoryOptions::default() };
        Self {
            choices: Choices::new(seed),
            server: InProcess::new(&server),
            network: Arc::new(MemoryNetwork::new(options.clone())),
            services: Arc::new(MemoryServices::new(options)),
            bases: Bases::default(),
            leases: Leases::default(),
            begin: Instant::now(),
            state: Mutex::new(State { stormy: true, ..State::default() }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Returns `true` while faults happen.
    pub(crate) fn is_stormy(&self) -> bool {
        self.state().stormy
    }

    /// Ends the faults.
    pub(crate) fn end_storm(&self) {
        self.state().stormy = false;
        self.note("world", "the faults end");
    }

    /// Returns the time since the begin of the world.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Adds a line to the trace.
    pub(crate) fn note(&self, who: &str, what: &str) {
        let line = format!("{:>9.3} {who:<12} {what}", self.elapsed().as_secs_f64());
        self.state().trace.push(line);
    }

    /// Records that an invariant does not hold.
    pub(crate) fn violated(&self, what: &str) {
        self.note("VIOLATION", what);
        self.state().violations.push(what.to_owned());
    }

    /// Returns the lines of the trace.
    pub(crate) fn trace(&self) -> Vec<String> {
        self.state().trace.clone()
    }

    /// Returns the violations of invariants so far.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Returns the number of changes so far, without those of Leases and Events.
    pub(crate) fn changes(&self) -> usize {
        self.state().changes
    }

    /// Returns the pods at the API server by their UIDs.
    pub(crate) fn pods(&self) -> BTreeMap<String, PodView> {
        self.state().pods.clone()
    }

    /// Returns the name of the node of a pod, which may be gone.
    pub(crate) fn node_of(&self, pod: &str) -> Option<String> {
        self.state().nodes.get(pod).cloned()
    }

    /// Returns the services at the API server by their UIDs.
    pub(crate) fn services_view(&self) -> BTreeMap<String, ServiceView> {
        self.state().services.clone()
    }

    /// Returns the network policies at the API server.
    pub(crate) fn policies(&self) -> Vec<Value> {
        self.state().policies.clone()
    }

    /// Returns the addresses of the endpoints of a service.
    pub(crate) fn endpoints(&self, service: &str) -> BTreeSet<String> {
        self.state().endpoints.get(service).cloned().unwrap_or_default()
    }

    /// Returns the VIF that the leader has given to the pod.
    pub(crate) fn shown(&self, uid: &str) -> Option<VifId> {
        self.state().shown.get(uid).cloned()
    }

    /// Records that somebody writes the VIF into the annotation of another pod.
    pub(crate) fn copy(&self, vif: VifId) {
        self.state().copied.insert(vif);
    }

    /// Records that the pod is started with this VIF.
    pub(crate) fn start_pod(&self, uid: &str, vif: &VifId) {
        let is_used = self.state().bound.values().any(|bound| bound == vif);
        if is_used {
            self.violated(&format!("two pods run with the VIF {vif}"));
        }
        self.state().bound.insert(uid.to_owned(), vif.clone());
    }

    /// Sends a request of somebody whose requests have no faults. Returns the status and the body of the response.
    pub(crate) async fn request(&self, who: &str, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let media = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let sent = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let response = self.execute(who, request.body(sent).expect("it is a request")).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes);
        (status, serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default())
    }

    /// Executes a request of `who` at the API server, and checks the invariants.
    pub(crate) async fn execute(&self, who: &str, request: Request<Vec<u8>>) -> Response<Body> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let content = String::from_utf8_lossy(request.body()).into_owned();
        let response = self.server.answer(request.map(axum_body)).await;
        if method == Method::GET {
            if !path.contains("/leases") {
                self.note(who, &format!("GET {path} {}", response.status().as_u16()));
            }
            return response.map(|body| body.map_err(Into::into).boxed_unsync());
        }
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let held = self.leases.holders();
        if parts.status.is_success() {
            self.changed(who, &method, &path, &bytes).await;
        }
        // The renewals would hide the rest.
        if !path.contains("/leases") || !parts.status.is_success() || self.leases.holders() != held {
            self.note(who, &format!("{method} {path} {} {}", parts.status.as_u16(), shortened(&content)));
        }
        let body = http_body_util::Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        Response::from_parts(parts, body)
    }

    /// Updates the state after a change, and checks what must hold then.
    async fn changed(&self, who: &str, method: &Method, path: &str, object: &[u8]) {
        let is_lease = path.contains("/leases");
        self.collect_leases().await;
        if is_lease {
            let object: Value = serde_json::from_slice(object).unwrap_or_default();
            self.leases.changed(who, method, path, &object);
        } else if !path.contains("/events") {
            self.state().changes += 1;
        }
        if path.contains("/pods") {
            self.read_pods(who).await;
        }
        if path.contains("/services") {
            let services = self.list("/api/v1/services").await;
            let view = |service: &Value| (text(&service["metadata"]["uid"]), ServiceView::of(service));
            self.state().services = services.iter().map(view).collect();
        }
        if path.contains("/networkpolicies") {
            let policies = self.list("/apis/networking.k8s.io/v1/networkpolicies").await;
            self.state().policies = policies;
        }
        if path.contains("/endpointslices") {
            let slices = self.list("/apis/discovery.k8s.io/v1/endpointslices").await;
            let addresses = |slice: &Value| {
                let endpoints = slice["endpoints"].as_array().into_iter().flatten();
                endpoints.map(|endpoint| text(&endpoint["addresses"][0])).collect()
            };
            let view = |slice: &Value| (text(&slice["metadata"]["name"]), addresses(slice));
            self.state().endpoints = slices.iter().map(view).collect();
        }
    }

    /// Looks for Leases that the API server has deleted together with their nodes.
    async fn collect_leases(&self) {
        if self.leases.are_held() {
            let leases = self.list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").await;
            self.leases.retain(&leases.iter().map(|lease| text(&lease["metadata"]["name"])).collect());
        }
    }

    /// Checks that `who` holds this Lease, and may change something now. It is called when a request is sent.
    pub(crate) fn sends(&self, who: &str, lease: &str, what: &str) {
        if !self.leases.permits(who, lease) {
            self.violated(&format!("{who} sends without the Lease {lease}: {what}"));
        }
    }

    /// Returns all objects of a kind.
    async fn list(&self, path: &str) -> Vec<Value> {
        let request = Request::get(path).body(axum_body(Vec::new())).expect("it is a request");
        let list = self.server.answer(request).await.into_body().collect().await;
        let list: Value =
            serde_json::from_slice(&list.expect("it is complete").to_bytes()).expect("it is JSON");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Reads all pods after `who` changed one.
    async fn read_pods(&self, who: &str) {
        let items = self.list("/api/v1/pods").await;
        let pods: BTreeMap<_, _> =
            items.iter().map(|pod| (text(&pod["metadata"]["uid"]), PodView::of(pod))).collect();
        let mut wrong = Vec::new();
        let mut state = self.state();
        let before = std::mem::replace(&mut state.pods, pods.clone());
        state.nodes.extend(pods.values().map(|pod| (pod.name.clone(), pod.node.clone())));
        // A copy that is gone proves nothing wrong any more.
        let shown = |vif: &VifId| {
            pods.values().filter(|pod| pod.vifs().is_some_and(|vifs| vifs.default_vif.id == *vif)).count()
        };
        state.copied.retain(|vif| shown(vif) > 1);
        state.shown.retain(|uid, _| pods.contains_key(uid));
        state.bound.retain(|uid, _| pods.get(uid).is_some_and(|pod| !pod.is_finished()));
        for (uid, pod) in &pods {
            let same = before.get(uid).is_some_and(|before| before.annotation == pod.annotation);
            if same || !who.starts_with("replica") {
                continue;
            }
            let Some(vifs) = pod.vifs() else {
                state.shown.remove(uid);
                continue;
            };
            let vif = vifs.default_vif.id;
            for (id, other) in pods.iter().filter(|(id, other)| *id != uid && !other.is_finished()) {
                let shows = other.vifs().is_some_and(|vifs| vifs.default_vif.id == vif);
                let is_given = shows && state.shown.get(id) == Some(&vif) && !state.copied.contains(&vif);
                if is_given || state.bound.get(id) == Some(&vif) {
                    wrong.push(format!(
                        "{who} shows the VIF {vif} on {}, which {} uses",
                        pod.name, other.name
                    ));
                }
            }
            if state.bound.get(uid).is_some_and(|bound| *bound != vif) {
                wrong.push(format!("{who} shows another VIF on the running pod {}", pod.name));
            }
            state.shown.insert(uid.clone(), vif);
        }
        drop(state);
        for wrong in wrong {
            self.violated(&wrong);
        }
    }

    /// Executes a call of the cloud, and checks that it deletes no VIF that a pod uses.
    pub(crate) async fn call<T>(
        &self,
        who: &str,
        what: &str,
        changes: bool,
        work: impl Future<Output = T>,
    ) -> T {
        let (before, balancers) = (self.network.ports(), self.services.load_balancers());
        let result = work.await;
        self.note(who, what);
        if changes {
            self.state().changes += 1;
        }
        let gone = before.iter().map(|port| &port.vif.id).filter(|id| self.network.port(id).is_none());
        let gone: Vec<_> = gone.cloned().collect();
        self.check_deleted(who, &gone);
        for (owner, balancer) in balancers {
            let shows =
                |service: &ServiceView| !service.deleting && service.shown.as_ref() == Some(&balancer.id);
            let is_gone = self.services.load_balancer(&balancer.id).is_none();
            let service = owner.and_then(|owner| self.state().services.get(owner.uid.as_str()).cloned());
            if is_gone && balancer.status != ProvisioningStatus::Error && service.as_ref().is_some_and(shows)
            {
                self.violated(&format!(
                    "{who} deletes the load balancer {} that a service shows",
                    balancer.id
                ));
            }
        }
        result
    }

    fn check_deleted(&self, who: &str, gone: &[VifId]) {
        let state = self.state();
        let mut wrong = Vec::new();
        for id in gone {
            for (uid, pod) in &state.pods {
                if state.bound.get(uid) == Some(id) {
                    wrong.push(format!("{who} deletes the VIF {id} of the running pod {}", pod.name));
                }
                let shows = pod.vifs().is_some_and(|vifs| vifs.default_vif.id == *id);
                if shows && state.shown.get(uid) == Some(id) {
                    wrong.push(format!("{who} deletes the VIF {id} while {} shows it", pod.name));
                }
            }
        }
        drop(state);
        for wrong in wrong {
            self.violated(&wrong);
        }
    }

    /// Returns the living pods that the controller cannot help, and whether they must be deleted or have only an annotation to remove: those
    /// with an annotation that the leader did not write, and those that run with a VIF that somebody has deleted.
    pub(crate) fn hopeless(&self) -> Vec<(String, bool)> {
        let state = self.state();
        let hopeless = |(uid, pod): (&String, &PodView)| {
            let vif = pod.vifs().map(|vifs| vifs.default_vif.id);
            let is_gone = state.bound.get(uid).is_some_and(|bound| self.network.port(bound).is_none());
            let is_forged =
                pod.annotation.is_some() && (vif.is_none() || vif.as_ref() != state.shown.get(uid));
            ((is_gone || is_forged) && !pod.deleting).then(|| (pod.name.clone(), is_gone || vif.is_some()))
        };
        state.pods.iter().filter_map(hopeless).collect()
    }

    /// Returns the first reason why the world has not settled; `None` if it has.
    pub(crate) fn unsettled_pods(&self) -> Option<String> {
        let (pods, ports) = (self.pods(), self.network.ports());
        let mut taken = BTreeMap::new();
        for pod in pods.values() {
            let name = &pod.name;
            if pod.deleting {
                return Some(format!(
                    "the pod {name} is still being deleted, with {} finalizers",
                    pod.finalizers
                ));
            }
            if pod.is_finished() {
                continue;
            }
            let Some(vifs) = pod.vifs() else { return Some(format!("the pod {name} shows no VIF")) };
            let vif = vifs.default_vif;
            if !vif.active || pod.phase != "Running" {
                return Some(format!("the pod {name} does not run, its VIF is active: {}", vif.active));
            }
            if !ports.iter().any(|port| port.vif.id == vif.id) {
                return Some(format!("the VIF {} of the pod {name} does not exist", vif.id));
            }
            if let Some(other) = taken.insert(vif.id.clone(), name.clone()) {
                return Some(format!("the pods {name} and {other} show one VIF"));
            }
        }
        let pooled =
            ports.iter().filter(|port| port.owner.is_none() && !taken.contains_key(&port.vif.id)).count();
        if pooled > 2 * POOL_MAX {
            return Some(format!("{pooled} ports without a pod, more than the pools of two nodes may have"));
        }
        for port in ports {
            let Some(owner) = &port.owner else { continue };
            match pods.get(&owner.uid.to_string()) {
                Some(pod) if !pod.is_finished() => {
                    if !taken.contains_key(&port.vif.id) {
                        return Some(format!(
                            "the port {} of the pod {} is not the one that it shows",
                            port.vif.id, pod.name
                        ));
                    }
                }
                _ => {
                    return Some(format!(
                        "the port {} belongs to no living pod: {}",
                        port.vif.id, owner.name
                    ));
                }
            }
        }
        None
    }
}

fn axum_body(bytes: Vec<u8>) -> axum::body::Body {
    bytes.into()
}

/// Returns the first part of a text in one line.
fn shortened(text: &str) -> String {
    const LENGTH: usize = 300;
    let mut short: String = text.chars().take(LENGTH).collect();
    if short.len() < text.len() {
        let _ = write!(short, "...");
    }
    short
}
