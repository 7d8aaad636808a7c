//! The plan for pods, with or without a `KuryrPort`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;
use staffetta_driver::{ExistingMark, Owner, PodLifecycle, VifId};
use staffetta_handler::causes;
use staffetta_network::os_vif::{KURYR_VIF, PodState, annotation_of_vifs};
use staffetta_network::vif::FINALIZER;

use super::super::kuryr::{KuryrKind, ObjectKey, finalizers_of, key_of, text};
use super::super::read::ClusterState;
use super::super::write::MetadataWrite;
use super::vifs::VifOwner;
use super::{Obstacle, PlannedTakeover, StepList, refused};

/// The VIFs of a pod, as Kuryr recorded them.
struct RecordedVifs {
    vifs: PodState,
    /// The value of the annotation `openstack.org/kuryr-vif` that contains these VIFs.
    text: String,
    /// `true` if a `KuryrPort` contains the VIFs, `false` if the annotation of the pod does.
    is_from_kuryr_port: bool,
}

/// Plans the takeover of all pods that do not use the network of their node, and the release of the `KuryrPort`s without a pod.
pub(super) fn plan(state: &ClusterState) -> Vec<PlannedTakeover> {
    let mut claims: BTreeMap<VifId, ObjectKey> = BTreeMap::new();
    let with_network = state.pods.iter().filter(|pod| PodLifecycle::of(pod) != PodLifecycle::HostNetwork);
    // What Kuryr recorded itself comes first: of two pods that name one port, it decides.
    let (by_kuryr, by_annotation): (Vec<&Pod>, Vec<&Pod>) =
        with_network.partition(|pod| port_of(state, pod).is_some());
    let mut planned = Vec::new();
    for pod in by_kuryr.into_iter().chain(by_annotation) {
        let steps = plan_pod(state, pod, &mut claims).map(|steps| steps.0);
        planned.push(PlannedTakeover { kind: "Pod", key: key_of(pod), steps });
    }
    let pods: BTreeMap<ObjectKey, &Pod> = state.pods.iter().map(|pod| (key_of(pod), pod)).collect();
    let has_pod = |key: &ObjectKey, port: &DynamicObject| pods.get(key).is_some_and(|pod| is_of(port, pod));
    for (key, port) in state.kuryr.ports.iter().filter(|(key, port)| !has_pod(key, port)) {
        let steps = plan_orphan(state, key, port, &claims).map(|steps| steps.0);
        planned.push(PlannedTakeover { kind: KuryrKind::PORT.0, key: key.clone(), steps });
    }
    planned
}

/// Returns the `KuryrPort` of a pod; `None` if it has none. The `KuryrPort` of an earlier pod with the same name does not count.
fn port_of<'a>(state: &'a ClusterState, pod: &Pod) -> Option<&'a DynamicObject> {
    state.kuryr.ports.get(&key_of(pod)).filter(|port| is_of(port, pod))
}

/// Returns `true` if a `KuryrPort` belongs to this pod, and not to an earlier one with the same name.
fn is_of(port: &DynamicObject, pod: &Pod) -> bool {
    text(&port.data, "/spec/podUid") == pod.metadata.uid.as_deref()
}

/// Returns the VIFs that a `KuryrPort` contains; empty while Kuryr has created none.
fn vifs_of(port: &DynamicObject) -> BTreeMap<String, Value> {
    let vifs = port.data.pointer("/status/vifs").and_then(Value::as_object);
    vifs.into_iter().flatten().map(|(interface, vif)| (interface.clone(), vif.clone())).collect()
}

/// Returns the VIFs that Kuryr recorded for a pod: those of its `KuryrPort`, or else those of the annotation of older releases. `None` if
/// it has neither, an [`Obstacle`] if they are malformed.
fn recorded(pod: &Pod, port: Option<&DynamicObject>) -> Result<Option<RecordedVifs>, Obstacle> {
    let vifs = port.map(vifs_of).filter(|vifs| !vifs.is_empty());
    if let Some(vifs) = vifs {
        let converted = annotation_of_vifs(&vifs);
        let (vifs, text) =
            converted.map_err(|error| refused(format!("its KuryrPort is malformed: {error}")))?;
        return Ok(Some(RecordedVifs { vifs, text, is_from_kuryr_port: true }));
    }
    let Some(text) = pod.annotations().get(KURYR_VIF) else { return Ok(None) };
    let vifs = PodState::read(text).map_err(|error| refused(causes(&error)))?;
    Ok(Some(RecordedVifs { vifs, text: text.clone(), is_from_kuryr_port: false }))
}

/// Plans the takeover of a pod: each of its ports gets our ownership mark, then the pod gets the annotation and our finalizer instead of
/// Kuryr's, and its `KuryrPort` is released at last. `claims` holds the ports of the pods that were planned before: no two pods may name
/// the same one. Refused if Kuryr's record of the VIFs is malformed, if it is missing although Kuryr manages the pod and the pod runs, or
/// if a port cannot be adopted.
fn plan_pod(
    state: &ClusterState,
    pod: &Pod,
    claims: &mut BTreeMap<VifId, ObjectKey>,
) -> Result<StepList, Obstacle> {
    let mut steps = StepList::default();
    let (port, theirs) = (port_of(state, pod), finalizers_of(pod));
    let is_ours = pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
    if port.is_none() && theirs.is_empty() && is_ours {
        return Ok(steps);
    }
    let owner = Owner::of(&pod.metadata);
    let Some(recorded) = recorded(pod, port)? else {
        if theirs.is_empty() && port.is_none() {
            return Ok(steps);
        }
        let started = matches!(PodLifecycle::of(pod), PodLifecycle::Started | PodLifecycle::Terminating);
        if started {
            return Err(refused("it runs, and no KuryrPort or annotation contains its VIFs"));
        }
        // Kuryr has given it no VIF yet, so it gets one of ours.
        steps.write(MetadataWrite::of(pod, &theirs));
        steps.release(KuryrKind::PORT, &state.kuryr.ports, &key_of(pod));
        return Ok(steps);
    };
    let is_published = is_ours && annotation_names_own_ports(state, pod, &owner);
    let network = VifOwner { pod, owner, is_from_kuryr_port: recorded.is_from_kuryr_port, is_published };
    for (number, vif) in recorded.vifs.vifs().enumerate() {
        network.adopt(state, vif, number == 0, &mut steps)?;
    }
    for vif in recorded.vifs.vifs() {
        if let Some((namespace, name)) = claims.get(&vif.id) {
            return Err(refused(format!("port {} is that of the pod {namespace}/{name}", vif.id)));
        }
    }
    claims.extend(recorded.vifs.vifs().map(|vif| (vif.id.clone(), key_of(pod))));
    let write = MetadataWrite::of(pod, &theirs);
    let write = if is_published { write } else { write.annotate(KURYR_VIF, &recorded.text) };
    steps.write(write.add_finalizer(FINALIZER));
    if port.is_some() {
        steps.release(KuryrKind::PORT, &state.kuryr.ports, &key_of(pod));
    }
    Ok(steps)
}

/// Returns `true` if every port in the VIF annotation of the pod has the ownership mark of the pod: our controller has written the
/// annotation. It is then kept even if it differs from the `KuryrPort`.
fn annotation_names_own_ports(state: &ClusterState, pod: &Pod, owner: &Owner) -> bool {
    let is_own = |id: &VifId| {
        let port = state.ports.iter().find(|port| port.id == *id);
        port.is_some_and(|port| matches!(&port.mark, ExistingMark::Owned(marked) if marked.uid == owner.uid))
    };
    let published = pod.annotations().get(KURYR_VIF).and_then(|text| PodState::read(text).ok());
    published.is_some_and(|published| published.vifs().all(|vif| is_own(&vif.id)))
}

/// Plans the removal of Kuryr's finalizers from a `KuryrPort` whose pod does not exist. Garbage collection later releases those of its
/// ports that name the pod; a port of one of Kuryr's pools becomes idle. Refused if one of the ports seems to be in use.
fn plan_orphan(
    state: &ClusterState,
    key: &ObjectKey,
    port: &DynamicObject,
    claims: &BTreeMap<VifId, ObjectKey>,
) -> Result<StepList, Obstacle> {
    let mut steps = StepList::default();
    if finalizers_of(port).is_empty() {
        return Ok(steps);
    }
    let vifs = vifs_of(port);
    if !vifs.is_empty() {
        let (vifs, _) =
            annotation_of_vifs(&vifs).map_err(|error| refused(format!("it is malformed: {error}")))?;
        for vif in vifs.vifs().filter(|vif| !claims.contains_key(&vif.id)) {
            let Some(port) = state.ports.iter().find(|port| port.id == vif.id) else { continue };
            if port.mark == ExistingMark::Unmarked && port.pod.is_none() && port.active {
                return Err(refused(format!("its pod does not exist, but port {} is active", port.id)));
            }
        }
    }
    steps.release(KuryrKind::PORT, &state.kuryr.ports, key);
    Ok(steps)
}
