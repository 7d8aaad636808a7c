//! The choice of the next action for a pod: a pure function of the event and the in-memory record.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use staffetta_driver::{PodLifecycle, Vif, addresses_of};
use staffetta_handler::MetadataPatch;

use super::FINALIZER;
use crate::annotation::AnnotationError;
use crate::os_vif::{KURYR_VIF, PodState};

/// The in-memory record of a pod's VIFs. It exists only while the annotation does not show their
/// state.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum VifRecord {
    /// The driver was called and the outcome is unknown: VIFs may exist.
    Requested,
    /// The VIFs that carry the ownership mark (tag or label) of the pod, and that no annotation has
    /// shown yet. Empty if the ownership marks were read and there is no such VIF.
    Owned(Vec<Vif>),
    /// The VIFs that this process created, and that no annotation has shown yet.
    Created(Box<PodState>),
    /// The published VIFs are unusable and are replaced by new VIFs, which no annotation has shown
    /// yet.
    Replaced {
        /// The new VIFs of the pod.
        state: Box<PodState>,
        /// The old VIFs of the pod. They are released when an event shows the new ones.
        old: Vec<Vif>,
    },
    /// All VIFs are released except these, which are released after the annotation is removed: they,
    /// or their addresses, may go to another pod then.
    Released(Vec<Vif>),
}

impl VifRecord {
    /// Returns all VIFs in this record; none for [`Requested`](Self::Requested), whose VIFs are not
    /// known.
    pub(super) fn vifs(self) -> Vec<Vif> {
        match self {
            Self::Owned(vifs) | Self::Released(vifs) => vifs,
            Self::Created(state) => state.vifs().cloned().collect(),
            Self::Replaced { state, old } => state.vifs().cloned().chain(old).collect(),
            Self::Requested => Vec::new(),
        }
    }
}

/// The next action for a pod and its VIFs.
#[derive(Debug, PartialEq)]
pub(super) enum VifAction {
    /// Do nothing: the desired state is reached, the pod needs no VIF, has no node yet, or is terminating and may still use VIFs that
    /// cannot be checked.
    Nothing,
    /// List the VIFs with the pod's ownership mark, store them in the in-memory record, and decide
    /// again.
    ReadMarks,
    /// Request VIFs from the pool and publish them in the annotation.
    Request,
    /// Check that the published VIFs belong to the pod, and change nothing.
    Verify(Box<PodState>),
    /// Write these VIFs, which exist already, into the annotation.
    Publish(Box<PodState>),
    /// Write those of these VIFs of the pod into its annotation that belong there: the annotation
    /// is missing or unreadable.
    Restore(Vec<Vif>),
    /// Release the VIFs that are not published, and check that the published VIFs exist and are
    /// active.
    Check {
        /// The VIFs in the [`VifRecord`] of the pod that are not in the annotation.
        surplus: Vec<Vif>,
        /// The published VIFs.
        state: Box<PodState>,
    },
    /// Write the patch and then release these VIFs.
    Release {
        /// The VIFs to release after the patch is written.
        vifs: Vec<Vif>,
        /// The patch that removes the finalizer and, if it is to be removed, the annotation. It may change nothing.
        patch: MetadataPatch,
    },
}

/// Decides the next action for a pod that exists. `is_known` is `true` if this process knows that
/// the pod has VIFs. Returns an error if the annotation of a pod that starts or runs is malformed
/// and no VIF of the pod is known.
pub(super) fn decide(
    pod: &Pod,
    record: Option<VifRecord>,
    is_known: bool,
) -> Result<VifAction, AnnotationError> {
    let published = annotation(pod).map(PodState::read);
    match (PodLifecycle::of(pod), published) {
        (PodLifecycle::HostNetwork | PodLifecycle::Unscheduled, _) => Ok(VifAction::Nothing),
        (PodLifecycle::Starting | PodLifecycle::Started, published) => {
            decide_living(pod, published, record, is_known)
        }
        (PodLifecycle::Terminating, Some(Ok(state))) => Ok(VifAction::Verify(Box::new(state))),
        // The VIFs may be in use, even if the annotation is malformed.
        (PodLifecycle::Terminating, published)
            if published.is_some() || has_finalizer(pod) || is_known || !is_replaceable(pod) =>
        {
            Ok(VifAction::Nothing)
        }
        (PodLifecycle::Terminating, _) => Ok(release(pod, None, record, is_known, MetadataPatch::default())),
        (PodLifecycle::Finished { deleting }, published) => {
            // A deleted pod may stay because of another finalizer; without ours there is nothing to
            // write.
            let unpublish = matches!(published, Some(Ok(_))) && (has_finalizer(pod) || !deleting);
            let patch = MetadataPatch::default().remove_finalizer(FINALIZER);
            let patch = if unpublish { patch.remove_annotation(KURYR_VIF) } else { patch };
            Ok(release(pod, published, record, is_known, patch))
        }
    }
}

/// Decides the next action for a deleted pod. `pod` is its last state, or an empty pod if that is not known. `is_known` is `true` if this
/// process knows that the pod had VIFs.
pub(super) fn after_deletion(pod: &Pod, record: Option<VifRecord>, is_known: bool) -> VifAction {
    match PodLifecycle::of(pod) {
        PodLifecycle::HostNetwork => VifAction::Nothing,
        _ => release(pod, annotation(pod).map(PodState::read), record, is_known, MetadataPatch::default()),
    }
}

/// Returns the value of the annotation with the VIFs of the pod, or `None` if it is missing.
pub(super) fn annotation(pod: &Pod) -> Option<&str> {
    pod.annotations().get(KURYR_VIF).map(String::as_str)
}

/// Returns `true` if the pod has the finalizer of this handler, which is written together with the
/// annotation.
pub(super) fn has_finalizer(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Decides the next action for a pod that starts or runs: it keeps its VIFs, or gets new ones. A
/// pod that was started without a VIF has another network and gets no VIF.
fn decide_living(
    pod: &Pod,
    published: Option<Result<PodState, AnnotationError>>,
    record: Option<VifRecord>,
    is_known: bool,
) -> Result<VifAction, AnnotationError> {
    let starting = PodLifecycle::of(pod) == PodLifecycle::Starting;
    Ok(match (published, record) {
        (_, Some(VifRecord::Requested)) => VifAction::ReadMarks,
        (Some(Ok(published)), Some(VifRecord::Replaced { state, old }))
            if is_replaceable(pod) && contains_all(&old, &published) =>
        {
            VifAction::Publish(state)
        }
        (Some(Ok(published)), record) => {
            let surplus = unpublished(&published, record).collect();
            VifAction::Check { surplus, state: Box::new(published) }
        }
        (_, Some(VifRecord::Created(state) | VifRecord::Replaced { state, .. })) => VifAction::Publish(state),
        (_, Some(VifRecord::Owned(vifs))) if !vifs.is_empty() => VifAction::Restore(vifs),
        // With the finalizer there once was an annotation; it was removed or spoilt by hand.
        (_, None | Some(VifRecord::Released(_))) if has_finalizer(pod) || is_known => VifAction::ReadMarks,
        (Some(Err(malformed)), _) => return Err(malformed),
        (None, _) if starting => VifAction::Request,
        (None, _) => VifAction::Nothing,
    })
}

/// Returns `true` if all VIFs in `published` are among `vifs`.
fn contains_all(vifs: &[Vif], published: &PodState) -> bool {
    published.vifs().all(|published| vifs.iter().any(|vif| vif.id == published.id))
}

/// Returns the VIFs in `record` that are not in `published`, the VIFs in the annotation.
fn unpublished(published: &PodState, record: Option<VifRecord>) -> impl Iterator<Item = Vif> {
    let recorded = record.map(VifRecord::vifs).unwrap_or_default().into_iter();
    recorded.filter(|vif| published.vifs().all(|published| published.id != vif.id))
}

/// Returns `true` if the pod can still get another VIF than the published one, because its sandbox
/// has no IP address yet. Its deletion may have been requested.
pub(super) fn is_replaceable(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Pending") && addresses_of(pod).is_empty()
}

/// Decides the next action for a pod that needs no VIF any more: the VIFs in its annotation and its
/// record are released. If it is unknown which VIFs exist, the ownership marks are read first.
fn release(
    pod: &Pod,
    published: Option<Result<PodState, AnnotationError>>,
    record: Option<VifRecord>,
    is_known: bool,
    patch: MetadataPatch,
) -> VifAction {
    let vifs: Vec<Vif> = match (published, record) {
        (_, Some(VifRecord::Released(left))) => left,
        (_, Some(VifRecord::Requested)) => return VifAction::ReadMarks,
        (Some(Ok(state)), record) => state.vifs().cloned().chain(unpublished(&state, record)).collect(),
        (_, Some(record)) => record.vifs(),
        (_, None) if has_finalizer(pod) || is_known => return VifAction::ReadMarks,
        (_, None) => Vec::new(),
    };
    if vifs.is_empty() && patch.changes_nothing_of(pod) {
        return VifAction::Nothing;
    }
    VifAction::Release { vifs, patch }
}
