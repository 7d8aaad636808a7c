//! What is told at a service, beside failures: that its load balancer was replaced, and what it goes without.

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Service;
use staffetta_driver::{Owner, Uid};
use staffetta_handler::{Identity, Note, Notes};

/// The name of the handler, as it stands in Events.
const HANDLER: &str = "lb";

/// The reason of the Event by which a person learns what a load balancer goes without.
pub(crate) const LACKS: &str = "LoadBalancerLacks";
/// The reason of the Event by which a person learns that a load balancer broke and another one takes its place.
pub(crate) const REPLACED: &str = "LoadBalancerReplaced";
/// The reason of the Event by which a person learns that somebody changed or removed what is ours.
pub(crate) const DRIFTED: &str = "LoadBalancerDrifted";

/// What was told at which service, so that nothing is told twice as long as it stays the same.
#[derive(Default)]
pub(super) struct Told {
    pub(super) notes: Notes,
    /// What the load balancer of a service goes without.
    without: DashMap<Uid, Vec<String>>,
}

impl Told {
    /// Tells by `notes`.
    pub(super) fn by(notes: Notes) -> Self {
        Self { notes, ..Self::default() }
    }

    /// The load balancer of `service` goes without these.
    pub(super) fn without(&self, service: &Service, missing: &[String]) {
        let uid = Owner::of(&service.metadata).uid;
        if missing.is_empty() {
            self.without.remove(&uid);
            return;
        }
        let before = self.without.insert(uid, missing.to_vec());
        if before.as_deref() != Some(missing) {
            let text = format!("the load balancer has no {}; it works without", missing.join(", no "));
            self.warn(service, LACKS, text);
        }
    }

    /// The load balancer of `service` broke, and another one takes its place.
    pub(super) fn replaced(&self, service: &Service) {
        let text = "the load balancer was in the state ERROR, and is made anew".to_owned();
        self.warn(service, REPLACED, text);
    }

    /// Somebody changed or removed what stands for `service`.
    pub(super) fn drifted(&self, service: &Service) {
        let text =
            "somebody changed or removed the load balancer or its address; it is brought back".to_owned();
        self.warn(service, DRIFTED, text);
    }

    /// The service is gone, or wants no load balancer.
    pub(super) fn forget(&self, uid: &Uid) {
        self.without.remove(uid);
    }

    fn warn(&self, service: &Service, reason: &'static str, text: String) {
        let regarding = Identity::of_object(service);
        self.notes.tell(Note { handler: HANDLER, regarding, warning: true, reason, text });
    }
}
