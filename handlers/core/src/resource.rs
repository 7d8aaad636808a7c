//! What an author writes: a handler of one kind of object, with a method for each thing that can happen to it.

use std::future::Future;
use std::sync::Arc;

use kube::Resource;

use crate::event::{Event, Tombstone};
use crate::failure::Failure;
use crate::message::{Message, OrderingKey};

/// A handler of the events of one kind. All methods are optional.
///
/// | what happened | what is called |
/// |---|---|
/// | `Added` | [`on_added`](Self::on_added), then [`on_present`](Self::on_present) |
/// | `Modified` | [`on_modified`](Self::on_modified), then [`on_present`](Self::on_present) |
/// | either, with a `deletionTimestamp` | [`on_finalize`](Self::on_finalize) only |
/// | `Deleted` | [`on_deleted`](Self::on_deleted) |
///
/// A handler is called again with the same event when it was interrupted or failed, and with every object as `Added`
/// after a restart: it must be idempotent.
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
pub trait ResourceEventHandler<K>: Send + Sync + 'static
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    /// What can go wrong.
    type Error: Failure;

    /// Whether this event concerns the handler. It is asked before the event is queued, so it may depend only on what never
    /// changes in the life of an object: an event that is not wanted does not replace one that is waiting.
    fn wants(&self, event: &Event<K>) -> bool {
        let _ = event;
        true
    }

    /// What decides which events are handled one after the other. By default each object has a queue of its own.
    fn key(&self, event: &Event<K>) -> OrderingKey {
        OrderingKey::of(event.uid())
    }

    /// With which events this one shares the bound on what runs at a time: those of one group are bounded together, each group
    /// by itself, so that a slow machine delays no other. Without a group all events of the handler are bounded together.
    fn group(&self, event: &Event<K>) -> Option<OrderingKey> {
        let _ = event;
        None
    }

    /// The object is new to this process.
    fn on_added(&self, object: &Arc<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = object;
        async { Ok(()) }
    }

    /// The object changed.
    fn on_modified(&self, object: &Arc<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = object;
        async { Ok(()) }
    }

    /// The object is there: new or changed.
    fn on_present(&self, object: &Arc<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = object;
        async { Ok(()) }
    }

    /// The object's deletion was asked for, and it waits for its finalizers or its grace time.
    fn on_finalize(&self, object: &Arc<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = object;
        async { Ok(()) }
    }

    /// The object is gone.
    fn on_deleted(&self, tombstone: &Tombstone<K>) -> impl Future<Output = Result<(), Self::Error>> + Send {
        let _ = tombstone;
        async { Ok(()) }
    }
}

/// Calls the methods of `handler` that `event` asks for, in the order of the table above.
pub async fn deliver<K, H>(handler: &H, event: &Event<K>) -> Result<(), H::Error>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
    H: ResourceEventHandler<K>,
{
    match event {
        Event::Added(object) | Event::Modified(object) if event.finalizing() => {
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::registration::Registration;
    use crate::testing::{Feed, pod};

    struct Log(Arc<Mutex<Vec<&'static str>>>);

    impl Log {
        fn note(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }
    }

    impl ResourceEventHandler<Pod> for Log {
        type Error = Infallible;

        fn wants(&self, event: &Event<Pod>) -> bool {
            event.object().is_none_or(|pod| pod.metadata.name.as_deref() != Some("unwanted"))
        }

        async fn on_added(&self, _: &Arc<Pod>) -> Result<(), Infallible> {
            self.note("added");
            Ok(())
        }

        async fn on_modified(&self, _: &Arc<Pod>) -> Result<(), Infallible> {
            self.note("modified");
            Ok(())
        }

        async fn on_present(&self, _: &Arc<Pod>) -> Result<(), Infallible> {
            self.note("present");
            Ok(())
        }

        async fn on_finalize(&self, _: &Arc<Pod>) -> Result<(), Infallible> {
            self.note("finalize");
            Ok(())
        }

        async fn on_deleted(&self, _: &Tombstone<Pod>) -> Result<(), Infallible> {
            self.note("deleted");
            Ok(())
        }
    }

    #[tokio::test]
    async fn each_event_calls_the_methods_of_its_row() {
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
}
