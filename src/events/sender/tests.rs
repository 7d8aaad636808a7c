use std::path::Path;

use k8s_openapi::api::core::v1::{Namespace, ObjectReference};
use kube::ResourceExt;
use kube::api::DeleteParams;
use staffetta_apiserver::testing::real_kubeconfig;
use staffetta_apiserver::{ApiServer, Options};
use tokio::time::Instant;

use super::*;
use crate::events::aggregator::{Aggregator, Limits, Next};
use crate::events::notice::{CLUSTER_WIDE, Notice, Weight};
use crate::identity::{identity, random};

#[tokio::test]
async fn what_is_sent_is_taken() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig()).unwrap();
    an_event_lives_is_forgotten_and_lives_again(&kubeconfig).await;
}

#[tokio::test]
async fn what_is_sent_is_taken_on_a_real_server() {
    if let Some(kubeconfig) = real_kubeconfig() {
        an_event_lives_is_forgotten_and_lives_again(&kubeconfig).await;
    }
}

/// An aggregator without patience, and a sender.
struct World {
    client: Client,
    aggregator: Aggregator,
    sender: Sender,
}

impl World {
    /// Something happens to a pod of this name.
    fn happens(&mut self, namespace: Option<&str>, name: &str, note: &str) -> Posting {
        let regarding = ObjectReference {
            kind: Some("Pod".into()),
            namespace: namespace.map(str::to_owned),
            name: Some(name.into()),
            uid: Some(format!("{name}-{}", random())),
            ..ObjectReference::default()
        };
        self.again(Notice::new(regarding, Weight::Warning, "QuotaExceeded", &"vif".into(), (note, "")))
    }

    fn again(&mut self, notice: Notice) -> Posting {
        assert!(self.aggregator.take(notice, Instant::now()));
        self.next()
    }

    fn next(&mut self) -> Posting {
        let Next::Send(posting) = self.aggregator.next(Instant::now()) else { panic!("it is due") };
        *posting
    }

    async fn send(&mut self, posting: &Posting) -> Answer {
        let sent = self.sender.send(posting).await;
        let answer = answer(posting.step, &sent);
        self.aggregator.answered(posting.clone(), answer, Instant::now());
        answer
    }
}

async fn an_event_lives_is_forgotten_and_lives_again(kubeconfig: &Path) {
    let client = crate::connect::client(Some(kubeconfig)).await.unwrap();
    let limits = Limits { spacing: Duration::ZERO, ..Limits::default() };
    let mut world = World {
        client: client.clone(),
        aggregator: Aggregator::new(limits, random(), Instant::now()),
        sender: Sender::new(client, identity()),
    };
    let namespace = format!("sender-{:x}", random());
    let named = serde_json::from_value(json!({ "metadata": { "name": namespace } })).unwrap();
    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces.create(&PostParams::default(), &named).await.unwrap();
    let events = Api::<Event>::namespaced(world.client.clone(), &namespace);

    let made = world.happens(Some(&namespace), "web", "one");
    assert_eq!((made.step, world.send(&made).await), (Step::Create, Answer::Done));
    assert_eq!(world.send(&made).await, Answer::Existed);
    let updated = world.next();
    assert_eq!((updated.step, world.send(&updated).await), (Step::Update, Answer::Done));
    let updated = world.again(Notice { note: "two".into(), ..made.notice.clone() });
    assert_eq!((updated.step, world.send(&updated).await), (Step::Update, Answer::Done));
    let shown = events.get(&made.name).await.unwrap();
    let series = shown.series.unwrap();
    assert_eq!((shown.note.as_deref(), series.count), (Some("two"), 2));
    assert_eq!(shown.event_time.unwrap().0.as_microsecond(), made.first.as_microsecond());

    events.delete(&made.name, &DeleteParams::default()).await.unwrap();
    let lost = world.again(Notice { note: "three".into(), ..made.notice.clone() });
    assert_eq!((lost.step, world.send(&lost).await), (Step::Update, Answer::Vanished));
    let again = world.next();
    assert_eq!((again.step, world.send(&again).await), (Step::Create, Answer::Done));
    let shown = events.get(&made.name).await.unwrap();
    assert_eq!((shown.note.as_deref(), shown.series.unwrap().count), (Some("three"), 3));

    let longest = world.happens(Some(&namespace), &"x".repeat(253), &"ü".repeat(5000));
    assert_eq!((longest.name.len(), world.send(&longest).await), (253, Answer::Done));
    let elsewhere = world.happens(Some("no-such-namespace"), "web", "");
    assert_eq!(world.send(&elsewhere).await, Answer::Refused);
    let cluster_wide = world.happens(None, "node", "");
    assert_eq!(world.send(&cluster_wide).await, Answer::Done);
    let all = Api::<Event>::namespaced(world.client.clone(), CLUSTER_WIDE);
    all.delete(&cluster_wide.name, &DeleteParams::default()).await.unwrap();

    let held = json!({ "metadata": { "finalizers": ["staffetta.dev/test"] } });
    let listed = events.list(&kube::api::ListParams::default()).await.unwrap();
    let name = listed.items[0].name_any();
    events.patch(&name, &PatchParams::default(), &Patch::Merge(&held)).await.unwrap();
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
    let late = world.happens(Some(&namespace), "web", "");
    assert_eq!(world.send(&late).await, Answer::Refused, "the namespace ends");
    let free = json!({ "metadata": { "finalizers": null } });
    events.patch(&name, &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
}
