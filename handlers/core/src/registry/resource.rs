//! The traits that handler authors implement: one method for each change of an object.

use std::future::Future;
use std::sync::Arc;

use super::interest::Interest;
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
/// A handler is called again with the same event when it was interrupted or failed, and with every object as `Added` after a
/// restart, so it must be idempotent.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::Pod;
/// use staffetta_handler::ResourceEventHandler;
///
/// struct Count(std::sync::atomic::AtomicUsize);
///
/// impl ResourceEventHandler<Pod> for Count {
///     type Error = std::convert::Infallible;
///
///     async fn on_added(&self, _: &Arc<Pod>) -> Result<(), Self::Error> {
///         self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///         Ok(())
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
    fn on_added(&self, object: &Arc<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = object;
        async { Ok(()) }
    }

    /// Handles a change of an object.
    fn on_modified(&self, object: &Arc<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = object;
        async { Ok(()) }
    }

    /// Handles an object that is new or changed.
    fn on_present(&self, object: &Arc<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = object;
        async { Ok(()) }
    }

    /// Handles an object with a `deletionTimestamp`, whose deletion waits for its finalizers or its grace period.
    fn on_finalize(&self, object: &Arc<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = object;
        async { Ok(()) }
    }

    /// Handles the deletion of an object.
    fn on_deleted(&self, tombstone: &Tombstone<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = tombstone;
        async { Ok(()) }
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
    fn on_trigger(&self, trigger: &S) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Calls the methods of `handler` for `event`, as listed at [`ResourceEventHandler`]. Returns the first error, and then skips the
/// second method.
pub async fn deliver<K: Object, H: ResourceEventHandler<K>>(
    handler: &H,
    event: &Event<K>,
) -> Result<(), H::Error> {
    match event {
        Event::Added(object) | Event::Modified(object) if object.meta().deletion_timestamp.is_some() => {
            handler.on_finalize(object).await
        }
        Event::Added(object) => {
            handler.on_added(object).await?;
            handler.on_present(object).await
        }
        Event::Modified(object) => {
            handler.on_modified(object).await?;
            handler.on_present(object).await
        }
        Event::Deleted(tombstone) => handler.on_deleted(tombstone).await,
    }
}

/// The label that a handler sets on the Nodes that it provides; the value is the name of the handler. Pods on such a node use the
/// network of the device behind the node, so handlers of pod networks ignore these pods.
pub const HANDLER_LABEL: &str = "staffetta.dev/handler";

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::event::{AnyEvent, Message};
    use crate::registry::Registration;
    use crate::testing::{Feed, pod};

    struct Log(Arc<Mutex<Vec<&'static str>>>);

    impl Log {
        fn record(&self, method: &'static str) {
            self.0.lock().unwrap().push(method);
        }
    }

    impl ResourceEventHandler<Pod> for Log {
        type Error = Infallible;

        fn wants(&self, event: &Event<Pod>) -> Interest {
            let unwanted = event.object().is_some_and(|pod| pod.metadata.name.as_deref() == Some("unwanted"));
            Interest::unless(unwanted.then_some("its name"))
        }

        async fn on_added(&self, _: &Arc<Pod>) -> Result<(), Infallible> {
            self.record("added");
            Ok(())
        }

        async fn on_modified(&self, _: &Arc<Pod>) -> Result<(), Infallible> {
            self.record("modified");
            Ok(())
        }

        async fn on_present(&self, _: &Arc<Pod>) -> Result<(), Infallible> {
            self.record("present");
            Ok(())
        }

        async fn on_finalize(&self, _: &Arc<Pod>) -> Result<(), Infallible> {
            self.record("finalize");
            Ok(())
        }

        async fn on_deleted(&self, _: &Tombstone<Pod>) -> Result<(), Infallible> {
            self.record("deleted");
            Ok(())
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
        assert_eq!(*log.lock().unwrap(), expected);
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
        assert_eq!(*log.lock().unwrap(), ["added", "present"]);
    }
}
