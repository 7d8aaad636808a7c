//! Indexes that forward namespaces and network policies from the watches to the drivers that
//! observe them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use staffetta_driver::{NamespaceObserver, NetworkPolicyObserver};
use staffetta_handler::{Event, Index, Registration};

/// An index that forwards the events of namespaces or of network policies to a driver's observer.
struct ObserverIndex<O: ?Sized>(Arc<O>);

impl Index<Namespace> for ObserverIndex<dyn NamespaceObserver> {
    fn apply(&self, event: &Event<Namespace>) {
        match event {
            Event::Added(namespace) | Event::Modified(namespace) => self.0.present(namespace),
            Event::Deleted(tombstone) => {
                let object_ref = tombstone.object_ref();
                self.0.gone(object_ref.name, &object_ref.uid.into());
            }
        }
    }
}

impl Index<NetworkPolicy> for ObserverIndex<dyn NetworkPolicyObserver> {
    fn apply(&self, event: &Event<NetworkPolicy>) {
        match event {
            Event::Added(policy) | Event::Modified(policy) => self.0.present(policy),
            Event::Deleted(_) => self.0.gone(&event.uid().into()),
        }
    }
}

/// Adds to `registration`, for each observer, an index that forwards the events of namespaces to
/// it; `None` entries are skipped. Without observers, namespaces are not watched.
pub(crate) fn observe_namespaces<H: Send + Sync + 'static>(
    registration: Registration<H>,
    observers: impl IntoIterator<Item = Option<Arc<dyn NamespaceObserver>>>,
) -> Registration<H> {
    observers.into_iter().flatten().fold(registration, |registration, observer| {
        registration.index::<Namespace>(Arc::new(ObserverIndex(observer)))
    })
}

/// Adds to `registration` an index that forwards the events of network policies to `observer`. If
/// `observer` is `None`, network policies are not watched.
pub(crate) fn observe_policies<H: Send + Sync + 'static>(
    registration: Registration<H>,
    observer: Option<Arc<dyn NetworkPolicyObserver>>,
) -> Registration<H> {
    observer.into_iter().fold(registration, |registration, observer| {
        registration.index::<NetworkPolicy>(Arc::new(ObserverIndex(observer)))
    })
}

#[cfg(test)]
mod tests {

    use k8s_openapi::api::core::v1::Pod;
    use parking_lot::Mutex;
    use staffetta_driver::Uid;
    use staffetta_handler::testing::Feed;
    use staffetta_handler::{Identity, ResourceEventHandler, Tombstone};

    use super::*;

    #[derive(Default)]
    struct NamespaceLog(Mutex<Vec<String>>);

    impl NamespaceObserver for NamespaceLog {
        fn present(&self, namespace: &Namespace) {
            let name = namespace.metadata.name.clone().unwrap();
            self.0.lock().push(format!("{name} present"));
        }

        fn gone(&self, name: &str, uid: &Uid) {
            self.0.lock().push(format!("{name} ({uid}) gone"));
        }
    }

    struct Idle;

    impl ResourceEventHandler<Pod> for Idle {
        type Error = std::convert::Infallible;
    }

    #[tokio::test]
    async fn an_observer_sees_each_namespace() {
        let log = Arc::new(NamespaceLog::default());
        let observer = Some(Arc::clone(&log) as Arc<dyn NamespaceObserver>);
        let feed = Feed::new(observe_namespaces(Registration::new(Idle).on::<Pod>(), [None, observer]));
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("shop".into());
        namespace.metadata.uid = Some("u1".into());
        feed.added(namespace.clone()).await.unwrap();
        feed.modified(namespace.clone()).await.unwrap();
        feed.deleted(namespace).await.unwrap();
        let identity = Identity::of::<Namespace>(None, "blog".into(), "u2".into());
        let missed = Event::<Namespace>::Deleted(Tombstone::Missed(Arc::new(identity)));
        feed.event(missed).await.unwrap();
        let expected = ["shop present", "shop present", "shop (u1) gone", "blog (u2) gone"];
        assert_eq!(*log.0.lock(), expected);
    }
}
