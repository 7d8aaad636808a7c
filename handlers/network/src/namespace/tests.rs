use serde_json::{Value, json};
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{Event, deliver};
use staffetta_memory::{
    Fault, MemoryNamespaceSubnets, MemoryNetwork, MemoryOptions, NamespaceCall, NamespaceMethod,
};

use super::*;
use crate::testing::api_server::{Answer, ApiServer, THEIRS};
use crate::testing::recorder::RecordedEvents;

const UID: &str = "uid-web";

/// The handler, the simulated network, and an API server with one namespace.
struct World {
    api: Arc<ApiServer<Namespace>>,
    subnets: Arc<MemoryNamespaceSubnets>,
    handler: NamespaceHandler,
    events: RecordedEvents,
}

fn handler(
    api: &Arc<ApiServer<Namespace>>,
    subnets: &Arc<MemoryNamespaceSubnets>,
    events: &RecordedEvents,
) -> NamespaceHandler {
    let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
    let drivers = NamespaceDrivers { project: network, subnet: Arc::clone(subnets) as _ };
    NamespaceHandler::new(api.client(), drivers, events.recorder())
}

impl World {
    fn new() -> Self {
        let subnets = Arc::new(MemoryNamespaceSubnets::default());
        let api = ApiServer::new(&json!({ "finalizers": ["kubernetes"] }), &json!({ "phase": "Active" }));
        let events = RecordedEvents::default();
        let handler = handler(&api, &subnets, &events);
        Self { api, subnets, handler, events }
    }

    /// Creates a world whose namespace has a network.
    async fn with_network() -> Self {
        let world = Self::new();
        world.event().await.unwrap();
        world.event().await.unwrap();
        world
    }

    /// Restarts the controller.
    async fn restart(&mut self) {
        self.handler = handler(&self.api, &self.subnets, &self.events);
        self.handler.recover().await.unwrap();
    }

    /// Delivers the present state of the namespace.
    async fn event(&self) -> Result<(), StepError> {
        deliver(&self.handler, &Event::Modified(self.api.object())).await.map(drop)
    }

    async fn deleted(&self) -> Result<(), StepError> {
        deliver(&self.handler, &Event::Deleted(Tombstone::Last(self.api.object()))).await.map(drop)
    }

    async fn missed(&self) -> Result<(), StepError> {
        let identity = Identity::of::<Namespace>(None, "web".into(), UID.into());
        deliver(&self.handler, &Event::<Namespace>::Deleted(Tombstone::Missed(Arc::new(identity))))
            .await
            .map(drop)
    }

    /// Requests the deletion of the namespace.
    fn delete(&self) {
        self.api.change(|object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    }

    /// Removes Kubernetes' own finalizer, as if all objects in the namespace had been deleted.
    fn emptied(&self) {
        self.api.change(|object| object["spec"]["finalizers"] = json!([]));
    }

    fn shown(&self) -> Option<NamespaceNetwork> {
        self.api.annotation(NAMESPACE_NETWORK).map(|text| NamespaceNetwork::read(&text).unwrap())
    }

    fn patches(&self) -> Vec<Value> {
        self.api.patches().into_iter().map(|(_, patch)| patch).collect()
    }

    fn calls(&self) -> usize {
        self.subnets.calls().len()
    }

    fn exists(&self) -> bool {
        !self.subnets.owners().is_empty()
    }

    fn fail(&self, method: NamespaceMethod, fault: fn(DriverError) -> Fault) {
        let error = DriverError::new(Reason::Unavailable, "ask the external system");
        self.subnets.faults().inject(method, 1, fault(error));
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_is_published_by_one_write() {
    let world = World::new();
    world.event().await.unwrap();
    let shown = world.shown().unwrap();
    assert_eq!(shown.subnet.as_str(), "subnet-uid-web");
    let expected = json!({ "metadata": { "uid": UID, "resourceVersion": "1",
        "annotations": { NAMESPACE_NETWORK: shown.write() }, "finalizers": [FINALIZER] } });
    assert_eq!(world.patches(), [expected]);
    assert_eq!(world.api.annotation(THEIRS).as_deref(), Some("stays"));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_a_network_causes_no_calls() {
    let mut world = World::with_network().await;
    assert_eq!((world.calls(), world.patches().len()), (1, 1));
    world.restart().await;
    world.event().await.unwrap();
    assert_eq!(world.subnets.calls()[1..], [NamespaceCall::List]);
    assert_eq!((world.patches().len(), world.events.reasons()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_unpublished_network_is_published_and_not_created_again() {
    for answer in [Answer::Broken, Answer::Overtaken, Answer::Refuse(503, vec![])] {
        let world = World::new();
        world.api.answer(answer);
        assert!(world.event().await.unwrap_err().transient());
        world.event().await.unwrap();
        assert!(world.shown().is_some());
        assert_eq!(world.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_network_of_a_killed_controller_is_found_and_not_created_twice() {
    let mut world = World::new();
    world.fail(NamespaceMethod::Ensure, Fault::DoneThenFail);
    world.event().await.unwrap_err();
    world.restart().await;
    world.event().await.unwrap();
    assert_eq!((world.subnets.owners().len(), world.shown().is_some()), (1, true));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_keeps_its_network_until_it_is_emptied() {
    let world = World::with_network().await;
    world.delete();
    world.event().await.unwrap();
    assert!(world.exists());
    assert_eq!((world.calls(), world.patches().len()), (1, 1), "nobody polls");
    world.emptied();
    world.event().await.unwrap();
    assert!(!world.exists());
    let expected = json!({ "metadata": { "uid": UID, "$deleteFromPrimitiveList/finalizers": [FINALIZER] } });
    assert_eq!(world.patches()[1..], [expected]);
    world.deleted().await.unwrap();
    assert_eq!(world.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_finalizer_stays_until_the_release_succeeded() {
    let world = World::with_network().await;
    world.delete();
    world.emptied();
    world.subnets.set_used(&UID.into(), true);
    let error = world.event().await.unwrap_err();
    assert!(error.transient() && error.reason() == "DriverConflict", "{error}");
    assert!(world.api.finalizers().contains(&FINALIZER.to_owned()));
    world.subnets.set_used(&UID.into(), false);
    world.api.answer(Answer::Refuse(503, vec![]));
    world.event().await.unwrap_err();
    world.event().await.unwrap();
    assert_eq!(world.api.finalizers(), [THEIRS]);
    let releases = world.subnets.calls().into_iter().filter(|call| matches!(call, NamespaceCall::Release(_)));
    assert_eq!(releases.count(), 2, "a release is not repeated because the write after it failed");
}

#[tokio::test(start_paused = true)]
async fn an_unpublished_network_is_released_as_soon_as_the_namespace_is_deleted() {
    let world = World::new();
    world.api.answer(Answer::Broken);
    world.event().await.unwrap_err();
    world.delete();
    world.event().await.unwrap();
    assert!(!world.exists());
}

#[tokio::test(start_paused = true)]
async fn the_network_of_a_killed_controller_is_released_as_soon_as_the_namespace_is_deleted() {
    let mut world = World::new();
    world.fail(NamespaceMethod::Ensure, Fault::DoneThenFail);
    world.event().await.unwrap_err();
    world.restart().await;
    world.delete();
    world.event().await.unwrap();
    assert!(!world.exists());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_deleted_before_the_write_releases_its_network() {
    let world = World::new();
    let old = world.api.object();
    world.delete();
    world.api.answer(Answer::Refuse(422, vec!["metadata.finalizers"]));
    deliver(&world.handler, &Event::Added(old)).await.unwrap();
    assert!(!world.exists() && world.shown().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_network_of_a_missed_deletion_is_found_by_its_mark() {
    let mut world = World::with_network().await;
    world.restart().await;
    let owners = world.handler.owners().await.unwrap();
    let reported: Vec<_> = owners.iter().map(|owner| (&*owner.name, &*owner.uid)).collect();
    assert_eq!(reported, [("web", UID)]);
    world.missed().await.unwrap();
    assert!(!world.exists());
    assert_eq!(world.handler.records.get(&UID.into()), None);
}

#[tokio::test(start_paused = true)]
async fn the_network_of_a_namespace_without_a_finalizer_is_released_after_its_deletion() {
    let world = World::with_network().await;
    world.deleted().await.unwrap();
    assert!(!world.exists());
    let strange = World::new();
    strange.deleted().await.unwrap();
    assert_eq!(strange.calls(), 0, "a namespace without a network causes no calls");
}

/// A value that a tenant may write in place of the annotation: `None` removes it.
fn forgeries() -> Vec<Option<String>> {
    let named = |network: &str, subnet: &str| {
        Some(NamespaceNetwork { network: network.into(), subnet: subnet.into() }.write())
    };
    vec![
        None,
        Some(String::new()),
        Some("mine".into()),
        Some("{}".into()),
        named("network-uid-other", "subnet-uid-other"),
        named("network-uid-web", "subnet-uid-other"),
        named("network-uid-other", "subnet-uid-web"),
        named("services", "services"),
        named("", ""),
    ]
}

#[tokio::test(start_paused = true)]
async fn whatever_others_write_into_the_annotation_is_replaced_with_an_event() {
    let own = NamespaceNetwork { network: "network-uid-web".into(), subnet: "subnet-uid-web".into() };
    let other = Owner { namespace: String::new(), name: "other".into(), uid: "uid-other".into() };
    for forgery in forgeries() {
        for (keeps_finalizer, restarts) in [(true, false), (true, true), (false, false), (false, true)] {
            let mut world = World::with_network().await;
            world.subnets.ensure_network(&other, &"p".into()).await.unwrap();
            world.api.change(|object| {
                object["metadata"]["annotations"] = json!({ THEIRS: "stays" });
                if let Some(text) = &forgery {
                    object["metadata"]["annotations"][NAMESPACE_NETWORK] = json!(text);
                }
                if !keeps_finalizer {
                    object["metadata"]["finalizers"] = json!([THEIRS]);
                }
            });
            if restarts {
                world.restart().await;
            }
            world.event().await.unwrap();
            assert_eq!(world.shown().as_ref(), Some(&own), "{forgery:?}");
            assert_eq!(world.events.reasons(), ["NetworkAnnotationRestored"], "{forgery:?}");
            assert!(world.api.finalizers().contains(&FINALIZER.to_owned()));
            let calls = world.calls();
            world.event().await.unwrap();
            world.event().await.unwrap();
            assert_eq!((world.calls(), world.events.reasons()), (calls, vec![]), "it is believed again");
            assert_eq!(world.subnets.owners().len(), 2, "the network of the other namespace stays");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_annotation_and_a_finalizer_that_were_forged_from_the_start_give_a_network_of_its_own() {
    for forgery in forgeries() {
        let mut world = World::new();
        let other = Owner { namespace: String::new(), name: "other".into(), uid: "uid-other".into() };
        world.subnets.ensure_network(&other, &"p".into()).await.unwrap();
        world.api.change(|object| {
            object["metadata"]["finalizers"] = json!([THEIRS, FINALIZER]);
            if let Some(text) = &forgery {
                object["metadata"]["annotations"][NAMESPACE_NETWORK] = json!(text);
            }
        });
        world.restart().await;
        world.event().await.unwrap();
        assert_eq!(world.shown().unwrap().subnet.as_str(), "subnet-uid-web", "{forgery:?}");
        let expected = if forgery.is_some() { vec!["NetworkAnnotationRestored"] } else { vec![] };
        assert_eq!(world.events.reasons(), expected, "{forgery:?}");
        world.event().await.unwrap();
        // The deletion of the namespace releases its own network, whatever it names by then.
        world.api.annotate(NAMESPACE_NETWORK, forgeries()[4].as_deref().unwrap());
        world.delete();
        world.emptied();
        world.event().await.unwrap();
        assert_eq!(world.subnets.owners(), [other], "{forgery:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_that_was_deleted_in_the_cloud_is_made_again_when_the_annotation_is_removed() {
    let world = World::with_network().await;
    let owner = world.subnets.owners().remove(0);
    world.subnets.release_network(&owner).await.unwrap();
    world.api.change(|object| object["metadata"]["annotations"] = json!({ THEIRS: "stays" }));
    world.event().await.unwrap();
    assert_eq!((world.shown().is_some(), world.subnets.owners().len()), (true, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_older_than_our_write_waits_for_the_event_of_the_write() {
    let world = World::new();
    let old = world.api.object();
    world.event().await.unwrap();
    let error = deliver(&world.handler, &Event::Modified(old)).await.unwrap_err();
    assert!(error.is_stale());
    assert_eq!(world.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_driver_error_names_step_and_reason() {
    let world = World::new();
    let quota = DriverError::new(Reason::Quota, "make a network").after(std::time::Duration::from_secs(7));
    world.subnets.faults().inject(NamespaceMethod::Ensure, 1, Fault::Fail(quota));
    let error = world.event().await.unwrap_err();
    assert_eq!((error.transient(), error.reason()), (true, "QuotaExceeded"));
    assert_eq!(error.retry_after(), Some(std::time::Duration::from_secs(7)));
}
