//! Drivers that know all network policies: how the one watch of policies feeds them.

use std::sync::Arc;

use k8s_openapi::api::networking::v1::NetworkPolicy;
use staffetta_driver::NetworkPolicyObserver;
use staffetta_handler::{Event, Index, Message, Registration};

/// Feeds a driver.
struct Fed(Arc<dyn NetworkPolicyObserver>);

impl Index<NetworkPolicy> for Fed {
    fn apply(&self, event: &Event<NetworkPolicy>) {
        match event {
            Event::Added(policy) | Event::Modified(policy) => self.0.present(policy),
            Event::Deleted(_) => self.0.gone(&event.uid().into()),
        }
    }
}

/// Adds to a registration that this observer learns of all network policies. Where there is none, nobody watches them.
pub(crate) fn feeding<H: Send + Sync + 'static>(
    registration: Registration<H>,
    observer: Option<Arc<dyn NetworkPolicyObserver>>,
) -> Registration<H> {
    match observer {
        Some(observer) => registration.index::<NetworkPolicy>(Arc::new(Fed(observer))),
        None => registration,
    }
}
