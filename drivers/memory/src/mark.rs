//! The ownership marks of the resources in the simulated cloud.

use staffetta_driver::{ClusterId, ExistingMark, Owner, Reason};

/// An ownership mark: a cluster, and the object of this cluster for which the resource was created. A resource of another controller or
/// of a user has no cluster; only a port of Kuryr has an owner then, the pod that it names.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    /// The cluster in the mark; `None` for a resource of another controller or of a user.
    pub(super) cluster: Option<ClusterId>,
    /// The owner in the mark, or the pod that a port of Kuryr names; `None` for any other resource, such as a pooled one.
    pub(super) owner: Option<Owner>,
}

impl Mark {
    /// Creates the mark of `owner` in `cluster`.
    pub(super) fn new(cluster: &ClusterId, owner: &Owner) -> Self {
        Self { cluster: Some(cluster.clone()), owner: Some(owner.clone()) }
    }

    /// Returns `true` if the mark names the cluster and, if one is given, the owner.
    pub(super) fn is_of(&self, cluster: &ClusterId, owner: Option<&Owner>) -> bool {
        let marked_for = |owner: &Owner| self.owner.as_ref().is_some_and(|marked| marked.uid == owner.uid);
        self.cluster.as_ref() == Some(cluster) && owner.is_none_or(marked_for)
    }

    /// Sets the mark of a resource without one. A different mark stays, and the error is [`Reason::Refused`].
    pub(super) fn adopt(&mut self, cluster: &ClusterId, owner: &Owner) -> Result<(), Reason> {
        if self.cluster.is_none() {
            *self = Self::new(cluster, owner);
        }
        self.is_of(cluster, Some(owner)).then_some(()).ok_or(Reason::Refused)
    }

    /// Converts the mark for an adoption by `cluster`: a mark of another cluster, or one without an owner, becomes
    /// [`ExistingMark::Foreign`].
    pub(super) fn existing(&self, cluster: &ClusterId) -> ExistingMark {
        match (&self.cluster, &self.owner) {
            (None, _) => ExistingMark::Unmarked,
            (Some(marked), Some(owner)) if marked == cluster => ExistingMark::Owned(owner.clone()),
            (Some(_), _) => ExistingMark::Foreign,
        }
    }
}
