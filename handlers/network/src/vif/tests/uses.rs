//! Property: a VIF that a living pod may use is neither released nor given to another pod, in whatever way its record was lost.

use proptest::prelude::*;
use staffetta_driver::{DriverError, PodVifDriver, Reason};
use staffetta_handler::{GarbageCollector, Index};
use staffetta_memory::{Fault, MemoryBulkVifDriver, MemoryPublishedVifs, VifMethod};
use staffetta_pool::{VifPoolPolicy, WarmVifPool};

use super::*;
use crate::vif::networks::{NETWORKS, Networks};

const PODS: usize = 3;
const POLICY: VifPoolPolicy = VifPoolPolicy { min: 1, max: 3, batch: 2, cool_down: Duration::from_secs(20) };

/// The pool, and the networks of the pods.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Noop,
    Warm,
    /// A warm pool, and pods with an additional network.
    Several,
}

/// A step of a history. A number is that of a pod.
#[derive(Clone, Debug)]
enum Act {
    /// The controller handles the present state of the pod.
    Handle(usize),
    /// The node binds the VIFs in the annotation.
    Bind(usize),
    /// The node reports the address of a bound pod, which runs.
    Report(usize),
    /// Somebody removes the annotation.
    Strip(usize),
    /// Somebody removes all traces of the controller from a pod that runs.
    StripAll(usize),
    Garble(usize),
    /// Somebody lets the first pod name the VIFs of the second one. With a pool, nothing but the annotations tells before a pod has an
    /// address which one got the VIF.
    Forge(usize, usize),
    /// The pod ends, and another one follows.
    End(usize),
    /// Another process takes over, with the memory of none.
    Restart,
    /// Cool-downs end.
    Rest,
    /// Garbage is collected.
    Sweep,
    Fault(VifMethod),
}

fn act() -> impl Strategy<Value = Act> {
    let pod = || 0..PODS;
    let method = prop_oneof![Just(VifMethod::Request), Just(VifMethod::Release), Just(VifMethod::List)];
    prop_oneof![
        8 => pod().prop_map(Act::Handle),
        6 => pod().prop_map(Act::Bind),
        4 => pod().prop_map(Act::Report),
        3 => pod().prop_map(Act::Strip),
        2 => pod().prop_map(Act::StripAll),
        2 => pod().prop_map(Act::Garble),
        2 => (pod(), pod()).prop_map(|(pod, other)| Act::Forge(pod, other)),
        2 => pod().prop_map(Act::End),
        3 => Just(Act::Restart),
        3 => Just(Act::Rest),
        2 => Just(Act::Sweep),
        1 => method.prop_map(Act::Fault),
    ]
}

struct Cluster {
    kind: Kind,
    apis: Vec<Arc<ApiServer<Pod>>>,
    network: Arc<MemoryNetwork>,
    vifs: Arc<MemoryVifDriver>,
    handler: VifHandler,
    /// The VIFs that the node has bound to each pod, the default one first.
    bound: Vec<Vec<Vif>>,
    /// The text that somebody else wrote into the annotation of each pod.
    foreign: Vec<Option<String>>,
    generation: usize,
}

fn fresh() -> Value {
    json!({ "phase": "Pending", "hostIP": "192.0.2.1" })
}

impl Cluster {
    async fn new(kind: Kind) -> Self {
        let second: ipnet::IpNet = "10.20.0.0/16".parse().unwrap();
        let options = MemoryOptions {
            activation_delay_ms: 0,
            namespace_subnets: [("x".into(), vec![second])].into(),
            ..MemoryOptions::default()
        };
        let network = Arc::new(MemoryNetwork::new(options));
        let vifs = Arc::new(MemoryVifDriver::new(Arc::clone(&network), "east".into()));
        let spec = json!({ "containers": [], "nodeName": "node-1" });
        let apis: Vec<_> =
            (0..PODS).map(|pod| ApiServer::named(&format!("pod-{pod}"), &spec, &fresh())).collect();
        let handler = handler(&apis[0], &network, &vifs, &RecordedEvents::default());
        let (bound, foreign) = (vec![Vec::new(); PODS], vec![None; PODS]);
        let mut cluster = Self { kind, apis, network, vifs, handler, bound, foreign, generation: 0 };
        (0..PODS).for_each(|pod| cluster.ask(pod));
        cluster.restart().await;
        cluster
    }

    /// Lets the pod request an additional network.
    fn ask(&self, pod: usize) {
        if self.kind == Kind::Several {
            self.apis[pod].annotate(NETWORKS, "blue");
        }
    }

    async fn restart(&mut self) {
        let mut drivers = self.handler.drivers.clone();
        if self.kind != Kind::Noop {
            let bulk = Arc::new(MemoryBulkVifDriver::new(Arc::clone(&self.network), "east".into()));
            let vifs = Arc::clone(&self.vifs) as Arc<dyn PodVifDriver>;
            let published = Arc::<MemoryPublishedVifs>::default();
            drivers.pool = Arc::new(WarmVifPool::new(bulk, vifs, published, POLICY, Arc::new(|| true)));
        }
        if self.kind == Kind::Several {
            let networks = Arc::new(Networks::default());
            let blue = json!({ "metadata": { "namespace": "default", "name": "blue", "uid": "blue" },
                "spec": { "config": r#"{"subnetId":"subnet-10.20.0.0/16"}"# } });
            networks.apply(&Event::Added(Arc::new(serde_json::from_value(blue).unwrap())));
            let (shared_namespaces, driver) = (None, "memory".into());
            drivers.additional = Some(AdditionalNetworks { networks, shared_namespaces, driver });
        }
        let client = ApiServer::client_of(&self.apis);
        self.handler = VifHandler::new(client, drivers, Arc::default(), Recorder::silent());
        while self.handler.recover().await.is_err() {}
        for pod in 0..PODS {
            self.handler.pool_feed.apply(&Event::Added(self.apis[pod].object()));
        }
        self.handler.pool_feed.finish();
        run_until_idle().await;
    }

    async fn handle(&self, pod: usize) {
        let event = Event::Modified(self.apis[pod].object());
        self.handler.pool_feed.apply(&event);
        if self.handler.wants(&event).is_taken() {
            let _ = tokio::time::timeout(Duration::from_secs(60), deliver(&self.handler, &event)).await;
        }
    }

    fn shown(&self, pod: usize) -> Option<PodState> {
        let text = self.apis[pod].annotation(KURYR_VIF)?;
        PodState::read(&text).ok().filter(|_| self.foreign[pod].as_ref() != Some(&text))
    }

    fn tamper(&mut self, pod: usize, text: Option<String>) {
        self.apis[pod].change(|pod| {
            let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
            match &text {
                Some(text) => drop(annotations.insert(KURYR_VIF.into(), json!(text))),
                None => drop(annotations.remove(KURYR_VIF)),
            }
        });
        self.foreign[pod] = text;
    }

    async fn act(&mut self, act: Act) {
        match act {
            Act::Handle(pod) => self.handle(pod).await,
            Act::Bind(pod) => {
                let shown = self.shown(pod).filter(|_| self.bound[pod].is_empty());
                self.bound[pod].extend(shown.iter().flat_map(|state| state.vifs().cloned()));
            }
            Act::Report(pod) => {
                if let Some(vif) = self.bound[pod].first() {
                    let address = vif.ips().next().unwrap().to_string();
                    let status = json!({ "phase": "Running", "hostIP": "192.0.2.1", "podIP": address });
                    self.apis[pod].change(|pod| pod["status"] = status);
                    self.handler.pool_feed.apply(&Event::Modified(self.apis[pod].object()));
                }
            }
            Act::Strip(pod) => self.tamper(pod, None),
            Act::StripAll(pod) => {
                if self.apis[pod].object().status.as_ref().unwrap().pod_ip.is_some() {
                    self.tamper(pod, None);
                    self.apis[pod].change(|pod| {
                        pod["metadata"]["finalizers"] = json!([THEIRS]);
                        pod["metadata"]["annotations"].as_object_mut().unwrap().remove(NETWORKS);
                    });
                }
            }
            Act::Garble(pod) => self.tamper(pod, Some("nonsense".into())),
            Act::Forge(pod, other) => {
                let has_address =
                    |pod: usize| self.apis[pod].object().status.as_ref().unwrap().pod_ip.is_some();
                let is_reported = has_address(other) && (self.bound[pod].is_empty() || has_address(pod));
                let is_possible = pod != other && (is_reported || self.kind == Kind::Noop);
                if let Some(text) = self.apis[other].annotation(KURYR_VIF).filter(|_| is_possible) {
                    self.tamper(pod, Some(text));
                }
            }
            Act::End(pod) => {
                self.apis[pod].change(|pod| pod["status"]["phase"] = json!("Succeeded"));
                self.bound[pod].clear();
                self.handle(pod).await;
                let last = Event::Deleted(Tombstone::Last(self.apis[pod].object()));
                self.handler.pool_feed.apply(&last);
                let _ = tokio::time::timeout(Duration::from_secs(60), deliver(&self.handler, &last)).await;
                self.generation += 1;
                let uid = format!("uid-{}", self.generation);
                self.apis[pod].change(|pod| {
                    pod["metadata"]["uid"] = json!(uid);
                    pod["metadata"]["annotations"] = json!({ THEIRS: "stays" });
                    pod["metadata"]["finalizers"] = json!([THEIRS]);
                    pod["status"] = fresh();
                });
                self.foreign[pod] = None;
                self.ask(pod);
            }
            Act::Restart => self.restart().await,
            Act::Rest => {
                tokio::time::advance(POLICY.cool_down + Duration::from_secs(1)).await;
                run_until_idle().await;
            }
            Act::Sweep => {
                if self.handler.owners().await.is_ok() {
                    for trigger in self.handler.leaks.triggers() {
                        drop(self.handler.on_trigger(&trigger).await);
                    }
                }
            }
            Act::Fault(method) => {
                let outage = DriverError::new(Reason::Unavailable, "answer");
                self.vifs.faults().inject(method, 1, Fault::DoneThenFail(outage));
            }
        }
    }

    /// Asserts that the VIFs that nodes have bound exist, and that no other pod has them.
    fn check(&self, done: &Act) {
        for (pod, vif) in
            self.bound.iter().enumerate().flat_map(|(pod, vifs)| vifs.iter().map(move |vif| (pod, vif)))
        {
            assert!(self.network.port(&vif.id).is_some(), "{done:?} released {} of pod {pod}", vif.id);
            for other in (0..PODS).filter(|other| *other != pod) {
                let is_shown =
                    self.shown(other).is_some_and(|state| state.vifs().any(|shown| shown.id == vif.id));
                let uid = Owner::of(&self.apis[other].object().metadata).uid;
                let accepted = self.handler.claims.verified(&uid).unwrap_or_default();
                // Before the controller sees the address of a pod, nothing but its annotation tells which pooled VIF it got.
                let has_address = self.apis[pod].object().status.as_ref().unwrap().pod_ip.is_some();
                let is_reported = has_address && matches!(done, Act::Handle(handled) if *handled == other);
                assert!(
                    !is_reported || !accepted.contains(&vif.id),
                    "{done:?} accepted {} of pod {pod} for pod {other}",
                    vif.id
                );
                assert!(!is_shown, "{done:?} gave {} of pod {pod} to pod {other}", vif.id);
            }
        }
    }
}

async fn run_until_idle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_lost_annotation_has_the_pooled_vif_and_that_of_the_additional_network_again() {
    let mut cluster = Cluster::new(Kind::Several).await;
    cluster.handle(0).await;
    let before = cluster.apis[0].annotation(KURYR_VIF);
    for act in [Act::Bind(0), Act::Report(0), Act::Handle(0), Act::Strip(0), Act::Restart, Act::Handle(0)] {
        cluster.act(act).await;
    }
    assert_eq!(cluster.apis[0].annotation(KURYR_VIF), before);
    assert_eq!(cluster.shown(0).unwrap().vifs().count(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn what_a_living_pod_may_use_is_never_released_and_never_given_to_another(
        kind in prop_oneof![Just(Kind::Noop), Just(Kind::Warm), Just(Kind::Several)],
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut cluster = Cluster::new(kind).await;
            for pod in 0..PODS {
                cluster.handle(pod).await;
            }
            for act in acts {
                cluster.act(act.clone()).await;
                cluster.check(&act);
            }
        });
    }
}
