//! What this process knows of networks that no annotation shows yet, or still shows.

use staffetta_driver::{NamespaceNetwork, Owner, Uid};

/// Where one namespace stands between the driver and the annotation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Claim {
    /// A network was asked for, and what came of it is not known: there may be one, whole or half-made.
    Asked,
    /// This one was made, and no annotation showed it yet.
    Made(NamespaceNetwork),
    /// It was released; the namespace may still show it.
    Released,
}

/// The claims of all namespaces. One whose annotation shows its network has none.
pub(super) type Claims = crate::claims::Claims<Claim>;

/// What the marks say: these have a network, whole or half-made.
pub(super) fn of_marks(owners: Vec<Owner>) -> impl Iterator<Item = (Uid, Claim)> {
    owners.into_iter().map(|owner| (owner.uid, Claim::Asked))
}
