//! The traits that handler authors implement: one method for each change of an object.

use std::future::Future;
use std::sync::Arc;

use super::interest::Interest;
use crate::chain::Action;
use crate::event::{Event, Object, OrderingKey, Tombstone, Trigger};
use crate::failure::Failure;

/// A handler of the events of one kind. All methods are optional.
///
/// | event | methods called |
/// |---|---|
/// | `Added` | [`on_added`](Self::on_added), then [`on_present`](Self::on_present) |
/// | `Modified` | [`on_modified`](Self::on_modified), then [`on_present`](Self::on_present) |
/// | either, with a `deletionTimestamp` | [`on_finalize`](Self::on_finalize) only |
/// | `Deleted` | [`on_deleted`](Self::on_deleted) |
///
/// The returned [`Action`] says whether the work is done, or when the handler is to be called again with the same event. It is also called
/// again when it was interrupted or failed, and with every object as `Added` after a restart, so it must be idempotent.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use staffetta_handler::{Action, ResourceEventHandler};
///
/// struct Count(std::sync::atomic::AtomicUsize);
///
/// impl ResourceEventHandler<Pod> for Count {
///     type Error = std::convert::Infallible;
///
///     async fn on_added(&self, _: &Arc<Pod>) -> Result<Action, Self::Error> {
///         self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         Ok(Action::done())
///     }
/// }
/// ```
pub trait ResourceEventHandler<K: Object>: Send + Sync + 'static {
    /// The error of all methods of the handler.
    type Error: Failure;

    /// Returns [`Interest::Taken`] if the handler takes the event, otherwise the reason why it does not. The method is called before the
    /// event is queued. An event that is [declined](Interest::Declined) removes the queued events of the object and ends its retries,
    /// unless the deletion of the object was requested.
    fn wants(&self, event: &Event<K>) -> Interest {
        let _ = event;
        Interest::Taken
    }

    /// Returns the ordering key: events with the same key are handled one after the other. By default, each object has its own key.
    fn key(&self, event: &Event<K>) -> OrderingKey {
        OrderingKey::of(event.uid())
    }

    /// Returns the group of the event. Each group has permits of its own in [`Limit`](crate::Limit), for example one group for each
    /// device, so that a slow device does not delay the others. Events without a group share the permits of the handler.
    fn group(&self, event: &Event<K>) -> Option<OrderingKey> {
        let _ = event;
        None
    }

    /// Handles an object that is new to this process.
    fn on_added(&self, object: &Arc<K>) -> impl Future<Output = Result<Action, Self::Error>> + Send {
        let _ = object;
        async { Ok(Action::done()) }
    }

    /// Handles a change of an object.
    fn on_modified(&self, object: &Arc<K>) -> impl Future<Output = Result<Action, Self::Error>> + Send {
        let _ = object;
        async { Ok(Action::done()) }
    }

    /// Handles an object that is new or changed.
    fn on_present(&self, object: &Arc<K>) -> impl Future<Output = Result<Action, Self::Error>> + Send {
        let _ = object;
        async { Ok(Action::done()) }
    }

    /// Handles an object with a `deletionTimestamp`, whose deletion waits for its finalizers or its grace period.
    fn on_finalize(&self, object: &Arc<K>) -> impl Future<Output = Result<Action, Self::Error>> + Send {
        let _ = object;
        async { Ok(Action::done()) }
    }

    /// Handles the deletion of an object.
    fn on_deleted(
        &self,
        tombstone: &Tombstone<K>,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send {
        let _ = tombstone;
        async { Ok(Action::done()) }
    }
}

/// A handler of triggers of one type.
pub trait TriggerHandler<S: Trigger>: Send + Sync + 'static {
    /// The error of [`on_trigger`](Self::on_trigger).
    type Error: Failure;

    /// Returns the ordering key of the trigger. By default, each object has its own key, which is also that of its events.
    fn key(&self, trigger: &S) -> OrderingKey {
        OrderingKey::of(&*trigger.identity().uid)
    }

    /// Returns the group of the trigger. Each group has permits of its own in [`Limit`](crate::Limit); triggers without a group share the
    /// permits of the handler.
    fn group(&self, trigger: &S) -> Option<OrderingKey> {
        let _ = trigger;
        None
    }

    /// Handles a trigger.
    fn on_trigger(&self, trigger: &S) -> impl Future<Output = Result<Action, Self::Error>> + Send;
}

/// Calls the methods of `handler` for `event`, as listed at [`ResourceEventHandler`]. Skips the second method if the first one fails, or
/// is not [done](Action::done).
pub async fn deliver<K: Object, H: ResourceEventHandler<K>>(
    handler: &H,
    event: &Event<K>,
) -> Result<Action, H::Error> {
    let (first, object) = match event {
        Event::Added(object) | Event::Modified(object) if object.meta().deletion_timestamp.is_some() => {
            return handler.on_finalize(object).await;
        }
        Event::Added(object) => (handler.on_added(object).await?, object),
        Event::Modified(object) => (handler.on_modified(object).await?, object),
        Event::Deleted(tombstone) => return handler.on_deleted(tombstone).await,
    };
    if first.is_done() { handler.on_present(object).await } else { Ok(first) }
}

/// The label that a handler sets on the Nodes that it provides; the value is the name of the handler. Pods on such a node use the
/// network of the device behind the node, so handlers of pod networks ignore these pods.
pub const HANDLER_LABEL: &str = "staffetta.dev/handler";

/// The label with the cluster id of the installation that owns a Node or a Lease: several installations may have nodes in one cluster.
pub const CLUSTER_LABEL: &str = "staffetta.dev/cluster";

/// The annotation of a pod, service or namespace with the cluster id of the installation that manages it. Others leave the object alone.
pub const CLUSTER_ANNOTATION: &str = "staffetta.dev/cluster";

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use parking_lot::Mutex;

    use super::*;
    use crate::event::{AnyEvent, Message};
    use crate::registry::Registration;
    use crate::testing::{Feed, pod};

    struct Log(Arc<Mutex<Vec<&'static str>>>);

    impl Log {
        fn record(&self, method: &'static str) {
            self.0.lock().push(method);
        }
    }

    impl ResourceEventHandler<Pod> for Log {
        type Error = Infallible;

        fn wants(&self, event: &Event<Pod>) -> Interest {
            let unwanted = event.object().is_some_and(|pod| pod.metadata.name.as_deref() == Some("unwanted"));
            Interest::unless(unwanted.then_some("its name"))
        }

        async fn on_added(&self, _: &Arc<Pod>) -> Result<Action, Infallible> {
            self.record("added");
            Ok(Action::done())
        }

        async fn on_modified(&self, _: &Arc<Pod>) -> Result<Action, Infallible> {
            self.record("modified");
            Ok(Action::done())
        }

        async fn on_present(&self, _: &Arc<Pod>) -> Result<Action, Infallible> {
            self.record("present");
            Ok(Action::done())
        }

        async fn on_finalize(&self, _: &Arc<Pod>) -> Result<Action, Infallible> {
            self.record("finalize");
            Ok(Action::done())
        }

        async fn on_deleted(&self, _: &Tombstone<Pod>) -> Result<Action, Infallible> {
            self.record("deleted");
            Ok(Action::done())
        }
    }

    #[tokio::test]
    async fn each_event_calls_the_methods_in_its_row_of_the_table() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let feed = Feed::new(Registration::new(Log(Arc::clone(&log))).on::<Pod>());
        let mut terminating = pod("default", "web");
        terminating.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        feed.added(pod("default", "web")).await.unwrap();
        feed.modified(pod("default", "web")).await.unwrap();
        feed.added(terminating.clone()).await.unwrap();
        feed.modified(terminating.clone()).await.unwrap();
        feed.deleted(terminating.clone()).await.unwrap();
        feed.missed(&terminating).await.unwrap();
        feed.added(pod("default", "unwanted")).await.unwrap();
        let expected =
            ["added", "present", "modified", "present", "finalize", "finalize", "deleted", "deleted"];
        assert_eq!(*log.lock(), expected);
    }

    struct AsksAgain;

    impl ResourceEventHandler<Pod> for AsksAgain {
        type Error = Infallible;

        async fn on_added(&self, _: &Arc<Pod>) -> Result<Action, Infallible> {
            Ok(Action::requeue(Duration::from_secs(5)))
        }

        async fn on_present(&self, _: &Arc<Pod>) -> Result<Action, Infallible> {
            panic!("the first method is not done")
        }
    }

    #[tokio::test]
    async fn the_second_method_is_skipped_unless_the_first_one_is_done() {
        let feed = Feed::new(Registration::new(AsksAgain).on::<Pod>());
        assert!(!feed.added(pod("default", "web")).await.unwrap().is_done());
    }

    #[tokio::test]
    async fn an_event_passes_all_filters_of_a_registration() {
        let log = Arc::new(Mutex::new(Vec::new()));
        let named = |prefix: &'static str| {
            move |event: &AnyEvent| {
                Interest::unless((!event.object_ref().name.starts_with(prefix)).then_some(prefix))
            }
        };
        let registration = Registration::new(Log(Arc::clone(&log))).on::<Pod>().erase();
        let feed = Feed::new(registration.filter(named("web")).filter(named("web-1")));
        for name in ["web", "db-1", "web-1"] {
            feed.added(pod("default", name)).await.unwrap();
        }
        assert_eq!(*log.lock(), ["added", "present"]);
    }
}
