//! What to do for a pod: a function of what the event shows and what this process knows besides.

use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{Life, Vif};
use staffetta_handler::MetadataPatch;

use super::FINALIZER;
use super::claims::Claim;
use crate::annotation::AnnotationError;
use crate::os_vif::{KURYR_VIF, PodState};

/// The next thing to do for a pod.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Nothing.
    Nothing,
    /// Read the ownership marks, claim what they show, and decide again.
    Find,
    /// Request a VIF and write it down.
    Request,
    /// Write down what was made before.
    Write(Box<PodState>),
    /// Release these, of which nobody knows for which interface they were made, and decide again.
    Discard(Vec<Vif>),
    /// Release what the annotation does not show, and see to what it shows.
    Settle {
        /// What the annotation does not show.
        surplus: Vec<Vif>,
        /// What the annotation shows.
        state: Box<PodState>,
    },
    /// Release these, and then write that it was done.
    Release {
        /// What is released.
        vifs: Vec<Vif>,
        /// What is written; it may change nothing.
        patch: MetadataPatch,
    },
}

/// What to do for a pod that exists; `several`: it asks for more VIFs than one.
pub(super) fn decide(pod: &Pod, claim: Option<Claim>, several: bool) -> Result<Action, AnnotationError> {
    let shown = Shown::of(pod);
    match Life::of(pod) {
        Life::HostNetwork | Life::Unscheduled => Ok(Action::Nothing),
        Life::Starting | Life::Started => keep(pod, shown, claim, several),
        // Whether or not it can be read: somebody may use what an annotation names.
        Life::Terminating if shown.annotation.is_some() || shown.finalizer => Ok(Action::Nothing),
        Life::Terminating => Ok(release(pod, shown, claim, MetadataPatch::default())),
        Life::Over { deleting } => {
            // A pod that is deleted may stay, by somebody else's finalizer; where nothing is to be written, nothing is.
            let hides = matches!(shown.annotation, Some(Ok(_))) && (shown.finalizer || !deleting);
            let patch = MetadataPatch::default().remove_finalizer(FINALIZER);
            let patch = if hides { patch.remove_annotation(KURYR_VIF) } else { patch };
            Ok(release(pod, shown, claim, patch))
        }
    }
}

/// What to do for a pod that was deleted; `pod` is its last state.
pub(super) fn after_deletion(pod: &Pod, claim: Option<Claim>) -> Action {
    match Life::of(pod) {
        Life::HostNetwork => Action::Nothing,
        _ => release(pod, Shown::of(pod), claim, MetadataPatch::default()),
    }
}

/// What a pod shows of its VIFs.
struct Shown {
    annotation: Option<Result<PodState, AnnotationError>>,
    /// Whether our finalizer is there: it was written together with an annotation.
    finalizer: bool,
}

impl Shown {
    fn of(pod: &Pod) -> Self {
        let finalizers = pod.metadata.finalizers.iter().flatten();
        Self {
            annotation: annotation(pod).map(PodState::read),
            finalizer: finalizers.into_iter().any(|finalizer| finalizer == FINALIZER),
        }
    }
}

/// The text of the pod's annotation.
pub(super) fn annotation(pod: &Pod) -> Option<&str> {
    pod.metadata.annotations.as_ref()?.get(KURYR_VIF).map(String::as_str)
}

/// A pod that is to have a VIF. One that started without us has its network from somebody else and gets none.
fn keep(pod: &Pod, shown: Shown, claim: Option<Claim>, several: bool) -> Result<Action, AnnotationError> {
    let starting = Life::of(pod) == Life::Starting;
    Ok(match (shown.annotation.transpose()?, claim) {
        (_, Some(Claim::Asked)) => Action::Find,
        (Some(shown), Some(Claim::Replaced { state, old })) if may_change(pod) && only(&shown, &old) => {
            Action::Write(state)
        }
        (Some(state), claim) => settle(state, claim),
        (None, Some(Claim::Made(state) | Claim::Replaced { state, .. })) => Action::Write(state),
        (None, Some(Claim::Held(vifs))) if several && !vifs.is_empty() => Action::Discard(vifs),
        (None, Some(Claim::Held(vifs))) => match vifs.into_iter().next() {
            Some(vif) => Action::Write(Box::new(PodState::new(vif))),
            None if starting => Action::Request,
            None => Action::Nothing,
        },
        // The finalizer says that there was an annotation; somebody removed it.
        (None, None | Some(Claim::Released(_))) if shown.finalizer => Action::Find,
        (None, None | Some(Claim::Released(_))) if starting => Action::Request,
        (None, None | Some(Claim::Released(_))) => Action::Nothing,
    })
}

/// Whether a pod shows nothing but these.
fn only(state: &PodState, vifs: &[Vif]) -> bool {
    state.vifs().all(|shown| vifs.iter().any(|vif| vif.id == shown.id))
}

/// Whether the pod may still get another VIF than the one that it shows: its sandbox has no address yet.
pub(super) fn may_change(pod: &Pod) -> bool {
    let addressed = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
    Life::of(pod) == Life::Starting && !addressed
}

fn settle(state: PodState, claim: Option<Claim>) -> Action {
    let held = claim.map(Claim::vifs).unwrap_or_default();
    let surplus = held.into_iter().filter(|held| state.vifs().all(|shown| shown.id != held.id)).collect();
    Action::Settle { surplus, state: Box::new(state) }
}

/// A pod that needs no VIF any more: all that the annotation, the claim and, where those leave it open, the marks name.
fn release(pod: &Pod, shown: Shown, claim: Option<Claim>, patch: MetadataPatch) -> Action {
    let named = match (shown.annotation, claim) {
        (_, Some(Claim::Released(left))) => left,
        (_, Some(Claim::Asked)) => return Action::Find,
        (Some(Ok(state)), claim) => {
            let shown: Vec<Vif> = state.vifs().cloned().collect();
            let held = claim.map(Claim::vifs).unwrap_or_default();
            let hidden = held.into_iter().filter(|held| shown.iter().all(|vif| vif.id != held.id));
            shown.iter().cloned().chain(hidden).collect()
        }
        (_, Some(claim @ (Claim::Held(_) | Claim::Made(_) | Claim::Replaced { .. }))) => claim.vifs(),
        (_, None) if shown.finalizer => return Action::Find,
        (_, None) => Vec::new(),
    };
    if named.is_empty() && patch.changes_nothing_of(pod) {
        return Action::Nothing;
    }
    Action::Release { vifs: named, patch }
}
