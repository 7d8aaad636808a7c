//! Two replicas of the program on a real API server. Replicas are killed or paused at random moments, the API server fails in several
//! ways, and pods and services come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Client, Config, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use staffetta_apiserver::testing::RealServer;
use staffetta_apiserver::{Fault, Proxy, Requests};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::process::Process;

const PROGRAM: &str = env!("CARGO_BIN_EXE_staffetta");
const VIF: &str = "openstack.org/kuryr-vif";
const LOAD_BALANCER: &str = "openstack.org/kuryr-lbaas-state";

/// The address of the one endpoint of each service.
const ENDPOINT: &str = "10.128.0.99";

/// The time limit for everything to be handled after faults. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(300);

/// The options of an election in which another replica takes over within two seconds. What the former leader still requested when it
/// was paused, and what nobody owns, is released by a garbage collection.
pub(crate) const QUICK: &str = "\
[relay]
sweep_interval = \"5s\"
[leader_election]
enabled = true
lease_duration = \"2s\"
renew_deadline = \"1200ms\"
retry_period = \"300ms\"
";

/// The maximum time before a replica is killed, and for which one is paused: longer than the lease of a quick election.
const LIFE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(4);

/// The duration of a fault of the API server among other disruptions.
const FAULT: Duration = Duration::from_secs(10);

/// A fault of the API server, as a replica sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerFault {
    /// SIGTERM with open watches, and a new start.
    Restart,
    /// etcd is stopped.
    EtcdStopped,
    /// The history is compacted, and the server is restarted: watches cannot continue.
    Compacted,
    /// Connections stay open, and nothing is answered.
    BlackHole,
    /// Priority and fairness rejects every request of the controller with 429.
    TooManyRequests,
    /// A validating webhook with the failure policy `Fail` for the controller's writes does not answer.
    WebhookDown,
}

impl ServerFault {
    pub(crate) const ALL: [Self; 6] = [
        Self::Restart,
        Self::EtcdStopped,
        Self::Compacted,
        Self::BlackHole,
        Self::TooManyRequests,
        Self::WebhookDown,
    ];
}

/// A real API server, and a proxy through which the replicas reach it with a service account of their own.
pub(crate) struct Site<'a> {
    server: &'a RealServer,
    proxy: Proxy,
    client: Client,
}

impl<'a> Site<'a> {
    pub(crate) async fn start(server: &'a RealServer) -> Self {
        // An error means that somebody installed one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let admin = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(admin.clone(), &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        let token = token(&client).await;
        let mut own: Value = serde_json::to_value(&admin).unwrap();
        own["users"][0]["user"] = json!({ "token": token });
        let proxy = Proxy::start(serde_json::from_value(own).unwrap()).await.unwrap();
        Self { server, proxy, client }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Lets `fault` last for `time`, and returns when it is over.
    pub(crate) async fn inject(&self, fault: ServerFault, time: Duration) {
        match fault {
            ServerFault::Restart => {
                self.server.stop_apiserver().await;
                self.server.resume().await;
            }
            ServerFault::EtcdStopped => {
                self.server.stop_etcd().await;
                tokio::time::sleep(time).await; // that is the fault
                self.server.resume().await;
            }
            ServerFault::Compacted => {
                self.server.compact().await;
                self.server.stop_apiserver().await;
                self.server.resume().await;
            }
            ServerFault::BlackHole => {
                let faults = self.proxy.faults();
                faults.pause_watches();
                faults.inject(Requests::any(), usize::MAX, Fault::Hang);
                tokio::time::sleep(time).await; // that is the fault
                faults.clear();
                faults.resume_watches();
            }
            ServerFault::TooManyRequests => self.with(&rejection(), time, 429).await,
            ServerFault::WebhookDown => self.with(&[webhook()], time, 500).await,
        }
    }

    /// Creates these objects, and deletes them `time` after a request of the replicas has got the response `code`.
    async fn with(&self, objects: &[Value], time: Duration, code: u16) {
        self.proxy.clear_requests();
        let api = |object: &Value| -> Api<DynamicObject> {
            let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
            let gvk = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
            Api::all_with(self.client.clone(), &kube::core::ApiResource::from_gvk(&gvk))
        };
        for object in objects {
            let made = serde_json::from_value(object.clone()).unwrap();
            api(object).create(&PostParams::default(), &made).await.unwrap();
        }
        // The server applies them when it has seen them, and a replica that is paused requests nothing.
        until(&format!("a request gets {code}"), async || {
            self.proxy.requests().iter().any(|request| request.code == code)
        })
        .await;
        tokio::time::sleep(time).await; // that is the fault
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap();
            api(object).delete(name, &DeleteParams::default()).await.unwrap();
        }
    }
}

/// A token of a service account that may do everything, as the rights are not the subject here.
async fn token(client: &Client) -> String {
    let account: ServiceAccount =
        serde_json::from_value(json!({ "metadata": { "name": "staffetta" } })).unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    retried(|| async { accounts.create(&PostParams::default(), &account).await }).await;
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(client.clone());
    let binding = json!({ "metadata": { "name": "staffetta" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": "staffetta", "namespace": "default" }] });
    let binding = serde_json::from_value(binding).unwrap();
    retried(|| async { bindings.create(&PostParams::default(), &binding).await }).await;
    let spec = TokenRequestSpec { expiration_seconds: Some(86_400), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer = accounts.create_token_request("staffetta", &PostParams::default(), &request).await.unwrap();
    answer.status.unwrap().token
}

/// The objects by which priority and fairness rejects all requests of the service account.
fn rejection() -> [Value; 2] {
    let level = json!({ "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": { "name": "fault" },
        "spec": { "type": "Limited", "limited": { "nominalConcurrencyShares": 0, "lendablePercent": 0,
            "borrowingLimitPercent": 0, "limitResponse": { "type": "Reject" } } } });
    let everything = [
        json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true }),
    ];
    let schema = json!({ "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": { "name": "fault" },
        "spec": { "matchingPrecedence": 2, "priorityLevelConfiguration": { "name": "fault" },
            "rules": [{ "resourceRules": everything,
                "subjects": [{ "kind": "ServiceAccount",
                    "serviceAccount": { "name": "staffetta", "namespace": "default" } }] }] } });
    [level, schema]
}

/// A webhook that nobody serves, for the writes of the service account.
fn webhook() -> Value {
    json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "fault" },
        "webhooks": [{ "name": "fault.example.com", "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
            "clientConfig": { "url": "https://127.0.0.1:1/" },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                "resources": ["pods", "pods/status", "services", "services/status"] }],
            "matchConditions": [{ "name": "controller",
                "expression": "request.userInfo.username == 'system:serviceaccount:default:staffetta'" }] }] })
}

/// The times from the end of a fault.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Until the first object is served that was not served before.
    first: Duration,
    /// Until a pod is served that was created after the fault, behind all that waited then.
    new: Duration,
    /// Until every object is served, and nothing else exists.
    all: Duration,
}

impl std::fmt::Display for Recovery {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { first, new, all } = self;
        write!(formatter, "first object after {first:.1?}, a new one after {new:.1?}, all after {all:.1?}")
    }
}

/// Two replicas of the program, in processes of their own.
pub(crate) struct Replicas<'a> {
    options: String,
    kubeconfig: String,
    folder: &'a Path,
    processes: Vec<Process>,
}

impl<'a> Replicas<'a> {
    pub(crate) async fn start(site: &Site<'_>, folder: &'a Path, options: String) -> Self {
        let mut replicas =
            Self { options, kubeconfig: site.proxy.kubeconfig(), folder, processes: Vec::new() };
        for place in 0..2 {
            replicas.processes.push(replicas.replica(place).await);
        }
        replicas
    }

    async fn replica(&self, place: usize) -> Process {
        let folder = self.folder.join(format!("replica-{place}"));
        std::fs::create_dir_all(&folder).unwrap();
        Process::start(Path::new(PROGRAM), &folder, &self.options, &self.kubeconfig).await
    }

    /// Waits until a new pod and every other object is served, and `is_clean` returns `true`, while nothing comes or goes.
    pub(crate) async fn run_until_idle(
        &self,
        churn: &Churn<'_>,
        is_clean: impl AsyncFn(&Objects) -> bool,
    ) -> Recovery {
        let (started, make, pods) = (Instant::now(), churn.maker(), churn.site.pods());
        let _exclusive = churn.exclusive.lock().await;
        make.pod("probe").await;
        let served_before = Objects::read(churn.site).await.served();
        let (mut first, mut new) = (None, None);
        until("a new pod is served", async || {
            let probe = pods.get_opt("probe").await.unwrap();
            if probe.is_some_and(|pod| address(&pod).is_some()) {
                new = Some(started.elapsed());
            }
            if first.is_none() && !Objects::read(churn.site).await.served().is_subset(&served_before) {
                first = Some(started.elapsed());
            }
            new.is_some()
        })
        .await;
        let new = new.expect("the new pod is served");
        let settled = in_time(async || {
            let objects = Objects::read(churn.site).await;
            objects.are_served() && is_clean(&objects).await
        });
        if !settled.await {
            for process in &self.processes {
                eprintln!("{}", process.get("/debug/state").await.1);
            }
            panic!("these are not served, or something else exists: {:#?}", Objects::read(churn.site).await);
        }
        let all = started.elapsed();
        make.no_pod("probe").await;
        until("the pod is gone", async || pods.get_opt("probe").await.unwrap().is_none()).await;
        Recovery { first: first.unwrap_or(new).min(new), new, all }
    }

    /// Kills and pauses replicas by turns, `count` times or `STAFFETTA_DISRUPTIONS` times, while objects come and go. Several times, the
    /// API server fails meanwhile, and then everything is to be served, and `is_clean` to return `true`. Prints the time that this took.
    pub(crate) async fn disrupt(
        &mut self,
        churn: &Churn<'_>,
        count: usize,
        is_clean: impl AsyncFn(&Objects) -> bool,
    ) {
        let count = std::env::var("STAFFETTA_DISRUPTIONS").map_or(count, |count| count.parse().unwrap());
        let between = count.div_ceil(ServerFault::ALL.len()).min(50);
        let mut faults = ServerFault::ALL.into_iter().cycle();
        self.run_until_idle(churn, &is_clean).await;
        eprintln!("without a fault: {}", self.run_until_idle(churn, &is_clean).await);
        for process in &self.processes {
            let (_, state) = process.get("/debug/state").await;
            assert!(!state.contains("unopposed"), "each takes part in the election: {state}");
        }
        for number in 1..=count {
            let disruption =
                async { if number % 2 == 0 { self.pause_one().await } else { self.kill_one().await } };
            if number % between > 0 {
                disruption.await;
                continue;
            }
            let fault = faults.next().unwrap();
            tokio::join!(disruption, churn.site.inject(fault, FAULT));
            let recovery = self.run_until_idle(churn, &is_clean).await;
            eprintln!("{number} of {count}, {fault:?}: {recovery}");
        }
        self.run_until_idle(churn, is_clean).await;
    }

    /// Sends SIGKILL to one of them at a random moment, and starts another in its place.
    async fn kill_one(&mut self) {
        tokio::time::sleep(some_of(LIFE)).await; // the point is that it is any time
        let place = below(2);
        self.processes[place].kill("KILL").await;
        assert!(!self.processes[place].ends().await.success());
        self.processes[place] = self.replica(place).await;
    }

    /// Sends SIGSTOP to one of them, and SIGCONT at a random moment.
    async fn pause_one(&mut self) {
        let place = below(2);
        self.processes[place].kill("STOP").await;
        tokio::time::sleep(some_of(PAUSE)).await; // the point is that it is any time
        self.processes[place].kill("CONT").await;
    }

    pub(crate) async fn terminate(self) {
        for mut process in self.processes {
            assert!(process.terminate().await.success());
        }
    }
}

/// The objects of the cluster, and the ids that they show.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The UIDs of all pods, with the address of the active VIF.
    pub(crate) pods: BTreeMap<String, Option<String>>,
    /// The UIDs of all services, with the id of the load balancer with its member.
    pub(crate) services: BTreeMap<String, Option<String>>,
}

impl Objects {
    /// The UIDs of the objects that show what they are to have.
    fn served(&self) -> BTreeSet<String> {
        let all = self.pods.iter().chain(&self.services);
        all.filter(|(_, shown)| shown.is_some()).map(|(uid, _)| uid.clone()).collect()
    }

    pub(crate) async fn read(site: &Site<'_>) -> Self {
        let pods = site.pods().list(&ListParams::default()).await.unwrap();
        let mut services = site.services().list(&ListParams::default()).await.unwrap();
        services.items.retain(|service| service.name_any() != "kubernetes");
        Self {
            pods: pods.iter().map(|pod| (pod.uid().unwrap(), address(pod))).collect(),
            services: services
                .iter()
                .map(|service| (service.uid().unwrap(), load_balancer(service)))
                .collect(),
        }
    }

    /// Returns `true` if each object shows what it is to have, and no two show the same.
    pub(crate) fn are_served(&self) -> bool {
        [&self.pods, &self.services].into_iter().all(|objects| {
            let mut shown: Vec<_> = objects.values().flatten().collect();
            shown.sort_unstable();
            shown.dedup();
            shown.len() == objects.len()
        })
    }
}

fn annotation(object: &impl ResourceExt, name: &str) -> Value {
    object.annotations().get(name).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn address(pod: &Pod) -> Option<String> {
    let state = annotation(pod, VIF);
    let vif = &state["versioned_object.data"]["default_vif"]["versioned_object.data"];
    let network = &vif["network"]["versioned_object.data"]["subnets"]["versioned_object.data"]["objects"][0];
    let address = &network["versioned_object.data"]["ips"]["versioned_object.data"]["objects"][0]["versioned_object.data"];
    (vif["active"] == json!(true)).then(|| address["address"].as_str().unwrap().to_owned())
}

fn load_balancer(service: &Service) -> Option<String> {
    let state = annotation(service, LOAD_BALANCER);
    let data = &state["versioned_object.data"];
    let member = &data["members"][0]["versioned_object.data"];
    let load_balancer = &data["loadbalancer"]["versioned_object.data"];
    (member["ip"] == json!(ENDPOINT)).then(|| load_balancer["id"].as_str().unwrap().to_owned())
}

/// Pods and services that come and go, so many of each at a time.
pub(crate) struct Churn<'a> {
    site: &'a Site<'a>,
    node: String,
    stop: Arc<AtomicBool>,
    exclusive: Arc<Mutex<()>>,
    task: Option<JoinHandle<()>>,
}

impl<'a> Churn<'a> {
    /// Creates `pods` pods on `node` and `services` services, and then replaces one after the other, one each `pace`.
    pub(crate) async fn start(
        site: &'a Site<'a>,
        node: &str,
        (pods, services): (usize, usize),
        pace: Duration,
    ) -> Self {
        let (stop, exclusive) = (Arc::<AtomicBool>::default(), Arc::<Mutex<()>>::default());
        let mut churn = Self { site, node: node.to_owned(), stop, exclusive, task: None };
        let make = churn.maker();
        for number in 0..pods {
            make.pod(&format!("pod-{number}")).await;
        }
        for number in 0..services {
            make.service(&format!("service-{number}")).await;
        }
        let (stop, exclusive) = (Arc::clone(&churn.stop), Arc::clone(&churn.exclusive));
        churn.task = Some(tokio::spawn(async move {
            let mut next = pods.max(services);
            let (mut pods, mut services): (Vec<_>, Vec<_>) = ((0..pods).collect(), (0..services).collect());
            while !stop.load(Ordering::Relaxed) {
                let exclusive = exclusive.lock().await;
                if next.is_multiple_of(5) && !services.is_empty() {
                    let old = replace_one(&mut services, next);
                    make.no_service(&format!("service-{old}")).await;
                    make.service(&format!("service-{next}")).await;
                } else {
                    let old = replace_one(&mut pods, next);
                    make.no_pod(&format!("pod-{old}")).await;
                    make.pod(&format!("pod-{next}")).await;
                }
                next += 1;
                drop(exclusive);
                tokio::time::sleep(pace).await; // the speed of the churn
            }
        }));
        churn
    }

    fn maker(&self) -> Maker {
        Maker { client: self.site.client.clone(), node: self.node.clone() }
    }

    /// Stops, deletes everything, and waits until all of it is gone.
    pub(crate) async fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.take().unwrap().await.unwrap();
        let make = self.maker();
        for pod in self.site.pods().list_metadata(&ListParams::default()).await.unwrap() {
            make.no_pod(&pod.name_any()).await;
        }
        for service in self.site.services().list_metadata(&ListParams::default()).await.unwrap() {
            if service.name_any() != "kubernetes" {
                make.no_service(&service.name_any()).await;
            }
        }
        until("all objects are gone", async || {
            let objects = Objects::read(self.site).await;
            objects.pods.is_empty() && objects.services.is_empty()
        })
        .await;
    }
}

/// Creates and deletes objects, and repeats that while the server does not answer.
struct Maker {
    client: Client,
    node: String,
}

impl Maker {
    async fn pod(&self, name: &str) {
        let pod = json!({ "metadata": { "name": name },
            "spec": { "nodeName": self.node, "automountServiceAccountToken": false,
                "containers": [{ "name": "c", "image": "i" }] } });
        self.create::<Pod>(pod).await;
    }

    async fn service(&self, name: &str) {
        let service = json!({ "metadata": { "name": name },
            "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] } });
        let slice = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4", "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
            "endpoints": [{ "addresses": [ENDPOINT], "conditions": { "ready": true } }] });
        self.create::<Service>(service).await;
        self.create::<EndpointSlice>(slice).await;
    }

    async fn create<K>(&self, object: Value)
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + serde::Serialize,
    {
        let (api, object): (Api<K>, K) =
            (Api::namespaced(self.client.clone(), "default"), serde_json::from_value(object).unwrap());
        retried(|| async { api.create(&PostParams::default(), &object).await }).await;
    }

    /// Ends a pod as a kubelet does.
    async fn no_pod(&self, name: &str) {
        self.delete::<Pod>(name).await;
    }

    async fn no_service(&self, name: &str) {
        self.delete::<EndpointSlice>(name).await;
        self.delete::<Service>(name).await;
    }

    async fn delete<K>(&self, name: &str)
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), "default");
        retried(|| async { api.delete(name, &DeleteParams::default().grace_period(0)).await }).await;
    }
}

/// Repeats a request until it is done. 404 and 409 mean that an earlier attempt did it, though its answer was lost.
async fn retried<T, F: Future<Output = Result<T, kube::Error>>>(request: impl Fn() -> F) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match request().await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => return,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    assert!(in_time(condition).await, "not in time: {what}");
}

/// Returns `true` as soon as `condition` does.
async fn in_time(mut condition: impl AsyncFnMut() -> bool) -> bool {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition().await {
        if tokio::time::Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    true
}

/// Replaces a random one of `numbers` by `next`, and returns it.
fn replace_one(numbers: &mut [usize], next: usize) -> usize {
    let place = below(numbers.len());
    std::mem::replace(&mut numbers[place], next)
}

/// A random number below `limit`; a run is never the same as another.
fn below(limit: usize) -> usize {
    usize::try_from(RandomState::new().build_hasher().finish() % limit as u64).unwrap()
}

/// A random part of `time`.
fn some_of(time: Duration) -> Duration {
    Duration::from_millis(below(usize::try_from(time.as_millis()).unwrap()) as u64)
}
