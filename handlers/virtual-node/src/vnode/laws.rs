//! The law of operations on bases, over both kinds of tunnels: whatever gets lost, each module is loaded once, none that runs is unloaded
//! before its successor is seen to run, and everything converges.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;
use staffetta_driver::app_hosting::HostedContainerState;
use staffetta_driver::tunnel::OperationResponseResult::{Fail, Success, Unknown};
use staffetta_driver::tunnel::{
    ContainerOperationResponseData, ContainerStatusData, NodeId, OperationResponseResult, PodKey, Tunnel,
    TunnelSender,
};
use staffetta_driver::virtual_node::{PodProgress, PodRequest};
use staffetta_driver::{ContainerKey, DriverError, Owner};
use staffetta_handler::{Event, Index, Recorder, Tombstone};
use tokio::time::Instant;

use super::back_end::BaseBackEnd;
use super::base::{Base, BaseProfile, NamedTunnel};
use super::known::tests::described;
use super::operation::ContainerAction::{self, Activate, Start, Stop};
use super::tracker::{OperationTracker, TrackerPolicy};
use crate::back_end::{NodeBackEnd, PodRemoval};
use crate::node::NodeMarks;
use crate::pod::ClusterIndex;

/// The time limit of an operation. Nothing may need it.
const LIMIT: Duration = Duration::from_secs(330);

/// The time after the last fault within which everything converges, in seconds.
const BOUND: u64 = 240;

/// The fate of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Well,
    AnswerLost,
    AnswerLate,
    AnswerTwice,
    /// It reaches the base seconds later.
    Slow,
    /// It never reaches the base, because the connection ends, that of the broker for example.
    CommandLost,
}

/// An event in the world, after a number of seconds.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A new version of the module is rolled out: a pod is created, and the older ones are deleted when it is ready.
    RollOut,
    /// As `RollOut`, and the older pods are deleted at once.
    Replace,
    RestartBase,
    KillController,
}

/// Something on its way between controller and base.
#[derive(Clone, Debug)]
enum Message {
    Command(ContainerAction, String, Fate, u32),
    /// The base has downloaded and started a module.
    Loaded(String),
    Answer(ContainerAction, String, OperationResponseResult),
}

/// A base, the way to it, and the pods on its node.
struct World {
    /// `true` if each answer comes on the connection of its command, so that its loss is noticed.
    http: bool,
    fates: Vec<Fate>,
    /// The messages, each with its time, the life of the base and the process of the controller to which it belongs.
    messages: Vec<(Instant, u32, u32, Message)>,
    modules: BTreeMap<String, &'static str>,
    life: u32,
    process: u32,
    /// The process that had a module loaded, by its key.
    loaders: BTreeMap<String, u32>,
    pods: Vec<Arc<Pod>>,
    broken: Vec<String>,
}

impl World {
    fn send(&mut self, action: ContainerAction, key: &ContainerKey) {
        let (key, fate) = (key.to_string(), self.fates.pop().unwrap_or(Fate::Well));
        let living = self.pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let mut successors = living.map(|pod| key_of(&pod.spec.as_ref().unwrap().containers[0]));
        let runs = |key: &str| self.modules.get(key) == Some(&"ACTIVATED");
        if action == Stop && runs(&key) && successors.any(|other| other != key && !runs(&other)) {
            self.broken.push(format!("{key} is unloaded before its successor runs: {:?}", self.modules));
        }
        let delay = if fate == Fate::Slow { 7 } else { 0 };
        self.post(delay, Message::Command(action, key, fate, self.process));
    }

    fn post(&mut self, seconds: u64, message: Message) {
        let at = Instant::now() + Duration::from_secs(seconds);
        self.messages.push((at, self.life, self.process, message));
    }

    /// Delivers the messages that are due, and returns the answers for this process.
    fn deliver(&mut self) -> Vec<(ContainerAction, ContainerOperationResponseData)> {
        let mut answers = Vec::new();
        while let Some(due) = self.messages.iter().position(|(at, ..)| *at <= Instant::now()) {
            let (_, life, process, message) = self.messages.remove(due);
            match message {
                Message::Answer(..) if process != self.process => {}
                Message::Answer(action, key, result) => {
                    let answer =
                        json!({ "container_key": key, "result": result, "reason": "SAID", "message": "m" });
                    answers.push((action, serde_json::from_value(answer).unwrap()));
                }
                // The base was restarted meanwhile.
                Message::Command(action, key, ..) if life != self.life => self.lost(action, key),
                Message::Loaded(key) if life != self.life => self.lost(Start, key),
                Message::Command(action, key, Fate::CommandLost, _) => {
                    self.post(1, Message::Answer(action, key, Unknown));
                }
                Message::Command(action, key, fate, sender) => self.execute(action, key, fate, sender),
                Message::Loaded(key) => {
                    let second = self.modules.values().any(|state| *state == "ACTIVATED");
                    self.modules.insert(key, if second { "DEACTIVATED" } else { "ACTIVATED" });
                }
            }
        }
        answers
    }

    /// Reports a lost answer where it is noticed.
    fn lost(&mut self, action: ContainerAction, key: String) {
        if self.http {
            self.post(1, Message::Answer(action, key, Unknown));
        }
    }

    fn execute(&mut self, action: ContainerAction, key: String, fate: Fate, sender: u32) {
        let (mut result, mut took) = (Success, 0);
        match action {
            Start if self.modules.contains_key(&key) => {
                if self.loaders.get(&key) == Some(&sender) {
                    self.broken.push(format!("{key} is loaded twice"));
                }
                result = Fail;
            }
            Start => {
                self.modules.insert(key.clone(), "RESOLVED");
                self.loaders.insert(key.clone(), sender);
                took = 4;
                self.post(took, Message::Loaded(key.clone()));
            }
            Activate if self.modules.contains_key(&key) => {
                self.modules
                    .values_mut()
                    .filter(|state| **state == "ACTIVATED")
                    .for_each(|state| *state = "DEACTIVATED");
                self.modules.insert(key.clone(), "ACTIVATED");
            }
            Activate => result = Fail,
            // An error after that is one of Arklet.
            Stop => {
                result = if self.modules.remove(&key).is_some() && fate == Fate::AnswerTwice {
                    Fail
                } else {
                    Success
                }
            }
        }
        let answers: &[u64] = match fate {
            Fate::AnswerLost => return self.lost(action, key),
            Fate::AnswerLate => &[25],
            Fate::AnswerTwice => &[0, 3],
            _ => &[0],
        };
        for late in answers {
            self.post(took + late, Message::Answer(action, key.clone(), result));
        }
    }

    fn statuses(&self) -> Vec<ContainerStatusData> {
        let status = |(key, state): (&String, &&str)| {
            let time = "2026-11-24T08:00:00Z";
            let status = json!({ "key": key, "name": "cart", "pod_key": "all", "state": state.to_lowercase(), "change_time": time });
            serde_json::from_value(status).unwrap()
        };
        self.modules.iter().map(status).collect()
    }
}

fn key_of(container: &Container) -> String {
    let version = container.env.iter().flatten().find_map(|variable| variable.value.clone());
    format!("{}:{}", container.name, version.unwrap())
}

/// The way to the base.
struct WorldTunnel(Arc<Mutex<World>>);

#[async_trait]
impl Tunnel for WorldTunnel {
    fn key(&self) -> &'static str {
        "world"
    }

    fn ready(&self) -> bool {
        true
    }

    async fn start(&self, _: &str, _: &str, _: TunnelSender) -> Result<(), DriverError> {
        Ok(())
    }

    async fn fetch_health_data(&self, _: &NodeId) -> Result<(), DriverError> {
        Ok(())
    }

    async fn query_all_container_status_data(&self, _: &NodeId) -> Result<(), DriverError> {
        Ok(())
    }

    async fn start_container(
        &self,
        _: &NodeId,
        pod: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        self.0.lock().send(Start, &self.get_container_unique_key(pod, container));
        Ok(())
    }

    async fn activate_container(
        &self,
        _: &NodeId,
        pod: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        self.0.lock().send(Activate, &self.get_container_unique_key(pod, container));
        Ok(())
    }

    async fn shutdown_container(
        &self,
        _: &NodeId,
        pod: &PodKey,
        container: &Container,
    ) -> Result<(), DriverError> {
        self.0.lock().send(Stop, &self.get_container_unique_key(pod, container));
        Ok(())
    }

    fn get_container_unique_key(&self, _: &PodKey, container: &Container) -> ContainerKey {
        key_of(container).as_str().into()
    }
}

/// A world, and the process that looks after its base.
struct Running {
    world: Arc<Mutex<World>>,
    pods: Arc<ClusterIndex>,
    back_end: BaseBackEnd,
    versions: usize,
}

impl Running {
    fn back_end(world: &Arc<Mutex<World>>, pods: &Arc<ClusterIndex>) -> BaseBackEnd {
        let tunnel = NamedTunnel { name: "world".into(), tunnel: Arc::new(WorldTunnel(Arc::clone(world))) };
        let profile = BaseProfile { description: described("ACTIVATED"), marks: NodeMarks::default() };
        let names = ("one".parse().unwrap(), "vnode.one.dev".into());
        let tracker = OperationTracker::new(TrackerPolicy::default(), Recorder::silent(), |_| {});
        let base = Base::new(names, tunnel, profile, Arc::clone(pods), tracker, LIMIT);
        BaseBackEnd { base: Arc::new(base), sent_baselines: Arc::default() }
    }

    fn pods(&self) -> Vec<Arc<Pod>> {
        self.world.lock().pods.clone()
    }

    fn set_pods(&self, pods: Vec<Arc<Pod>>) {
        for pod in &pods {
            self.pods.apply(&Event::Modified(Arc::clone(pod)));
        }
        self.world.lock().pods = pods;
    }

    fn delete_older(&self) {
        let mut pods = self.pods();
        let last = pods.len() - 1;
        for pod in &mut pods[..last] {
            if pod.metadata.deletion_timestamp.is_none() {
                let time = serde_json::from_value(json!("2026-11-24T09:00:00Z")).unwrap();
                Arc::make_mut(pod).metadata.deletion_timestamp = Some(time);
            }
        }
        self.set_pods(pods);
    }

    fn take(&mut self, act: Act) {
        match act {
            Act::RollOut | Act::Replace => {
                self.versions += 1;
                let name = format!("web-{}", self.versions);
                let created = format!("2026-11-24T08:{:02}:00Z", self.versions);
                let cart = json!({ "name": "cart", "image": "j", "env": [{ "name": "BIZ_VERSION", "value": self.versions.to_string() }] });
                let pod = json!({ "metadata": { "name": name, "namespace": "default", "uid": name, "creationTimestamp": created },
                    "spec": { "nodeName": "vnode.one.dev", "containers": [cart] } });
                let mut pods = self.pods();
                pods.push(Arc::new(serde_json::from_value(pod).unwrap()));
                self.set_pods(pods);
                if matches!(act, Act::Replace) {
                    self.delete_older();
                }
            }
            Act::RestartBase => {
                let mut world = self.world.lock();
                world.life += 1;
                world.modules.clear();
            }
            Act::KillController => {
                self.world.lock().process += 1;
                self.back_end = Self::back_end(&self.world, &self.pods);
            }
        }
    }

    /// Lets a second pass: answers and a report arrive, each pod is reconciled, and the Deployment deletes what is superseded.
    async fn second(&self) {
        tokio::time::advance(Duration::from_secs(1)).await;
        let answers = self.world.lock().deliver();
        for (action, answer) in answers {
            self.back_end.base.answered(action.answers_as(), &answer);
        }
        let hosted = self.back_end.base.report(self.world.lock().statuses());
        let newest = self.pods().pop();
        let runs = |pod: &Arc<Pod>| {
            hosted.iter().any(|hosted| {
                hosted.owner.uid.as_str() == pod.metadata.uid.as_deref().unwrap()
                    && hosted.containers.iter().all(|one| one.state == HostedContainerState::Running)
            })
        };
        if newest.as_ref().is_some_and(runs) {
            self.delete_older();
        }
        for pod in self.pods() {
            if pod.metadata.deletion_timestamp.is_none() {
                let request = PodRequest { pod, environment: [].into() };
                self.back_end.apply(&request).await.unwrap();
                continue;
            }
            let (owner, of) = (Owner::of(&pod.metadata), Some(Arc::clone(&pod)));
            let removal = PodRemoval { owner, pod: of, workload: None };
            if self.back_end.remove(&removal).await.unwrap() == PodProgress::Done {
                self.pods.apply(&Event::Deleted(Tombstone::Last(Arc::clone(&pod))));
                self.world.lock().pods.retain(|other| other.metadata.uid != pod.metadata.uid);
            }
        }
    }
}

async fn holds(http: bool, fates: Vec<Fate>, acts: Vec<(u64, Act)>) -> Result<(), String> {
    let (messages, loaders, modules) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let (pods, broken) = (Vec::new(), Vec::new());
    let world = World { http, fates, messages, modules, life: 0, process: 0, loaders, pods, broken };
    let (world, pods) = (Arc::new(Mutex::new(world)), Arc::<ClusterIndex>::default());
    let back_end = Running::back_end(&world, &pods);
    let mut running = Running { world, pods, back_end, versions: 0 };
    running.take(Act::RollOut);
    for (wait, act) in acts {
        for _ in 0..wait {
            running.second().await;
        }
        running.take(act);
    }
    running.world.lock().fates.clear();
    for _ in 0..BOUND {
        running.second().await;
    }
    let world = running.world.lock();
    let expected = [(format!("cart:{}", running.versions), "ACTIVATED")].into();
    if world.modules != expected || world.pods.len() != 1 {
        return Err(format!("{:?} with {} pods instead of {expected:?}", world.modules, world.pods.len()));
    }
    if world.broken.is_empty() { Ok(()) } else { Err(world.broken.join("; ")) }
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Well),
        3 => Just(Fate::AnswerLost),
        1 => Just(Fate::AnswerLate),
        1 => Just(Fate::AnswerTwice),
        1 => Just(Fate::Slow),
        1 => Just(Fate::CommandLost),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::RollOut),
        1 => Just(Act::Replace),
        2 => Just(Act::RestartBase),
        2 => Just(Act::KillController),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_module_that_a_base_still_loads_for_a_former_controller_is_unloaded_after_that() {
    let acts = vec![(1, Act::RollOut), (0, Act::Replace), (0, Act::KillController)];
    assert_eq!(holds(false, vec![Fate::Slow, Fate::Well], acts).await, Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_lost_modules_are_loaded_once_succeeded_before_they_go_and_converge(
        http in any::<bool>(),
        fates in prop::collection::vec(fate(), 0..12),
        acts in prop::collection::vec((0_u64..40, act()), 0..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        prop_assert_eq!(runtime.block_on(holds(http, fates, acts)), Ok(()));
    }
}
