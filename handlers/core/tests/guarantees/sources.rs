//! Triggers go through the same queues, in order with the events of their object.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use staffetta_handler::testing::{NoMetrics, pod};
use staffetta_handler::{
    Action, AnyEvent, Async, Change, Context, Event, EventHandler, HandlerError, Identity, Interest, Message,
    OrderingKey, Registration, Resolved, ResourceEventHandler, Source, Tombstone, Trigger, TriggerHandler,
    TriggerSender,
};

use crate::support::run_until_idle;

#[derive(Clone)]
struct Due(Identity);

impl Due {
    fn pod(pod: &Pod) -> Self {
        Self(Identity::of_object(pod))
    }

    fn node(name: &str) -> Self {
        Self(Identity::of::<Node>(None, name.into(), name.into()))
    }
}

impl Trigger for Due {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// Records its messages; each takes a second.
struct Slow(Arc<Mutex<Vec<String>>>);

impl Slow {
    async fn note(&self, what: &str, name: &str) {
        self.0.lock().unwrap().push(format!("{what} {name}"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl ResourceEventHandler<Pod> for Slow {
    type Error = std::convert::Infallible;

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<Action, Self::Error> {
        self.note("present", pod.metadata.name.as_deref().unwrap()).await;
        Ok(Action::done())
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Pod>) -> Result<Action, Self::Error> {
        self.note("deleted", tombstone.object_ref().name).await;
        Ok(Action::done())
    }
}

impl TriggerHandler<Due> for Slow {
    type Error = std::convert::Infallible;

    async fn on_trigger(&self, trigger: &Due) -> Result<Action, Self::Error> {
        self.note("due", &trigger.0.name).await;
        Ok(Action::done())
    }
}

type Log = Arc<Mutex<Vec<String>>>;

/// Returns the queues of a handler, the function that adds an event to them, and the log of the handler.
fn chain() -> (Async<Resolved, impl EventHandler<Resolved>>, impl Fn(AnyEvent), Log) {
    let log = Log::default();
    let registration = Registration::new(Slow(Arc::clone(&log))).on::<Pod>().on_trigger::<Due>();
    assert_eq!(registration.kinds().count(), 1, "a trigger is no kind to watch");
    let handler = Arc::new(registration.erase());
    let links = Arc::clone(&handler).limit(8, Resolved::group);
    let chain = Async::new(links, false, Resolved::key, Arc::new(NoMetrics));
    let queues = chain.clone();
    (chain, move |event| queues.push(handler.resolve(&event)), log)
}

#[tokio::test(start_paused = true)]
async fn a_trigger_is_ordered_with_the_events_of_its_object_only() {
    let (chain, push, log) = chain();
    let web = Arc::new(pod("default", "web"));
    push(Event::Added(Arc::clone(&web)).erase());
    run_until_idle().await;
    push(AnyEvent::trigger(Due::pod(&web)));
    push(AnyEvent::trigger(Due::node("n1")));
    run_until_idle().await;
    assert_eq!(*log.lock().unwrap(), ["present web", "due n1"]);
    chain.until_busy_at_most(0).await;
    assert_eq!(*log.lock().unwrap(), ["present web", "due n1", "due web"]);
}

#[tokio::test(start_paused = true)]
async fn a_newer_trigger_replaces_an_older_one_and_a_deletion_replaces_both() {
    let (chain, push, log) = chain();
    let web = Arc::new(pod("default", "web"));
    for _ in 0..5 {
        push(AnyEvent::trigger(Due::pod(&web)));
        run_until_idle().await;
    }
    push(Event::<Pod>::Deleted(Tombstone::Last(Arc::clone(&web))).erase());
    chain.until_busy_at_most(0).await;
    assert_eq!(*log.lock().unwrap(), ["due web", "deleted web"]);
}

#[test]
fn a_trigger_has_the_identity_of_its_object_and_is_recovered_as_its_own_type_only() {
    let event = AnyEvent::trigger(Due::node("n1"));
    assert_eq!((event.uid(), event.change(), event.finalizing()), ("n1", Change::Modified, false));
    assert!(event.typed::<Node>().is_none() && event.object().is_none());
    assert!(event.trigger_ref::<Due>().is_some());
    assert_ne!(OrderingKey::of(event.uid()), OrderingKey::of("n2"));
}

struct Once;

#[async_trait::async_trait]
impl Source for Once {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        sender.send(Due::node("n1"));
        Ok(())
    }
}

#[tokio::test]
async fn a_source_sends_its_triggers() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let registration = Registration::new(Slow(Log::default())).on_trigger::<Due>().source(Once).erase();
    let listening = Arc::clone(&heard);
    let sender =
        TriggerSender::new(move |event: AnyEvent| listening.lock().unwrap().push(event.uid().to_owned()));
    registration.sources[0].run(sender).await.unwrap();
    assert_eq!(*heard.lock().unwrap(), ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn joined_handlers_share_queues() {
    let log = Log::default();
    let events = Registration::new(Slow(Arc::clone(&log))).on::<Pod>();
    let triggers = Registration::new(Slow(Arc::clone(&log))).on_trigger::<Due>();
    let handler = events.join(triggers.erase()).erase();
    let web = Arc::new(pod("default", "web"));
    handler
        .handle(&handler.resolve(&Event::Added(Arc::clone(&web)).erase()), &Context::detached())
        .await
        .unwrap();
    handler.handle(&handler.resolve(&AnyEvent::trigger(Due::pod(&web))), &Context::detached()).await.unwrap();
    assert_eq!(*log.lock().unwrap(), ["present web", "due web"]);
}

#[tokio::test]
async fn a_filter_that_panics_defers_the_event() {
    let of_pods = Registration::new(Slow(Log::default())).on::<Pod>().erase();
    let panics = of_pods.filter(|event| panic!("as ordered: {event:?}"));
    let web = Event::Added(Arc::new(pod("default", "web"))).erase();
    assert!(matches!(panics.wants(&web), Interest::Deferred(_)));
}

#[tokio::test(start_paused = true)]
async fn a_filter_holds_for_the_handlers_that_were_joined_before_it() {
    let log = Log::default();
    let named = |right: bool| Interest::unless((!right).then_some("it has another name"));
    let only = move |name: &'static str| move |event: &AnyEvent| named(event.object_ref().name == name);
    let events =
        Registration::new(Slow(Arc::clone(&log))).on::<Pod>().on::<Pod>().erase().filter(only("web"));
    let triggers = Registration::new(Slow(Arc::clone(&log))).on_trigger::<Due>().erase();
    let joined = events.join(triggers);
    let handler = joined.filter(move |event| named(event.object_ref().name != "cache"));
    let object = |name: &str| Arc::new(pod("default", name));
    let added = |name: &str| Event::Added(object(name)).erase();
    let due = |name: &str| AnyEvent::trigger(Due::pod(&object(name)));
    assert_eq!(
        ["web", "db", "cache"].map(|name| handler.wants(&added(name)).is_taken()),
        [true, false, false]
    );
    assert_eq!(["web", "db", "cache"].map(|name| handler.wants(&due(name)).is_taken()), [true, true, false]);
    handler.handle(&handler.resolve(&added("web")), &Context::detached()).await.unwrap();
    assert_eq!(
        *log.lock().unwrap(),
        ["present web"],
        "a handler that is registered twice gets the event once"
    );
}

#[test]
#[should_panic(
    expected = "two joined handlers have the same kind Pod: only one of them may be registered for it"
)]
fn joined_handlers_have_different_kinds() {
    let of_pods = || Registration::new(Slow(Log::default())).on::<Pod>().erase();
    drop(of_pods().join(of_pods()));
}
