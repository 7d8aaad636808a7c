use std::path::Path;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use staffetta_apiserver::testing::real_kubeconfig;
use staffetta_apiserver::{ApiServer, Options};

use super::*;
use crate::engine::events::aggregation::Limits;
use crate::engine::identity::identity;

#[tokio::test]
async fn the_server_accepts_events() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    an_event_is_created_updated_and_created_again(&kubeconfig).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn the_server_accepts_events_on_a_real_server() {
    let kubeconfig = real_kubeconfig();
    an_event_is_created_updated_and_created_again(&kubeconfig).await;
}

/// Returns an aggregator without a minimum time between two writes, and a client.
struct World {
    client: Client,
    aggregator: Aggregator,
}

impl World {
    /// Returns the write that reports an occurrence on a new pod of this name.
    fn occur(&mut self, namespace: Option<&str>, name: &str, note: &str) -> EventWrite {
        let uid = format!("{name}-{}", random());
        let regarding = Identity::of::<Pod>(namespace.map(str::to_owned), name.into(), uid);
        self.add(Occurrence::new(regarding, &"vif".into(), true, "QuotaExceeded", (note, "")))
    }

    fn add(&mut self, occurrence: Occurrence) -> EventWrite {
        assert!(self.aggregator.add(occurrence, Instant::now()));
        self.next()
    }

    fn next(&mut self) -> EventWrite {
        self.aggregator.pop(Instant::now()).expect("it is due")
    }

    async fn send(&mut self, write: &EventWrite) -> EventOutcome {
        let result = send(self.client.clone(), identity(), write).await;
        let outcome = outcome(write.update, &result);
        self.aggregator.finish(write.clone(), outcome, Instant::now());
        outcome
    }
}

async fn an_event_is_created_updated_and_created_again(kubeconfig: &Path) {
    let client = crate::base::connect::client(Some(kubeconfig), None).await.unwrap();
    let limits = Limits { min_write_interval: Duration::ZERO, ..LIMITS };
    let aggregator = Aggregator::new(limits, random(), Instant::now());
    let mut world = World { client: client.clone(), aggregator };
    let namespace = format!("events-{:x}", random());
    let named = serde_json::from_value(json!({ "metadata": { "name": namespace } })).unwrap();
    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces.create(&PostParams::default(), &named).await.unwrap();
    let events = Api::<Event>::namespaced(world.client.clone(), &namespace);

    let made = world.occur(Some(&namespace), "web", "one");
    assert_eq!((made.update, world.send(&made).await), (false, EventOutcome::Done));
    assert_eq!(world.send(&made).await, EventOutcome::AlreadyExists);
    let updated = world.next();
    assert_eq!((updated.update, world.send(&updated).await), (true, EventOutcome::Done));
    let updated = world.add(Occurrence { note: "two".into(), ..made.occurrence.clone() });
    assert_eq!((updated.update, world.send(&updated).await), (true, EventOutcome::Done));
    let shown = events.get(&made.name).await.unwrap();
    let series = shown.series.unwrap();
    assert_eq!((shown.note.as_deref(), series.count), (Some("two"), 2));
    assert_eq!(shown.event_time.unwrap().0.as_microsecond(), made.first.as_microsecond());

    events.delete(&made.name, &DeleteParams::default()).await.unwrap();
    let lost = world.add(Occurrence { note: "three".into(), ..made.occurrence.clone() });
    assert_eq!((lost.update, world.send(&lost).await), (true, EventOutcome::NotFound));
    let again = world.next();
    assert_eq!((again.update, world.send(&again).await), (false, EventOutcome::Done));
    let shown = events.get(&made.name).await.unwrap();
    assert_eq!((shown.note.as_deref(), shown.series.unwrap().count), (Some("three"), 3));

    let longest = world.occur(Some(&namespace), &"x".repeat(253), &"ü".repeat(5000));
    assert_eq!((longest.name.len(), world.send(&longest).await), (253, EventOutcome::Done));
    let elsewhere = world.occur(Some("no-such-namespace"), "web", "");
    assert_eq!(world.send(&elsewhere).await, EventOutcome::Rejected);
    let cluster_wide = world.occur(None, "node", "");
    assert_eq!(world.send(&cluster_wide).await, EventOutcome::Done);
    let all = Api::<Event>::namespaced(world.client.clone(), "default");
    all.delete(&cluster_wide.name, &DeleteParams::default()).await.unwrap();

    let held = json!({ "metadata": { "finalizers": ["staffetta.dev/test"] } });
    let listed = events.list(&kube::api::ListParams::default()).await.unwrap();
    let name = listed.items[0].name_any();
    events.patch(&name, &PatchParams::default(), &Patch::Merge(&held)).await.unwrap();
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
    let late = world.occur(Some(&namespace), "web", "");
    assert_eq!(world.send(&late).await, EventOutcome::Rejected, "the namespace ends");
    let free = json!({ "metadata": { "finalizers": null } });
    events.patch(&name, &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
}
