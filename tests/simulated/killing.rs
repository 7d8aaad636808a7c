//! Controllers that are killed repeatedly while pods are created and deleted. In the end, each pod has exactly one port, no port
//! is without a pod, and the network's own ledger shows that nothing was created twice.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use staffetta_apiserver::testing::RealServer;
use staffetta_apiserver::{ApiServer, Fault, Options, Proxy, Requests};
use staffetta_memory::MemoryOptions;
use staffetta_memory::http::{self as network, Method, ResourceKind, Server, SimulatedOptions};

use crate::process::Process;
use crate::{PROGRAM, VIF};

/// The number of pods at a time.
const PODS: usize = 300;

/// The number of claims in flight when a controller is killed between the driver's answer and the acknowledged write.
const IN_FLIGHT: usize = 3;

/// The maximum delay of a driver's call before its work, and again before its answer, in milliseconds.
const SLOWNESS: u64 = 40;

/// The number of consecutive calls for which a delay is chosen.
const CALLS: usize = 4;

/// The moment at which a controller is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Some time after it began, most likely in the middle of a driver's call.
    Any,
    /// The network has answered, the API server has the claims and will not answer. It has done them, or not.
    Between { done: bool },
}

/// The time limit of a test step. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(180);

/// An API server behind a proxy, pods that come and go, and a network that outlives the controllers.
struct World {
    proxy: Proxy,
    pods: Api<Pod>,
    network: Server,
    ledger: staffetta_memory::http::Client,
    folder: tempfile::TempDir,
    chance: Chance,
}

impl World {
    async fn new(server: Kubeconfig) -> Self {
        // An error means that somebody installed one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let proxy = Proxy::start(server.clone()).await.unwrap();
        let mut config = Config::from_custom_kubeconfig(server, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        let memory = MemoryOptions { activation_delay_ms: 50, cool_down_ms: 100, ..MemoryOptions::default() };
        let options = staffetta_memory::http::ServerOptions {
            memory,
            ..staffetta_memory::http::ServerOptions::default()
        };
        let network = Server::start(&options).unwrap();
        let options = SimulatedOptions { url: network.url().into(), ..SimulatedOptions::default() };
        Self {
            proxy,
            pods: Api::namespaced(Client::try_from(config).unwrap(), "default"),
            ledger: staffetta_memory::http::Client::new(&options).unwrap(),
            network,
            folder: tempfile::tempdir().unwrap(),
            chance: Chance::new(),
        }
    }

    async fn controller(&self) -> Process {
        let options = format!(
            "{}[relay]\nretry_interval = \"20ms\"\nretry_max_interval = \"500ms\"\nfailed_resync = \"1s\"\n\
             sweep_interval = \"1s\"\n",
            crate::options(self.network.url(), crate::ALONE)
        );
        Process::start(Path::new(PROGRAM), self.folder.path(), &options, &self.proxy.kubeconfig()).await
    }

    /// Kills a controller at this moment. Answers whether it came to that moment.
    async fn kill_one(&self, moment: Moment) -> bool {
        self.slow_down().await;
        let Moment::Between { done } = moment else {
            let mut controller = self.controller().await;
            tokio::time::sleep(Duration::from_millis(self.chance.below(800))).await; // the point is that it is any time
            kill(&mut controller).await;
            return true;
        };
        let fault = if done { Fault::HangAfter } else { Fault::Hang };
        let unanswered = || self.proxy.requests().iter().filter(|request| request.code == 0).count();
        self.proxy.clear_requests();
        self.proxy.faults().inject(claims(), IN_FLIGHT, fault);
        let mut controller = self.controller().await;
        let met = until(async || unanswered() >= IN_FLIGHT);
        let met = tokio::time::timeout(Duration::from_secs(20), met).await.is_ok();
        kill(&mut controller).await;
        self.proxy.faults().clear();
        met
    }

    /// The next calls for a VIF take their time, before they do their work or after it.
    async fn slow_down(&self) {
        self.ledger.clear_faults().await.unwrap();
        for _ in 0..8 {
            let time = Duration::from_millis(self.chance.below(SLOWNESS));
            for fault in [network::Fault::Delay(time), network::Fault::DoneThenDelay(time)] {
                self.ledger.inject(Method::RequestVif, CALLS, &fault).await.unwrap();
            }
        }
    }

    /// Waits until each pod has an active VIF, and there are no other ports.
    async fn until_idle(&self) {
        let settled = until(async || {
            let pods = self.pods.list(&ListParams::default()).await.unwrap();
            let uids: BTreeSet<_> = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
            let active = pods.iter().all(|pod| {
                let annotation = pod.metadata.annotations.as_ref().and_then(|all| all.get(VIF));
                annotation.is_some_and(|text| text.contains(r#""active":true"#))
            });
            let ports = self.ledger.ports().await.unwrap();
            let owners: BTreeSet<_> =
                ports.iter().filter_map(|port| Some(port.owner.as_ref()?.uid.to_string())).collect();
            active && uids == owners && ports.len() == uids.len()
        });
        if tokio::time::timeout(PATIENCE, settled).await.is_err() {
            let pods = self.pods.list(&ListParams::default()).await.unwrap().items.len();
            panic!("{pods} pods and {} ports do not fit together", self.ledger.ports().await.unwrap().len());
        }
    }

    /// Nothing was made twice; what stands is what must.
    async fn assert_made_once(&self) {
        let ledger = self.ledger.effects().await.unwrap();
        let owners = ledger.owners(ResourceKind::Port);
        let twice: Vec<_> =
            owners.iter().filter(|(_, counts)| counts.created != 1 || counts.released > 1).collect();
        assert!(twice.is_empty(), "made or released more than once: {twice:?}");
        assert!(owners.len() >= PODS, "{} pods got a port", owners.len());
    }

    /// Ends all pods; nothing may be left of them.
    async fn end_all(&self) {
        for pod in self.pods.list_metadata(&ListParams::default()).await.unwrap() {
            end(&self.pods, &pod.metadata.name.unwrap()).await;
        }
        let gone = until(async || {
            self.pods.list_metadata(&ListParams::default()).await.unwrap().items.is_empty()
                && self.ledger.ports().await.unwrap().is_empty()
        });
        tokio::time::timeout(PATIENCE, gone).await.expect("all pods and ports go in time");
        assert!(self.ledger.effects().await.unwrap().existing(ResourceKind::Port).is_empty());
    }
}

/// The writes that show a VIF for the first time: they alone carry the resourceVersion beside it.
fn claims() -> Requests {
    Requests::any().verb("patch").resource("pods").saying(VIF).saying("\"resourceVersion\"")
}

/// Pods that come and go, until it is told to stop.
struct Churn {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Churn {
    async fn start(pods: &Api<Pod>) -> Self {
        for number in 0..PODS {
            create(pods, number).await;
        }
        let (stop, pods, chance) = (Arc::<AtomicBool>::default(), pods.clone(), Chance::new());
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut next = PODS;
            let mut alive: Vec<_> = (0..PODS).collect();
            while !stopped.load(Ordering::Relaxed) {
                let place = usize::try_from(chance.below(PODS as u64)).unwrap();
                end(&pods, &name(alive[place])).await;
                create(&pods, next).await;
                alive[place] = next;
                next += 1;
                tokio::time::sleep(Duration::from_millis(20)).await; // the speed of the churn
            }
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
    }
}

fn name(number: usize) -> String {
    format!("pod-{number}")
}

async fn create(pods: &Api<Pod>, number: usize) {
    let pod = json!({ "metadata": { "name": name(number) },
        "spec": { "nodeName": "n1", "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// Ends a pod as a kubelet does.
async fn end(pods: &Api<Pod>, name: &str) {
    match pods.delete(name, &DeleteParams::default().grace_period(0)).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => panic!("{error}"),
    }
}

async fn kill(controller: &mut Process) {
    controller.kill("KILL").await;
    assert!(!controller.ends().await.success());
}

async fn until(mut condition: impl AsyncFnMut() -> bool) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Numbers by chance; a run is never the same as another.
struct Chance(std::sync::Mutex<u64>);

impl Chance {
    fn new() -> Self {
        use std::hash::{BuildHasher, Hasher};
        Self(std::sync::Mutex::new(std::hash::RandomState::new().build_hasher().finish() | 1))
    }

    fn below(&self, limit: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % limit
    }
}

/// Kills controllers one after the other, at least `between` of them between a driver's answer and the acknowledged
/// write: half of those after the write took effect.
async fn killed(server: Kubeconfig, kills: usize, between: usize) {
    let world = World::new(server).await;
    let churn = Churn::start(&world.pods).await;
    let moments = [Moment::Between { done: false }, Moment::Any, Moment::Between { done: true }, Moment::Any];
    let mut came = [0, 0];
    for round in 0..kills {
        let moment = moments[round % moments.len()];
        if world.kill_one(moment).await
            && let Moment::Between { done } = moment
        {
            came[usize::from(done)] += 1;
        }
    }
    churn.stop().await;
    world.ledger.clear_faults().await.unwrap();
    assert!(came.into_iter().all(|count| count * 2 >= between), "between the answer and the write: {came:?}");
    let mut last = world.controller().await;
    world.until_idle().await;
    world.assert_made_once().await;
    world.end_all().await;
    world.assert_made_once().await;
    assert!(last.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn however_often_it_is_killed_each_pod_has_one_port_and_none_is_made_twice() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    killed(Kubeconfig::from_yaml(&server.kubeconfig()).unwrap(), 12, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn killed_two_hundred_times_it_leaks_nothing_and_makes_nothing_twice_on_a_real_server() {
    let server = RealServer::start(&[]).await;
    killed(Kubeconfig::read_from(server.kubeconfig()).unwrap(), 200, 40).await;
}

/// Told to end under load, it ends well, and the next one goes on where it was.
async fn asked_to_end(server: Kubeconfig) {
    let world = World::new(server).await;
    let churn = Churn::start(&world.pods).await;
    for _ in 0..5 {
        let mut controller = world.controller().await;
        tokio::time::sleep(Duration::from_millis(200 + world.chance.below(800))).await; // the point is that it is any time
        assert!(controller.terminate().await.success());
    }
    churn.stop().await;
    let mut last = world.controller().await;
    world.until_idle().await;
    world.assert_made_once().await;
    world.end_all().await;
    assert!(last.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_to_end_under_load_it_ends_well_and_the_next_one_goes_on() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    asked_to_end(Kubeconfig::from_yaml(&server.kubeconfig()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn asked_to_end_under_load_it_ends_well_and_the_next_one_goes_on_on_a_real_server() {
    let server = RealServer::start(&[]).await;
    asked_to_end(Kubeconfig::read_from(server.kubeconfig()).unwrap()).await;
}
