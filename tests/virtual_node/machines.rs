//! In-memory devices behind the virtual nodes of these tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use staffetta_driver::app_hosting::{
    DeploymentStage, HostedContainer, HostedContainerState, HostedPod, HostedPods,
};
use staffetta_driver::virtual_node::{PodProgress, PodRequest};
use staffetta_driver::{DriverError, Owner, Reason};
use staffetta_handler::HandlerError;
use staffetta_virtual_node::{
    MachineInfo, NodeBackEnd, NodeHealth, NodeSource, NodeSpec, NodeStore, PROVIDER_TAINT, PodRemoval, Reply,
};
use tokio::sync::Notify;

/// The number of steps to start a pod, and to remove one.
const STEPS: u32 = 3;

/// The delay before a machine is asked again.
const STEP: Duration = Duration::from_millis(10);

/// All machines there are. Copies are references.
#[derive(Clone, Default)]
pub(crate) struct Machines(Arc<All>);

#[derive(Default)]
struct All {
    machines: Mutex<BTreeMap<String, Machine>>,
    changed: Notify,
}

/// A machine, and what runs on it.
#[derive(Clone)]
pub(crate) struct Machine(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    failure: Option<Reason>,
    refuses: Option<&'static str>,
    hangs: bool,
    balks: bool,
    pods: BTreeMap<String, Hosted>,
    /// The operations, in order.
    ledger: Vec<String>,
    reads: usize,
}

struct Hosted {
    owner: Owner,
    image: String,
    ours: bool,
    steps: u32,
    ended: Option<i32>,
    going: bool,
}

impl Machines {
    /// A machine comes.
    pub(crate) fn add(&self, name: &str) -> Machine {
        let machine = Machine(Arc::default());
        self.0.machines.lock().unwrap().insert(name.to_owned(), machine.clone());
        self.0.changed.notify_one();
        machine
    }

    /// A machine goes.
    pub(crate) fn remove(&self, name: &str) {
        self.0.machines.lock().unwrap().remove(name);
        self.0.changed.notify_one();
    }
}

#[async_trait]
impl NodeSource for Machines {
    async fn run(&self, nodes: Arc<NodeStore>) -> Result<(), HandlerError> {
        let mut reported = Vec::new();
        loop {
            let names: Vec<String> = self.0.machines.lock().unwrap().keys().cloned().collect();
            for name in reported.iter().filter(|name| !names.contains(name)) {
                nodes.remove(name);
            }
            for name in names.iter().filter(|name| !reported.contains(name)) {
                nodes.add_or_update(node(name));
            }
            reported = names;
            nodes.complete();
            self.0.changed.notified().await;
        }
    }

    async fn open(&self, node: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
        let machines = self.0.machines.lock().unwrap();
        let machine = machines.get(&node.name).cloned();
        Ok(Arc::new(machine.ok_or_else(|| DriverError::new(Reason::NotFound, "open the machine"))?))
    }
}

fn node(name: &str) -> NodeSpec {
    let taint = serde_json::json!({ "key": PROVIDER_TAINT, "value": "test", "effect": "NoSchedule" });
    NodeSpec {
        name: name.to_owned(),
        labels: [("rack".to_owned(), "7".to_owned())].into(),
        annotations: BTreeMap::new(),
        taints: vec![serde_json::from_value(taint).unwrap()],
        max_pods: 40,
        host_ip: Some("192.0.2.1".parse().unwrap()),
        host_name: None,
        address: String::new(),
        session: 0,
        retired: false,
    }
}

impl Machine {
    /// From now on the machine answers with a failure, or works again.
    pub(crate) fn failure(&self, failure: Option<Reason>) {
        self.state().failure = failure;
    }

    /// From now on the machine takes no pod, and says why.
    pub(crate) fn refuse(&self, why: &'static str) {
        self.state().refuses = Some(why);
    }

    /// From now on the machine takes for ever to do anything but to be read.
    pub(crate) fn hang(&self) {
        self.state().hangs = true;
    }

    /// From now on the machine is read as before, and leaves all else unanswered; or it works again.
    pub(crate) fn balk(&self, balks: bool) {
        self.state().balks = balks;
    }

    /// The machine forgets what runs on it.
    pub(crate) fn forget(&self) {
        self.state().pods.clear();
    }

    /// Ends a pod's container.
    pub(crate) fn end(&self, name: &str, exit_code: i32) {
        for hosted in self.state().pods.values_mut().filter(|hosted| hosted.owner.name == name) {
            hosted.ended = Some(exit_code);
        }
    }

    /// Something runs that nobody asked for by a pod that exists.
    pub(crate) fn plant(&self, uid: &str, ours: bool) {
        let owner = Owner { namespace: "default".into(), name: uid.into(), uid: uid.into() };
        let hosted = Hosted { owner, image: "i".into(), ours, steps: STEPS, ended: None, going: false };
        self.state().pods.insert(uid.to_owned(), hosted);
    }

    /// The machine had no room for the whole names of what runs there.
    pub(crate) fn cut_names(&self) {
        for hosted in self.state().pods.values_mut() {
            hosted.owner.name.push_str("~0123");
        }
    }

    /// The running workloads: pod name and image.
    pub(crate) fn running(&self) -> Vec<(String, String)> {
        let state = self.state();
        let running = state.pods.values().filter(|hosted| hosted.steps >= STEPS && !hosted.going);
        running.map(|hosted| (hosted.owner.name.clone(), hosted.image.clone())).collect()
    }

    /// The operations, in order.
    pub(crate) fn ledger(&self) -> Vec<String> {
        self.state().ledger.clone()
    }

    /// The number of reads of the machine.
    pub(crate) fn reads(&self) -> usize {
        self.state().reads
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn ask(&self) -> Result<MutexGuard<'_, State>, DriverError> {
        let state = self.state();
        match state.failure {
            Some(reason) => Err(DriverError::new(reason, "ask the machine").detail("as ordered")),
            None => Ok(state),
        }
    }

    /// The machine is to do something.
    async fn tell(&self) -> Result<MutexGuard<'_, State>, DriverError> {
        let hangs = self.state().hangs;
        if hangs {
            std::future::pending::<()>().await;
        }
        let state = self.ask()?;
        if state.balks {
            return Err(DriverError::new(Reason::Unavailable, "tell the machine").detail("as ordered"));
        }
        Ok(state)
    }
}

#[async_trait]
impl NodeBackEnd for Machine {
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError> {
        self.state().reads += 1;
        drop(self.ask()?);
        let capacity = [("cpu".to_owned(), Quantity("2".into()))];
        let info = MachineInfo {
            machine_id: "serial".into(),
            architecture: "amd64".into(),
            ..MachineInfo::default()
        };
        Ok(Reply::Now(NodeHealth {
            capacity: capacity.clone().into(),
            allocatable: capacity.into(),
            info,
            ..NodeHealth::default()
        }))
    }

    async fn inventory(&self) -> Result<Reply<HostedPods>, DriverError> {
        let state = self.ask()?;
        Ok(Reply::Now(state.pods.values().map(workload).collect()))
    }

    async fn apply(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        let mut state = self.tell().await?;
        if let Some(why) = state.refuses {
            return Err(DriverError::new(Reason::Unsupported, "take the pod").detail(why));
        }
        let owner = request.owner();
        let uid = owner.uid.as_str().to_owned();
        let image = request.pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap();
        let working = PodProgress::Working { state: "installing".into(), poll_after: STEP };
        let State { pods, ledger, .. } = &mut *state;
        match pods.get_mut(&uid) {
            None => {
                ledger.push(format!("install {} {image}", owner.name));
                let hosted = Hosted { owner, image, ours: true, steps: 1, ended: None, going: false };
                pods.insert(uid, hosted);
                Ok(working)
            }
            Some(hosted) if hosted.image != image => {
                ledger.push(format!("remove {} {}", owner.name, hosted.image));
                pods.remove(&uid);
                Ok(working)
            }
            Some(hosted) if hosted.ended.is_some() => {
                let policy = request.pod.spec.as_ref().unwrap().restart_policy.as_deref();
                if policy == Some("Always") {
                    ledger.push(format!("restart {}", owner.name));
                    hosted.ended = None;
                }
                Ok(PodProgress::Done)
            }
            Some(hosted) if hosted.steps < STEPS => {
                hosted.steps += 1;
                Ok(working)
            }
            Some(_) => Ok(PodProgress::Done),
        }
    }

    async fn remove(&self, removal: &PodRemoval) -> Result<PodProgress, DriverError> {
        let owner = &removal.owner;
        let mut state = self.tell().await?;
        let State { pods, ledger, .. } = &mut *state;
        let Some(hosted) = pods.get_mut(owner.uid.as_str()) else { return Ok(PodProgress::Done) };
        hosted.going = true;
        hosted.steps = hosted.steps.saturating_sub(1);
        if hosted.steps == 0 {
            ledger.push(format!("remove {} {}", owner.name, hosted.image));
            pods.remove(owner.uid.as_str());
        }
        Ok(PodProgress::Working { state: "removing".into(), poll_after: STEP })
    }
}

fn workload(hosted: &Hosted) -> HostedPod {
    let runs = hosted.steps >= STEPS && !hosted.going;
    let state = match hosted.ended {
        Some(0) => HostedContainerState::Ended { message: "as ordered".into() },
        Some(_) => HostedContainerState::Failed { reason: "Ended".into(), message: "as ordered".into() },
        None if runs => HostedContainerState::Running,
        None => HostedContainerState::Waiting {
            stage: DeploymentStage::Installing,
            message: format!("step {}", hosted.steps),
        },
    };
    let containers =
        vec![HostedContainer { name: "app".into(), id: format!("test://{}", hosted.owner.uid), state }];
    let ip = runs.then(|| "10.0.0.7".parse().unwrap());
    HostedPod { owner: hosted.owner.clone(), marked: hosted.ours, containers, ip }
}
