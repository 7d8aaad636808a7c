//! Drivers that know all namespaces: how the one watch of namespaces feeds them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use staffetta_driver::NamespaceObserver;
use staffetta_handler::{Event, Index, Registration};

/// Feeds a driver.
struct Fed(Arc<dyn NamespaceObserver>);

impl Index<Namespace> for Fed {
    fn apply(&self, event: &Event<Namespace>) {
        match event {
            Event::Added(namespace) | Event::Modified(namespace) => self.0.present(namespace),
            Event::Deleted(tombstone) => {
                let subject = tombstone.subject();
                self.0.gone(subject.name, &subject.uid.into());
            }
        }
    }
}

/// Adds to a registration that these observers learn of all namespaces, each once. Where there are none, nobody watches
/// namespaces.
pub(crate) fn feeding<H: Send + Sync + 'static>(
    registration: Registration<H>,
    observers: impl IntoIterator<Item = Option<Arc<dyn NamespaceObserver>>>,
) -> Registration<H> {
    let mut fed: Vec<Arc<dyn NamespaceObserver>> = Vec::new();
    for observer in observers.into_iter().flatten() {
        if !fed.iter().any(|known| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&observer))) {
            fed.push(observer);
        }
    }
    fed.into_iter()
        .fold(registration, |registration, observer| registration.index::<Namespace>(Arc::new(Fed(observer))))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use k8s_openapi::api::core::v1::Pod;
    use staffetta_driver::Uid;
    use staffetta_handler::testing::Feed;
    use staffetta_handler::{Identity, ResourceEventHandler, Tombstone};

    use super::*;

    #[derive(Default)]
    struct Notes(Mutex<Vec<String>>);

    impl NamespaceObserver for Notes {
        fn present(&self, namespace: &Namespace) {
            let name = namespace.metadata.name.clone().unwrap();
            self.0.lock().unwrap().push(format!("{name} is there"));
        }

        fn gone(&self, name: &str, uid: &Uid) {
            self.0.lock().unwrap().push(format!("{name} ({uid}) is gone"));
        }
    }

    struct Idle;

    impl ResourceEventHandler<Pod> for Idle {
        type Error = std::convert::Infallible;
    }

    #[tokio::test]
    async fn an_observer_learns_of_each_namespace_once() {
        let notes = Arc::new(Notes::default());
        let observer = || Some(Arc::clone(&notes) as Arc<dyn NamespaceObserver>);
        let feed = Feed::new(feeding(Registration::new(Idle).on::<Pod>(), [observer(), None, observer()]));
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some("shop".into());
        namespace.metadata.uid = Some("u1".into());
        feed.added(namespace.clone()).await.unwrap();
        feed.modified(namespace.clone()).await.unwrap();
        feed.deleted(namespace).await.unwrap();
        let identity = Identity::of::<Namespace>(None, "blog".into(), "u2".into());
        let missed = Event::<Namespace>::Deleted(Tombstone::Missed(Arc::new(identity)));
        feed.event(missed).await.unwrap();
        let expected = ["shop is there", "shop is there", "shop (u1) is gone", "blog (u2) is gone"];
        assert_eq!(*notes.0.lock().unwrap(), expected);
    }
}
