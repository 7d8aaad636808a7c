//! The objects of the cluster as they would be by now.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use staffetta_handler::{AnyEvent, Change, Kind, KindIndex, Message, Object, Sighting};

use super::troubles::Troubles;
use crate::client::{Echo, Echoes};
use crate::lock::lock;

/// The objects of the cluster as they would be by now, and what is still to be told of them.
pub(super) struct Stage {
    kinds: Vec<Kind>,
    indexes: HashMap<TypeId, Vec<KindIndex>>,
    echoes: Arc<Echoes>,
    troubles: Arc<Troubles>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    listed: HashSet<TypeId>,
    /// By UID.
    objects: HashMap<String, Known>,
    next: Vec<AnyEvent>,
}

/// An object as it would be by now.
struct Known {
    kind: TypeId,
    /// None for one that cannot be decoded.
    object: Option<Arc<dyn Object>>,
    gone: bool,
}

impl Stage {
    /// Nothing is known yet. What writes would change is learned from `echoes`.
    pub(super) fn new(echoes: Arc<Echoes>, troubles: Arc<Troubles>) -> Self {
        let (kinds, indexes) = (Vec::new(), HashMap::new());
        Self { kinds, indexes, echoes, troubles, state: Mutex::default() }
    }

    /// Somebody wants the objects of this kind.
    pub(super) fn wants(&mut self, kind: &Kind) {
        if self.kinds.iter().all(|known| known.type_id != kind.type_id) {
            self.kinds.push(kind.clone());
        }
    }

    /// Somebody keeps an index of a kind. It is fed before anybody gets an event.
    pub(super) fn index(&mut self, index: KindIndex) {
        self.wants(&index.kind);
        self.indexes.entry(index.kind.type_id).or_default().push(index);
    }

    /// The kinds that somebody wants.
    pub(super) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// These are all objects of a kind.
    pub(super) fn listed(&self, kind: &Kind, seen: Vec<Sighting>) {
        self.state().listed.insert(kind.type_id);
        for sighting in seen {
            self.seen(kind, Change::Added, sighting);
        }
    }

    /// Whether all objects of the kind are known.
    pub(super) fn is_listed(&self, kind: &Kind) -> bool {
        self.state().listed.contains(&kind.type_id)
    }

    /// The UIDs of the objects of a kind; none when not all of them are known.
    pub(super) fn uids(&self, kind: TypeId) -> Option<HashSet<String>> {
        let state = self.state();
        let of_kind = state.objects.iter().filter(|(_, known)| known.kind == kind);
        state.listed.contains(&kind).then(|| of_kind.map(|(uid, _)| uid.clone()).collect())
    }

    /// What is to be told in the next round: of each object once.
    pub(super) fn next_round(&self) -> Vec<AnyEvent> {
        let mut round = std::mem::take(&mut self.state().next);
        let mut told = HashSet::new();
        round.reverse();
        round.retain(|event| told.insert(event.uid().to_owned()));
        round.reverse();
        round
    }

    /// The event with the object as it would be by now. None when that would be gone, of which another event tells.
    pub(super) fn by_now(&self, event: AnyEvent) -> Option<AnyEvent> {
        let known = {
            let state = self.state();
            state.objects.get(event.uid()).map(|known| (known.kind, known.object.clone(), known.gone))
        };
        match known {
            Some((_, _, true)) => Some(event).filter(|event| event.change() == Change::Deleted),
            Some((kind, Some(object), false)) => self.kind(kind)?.event(event.change(), object),
            Some((_, None, false)) | None => Some(event),
        }
    }

    /// Learns what writes would have changed since the last time.
    pub(super) fn take_in(&self) {
        for echo in self.echoes.take() {
            match echo {
                Echo::Is(object) => self.is(object),
                Echo::Gone(uid) => self.gone(&uid),
            }
        }
    }

    /// An object of a kind that nobody wants concerns nobody.
    fn is(&self, object: Value) {
        let is = |kind: &&Kind| object["kind"] == *kind.name && object["apiVersion"] == *kind.api_version;
        let Some(kind) = self.kinds.iter().find(is) else { return };
        let change = if has_ended(&object) { Change::Deleted } else { Change::Modified };
        match kind.decode(object) {
            Ok(sighting) => self.seen(kind, change, sighting),
            Err(error) => self.troubles.add(format!("what a {} would be cannot be read: {error}", kind.name)),
        }
    }

    fn gone(&self, uid: &str) {
        let known = self.state().objects.get(uid).and_then(|known| Some((known.kind, known.object.clone()?)));
        if let Some((kind, object)) = known
            && let Some(kind) = self.kind(kind)
        {
            self.seen(kind, Change::Deleted, Sighting::Object(object));
        }
    }

    fn seen(&self, kind: &Kind, change: Change, sighting: Sighting) {
        let (uid, object) = match sighting {
            Sighting::Object(object) => (object.meta().uid.clone().unwrap_or_default(), Some(object)),
            Sighting::Undecodable(object) => {
                let subject = object.identity.subject();
                self.troubles.add(format!("{subject} was not looked at: {}", object.error));
                (object.identity.uid, None)
            }
        };
        let gone = change == Change::Deleted;
        let event = object.clone().and_then(|object| kind.event(change, object));
        self.state().objects.insert(uid, Known { kind: kind.type_id, object, gone });
        let Some(event) = event else { return };
        for index in self.indexes.get(&kind.type_id).into_iter().flatten() {
            (index.apply)(&event);
        }
        self.state().next.push(event);
    }

    fn kind(&self, type_id: TypeId) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.type_id == type_id)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Whether the server would remove the object now: its deletion was asked for, and nothing and nobody holds it.
fn has_ended(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    metadata["deletionTimestamp"].is_string() && !held && grace == 0
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Service};
    use serde_json::json;

    use super::*;

    fn stage(seen: &[Value]) -> Stage {
        let mut stage = Stage::new(Arc::default(), Arc::default());
        stage.wants(&Kind::of::<Pod>());
        let seen = seen.iter().map(|pod| Kind::of::<Pod>().decode(pod.clone()).unwrap());
        stage.listed(&Kind::of::<Pod>(), seen.collect());
        stage
    }

    fn pod(name: &str, metadata: &Value) -> Value {
        let mut pod = json!({ "kind": "Pod", "apiVersion": "v1", "metadata": metadata });
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["uid"] = json!(format!("uid-{name}"));
        pod
    }

    fn told(events: &[AnyEvent]) -> Vec<String> {
        events.iter().map(|event| format!("{event:?}")).collect()
    }

    #[test]
    fn each_object_is_told_once_a_round_as_it_would_be_last() {
        let stage = stage(&[pod("a", &json!({})), pod("b", &json!({}))]);
        assert_eq!(told(&stage.next_round()), ["Added Pod a (uid-a)", "Added Pod b (uid-b)"]);
        for version in ["1", "2"] {
            stage.is(pod("a", &json!({ "labels": { "version": version } })));
        }
        let round = stage.next_round();
        assert_eq!(told(&round), ["Modified Pod a (uid-a)"]);
        assert_eq!(round[0].object().unwrap().meta().labels.as_ref().unwrap()["version"], "2");
        assert!(stage.next_round().is_empty());
    }

    #[test]
    fn an_event_that_waited_shows_the_object_as_it_would_be_by_now() {
        let stage = stage(&[pod("a", &json!({})), pod("b", &json!({}))]);
        let round = stage.next_round();
        stage.is(pod("a", &json!({ "labels": { "new": "yes" } })));
        stage.gone("uid-b");
        let now: Vec<_> = round.into_iter().filter_map(|event| stage.by_now(event)).collect();
        assert_eq!(told(&now), ["Added Pod a (uid-a)"], "of what would be gone another event tells");
        assert!(now[0].object().unwrap().meta().labels.is_some());
        assert_eq!(told(&stage.next_round()), ["Modified Pod a (uid-a)", "Deleted Pod b (uid-b)"]);
    }

    #[test]
    fn an_object_ends_when_nothing_and_nobody_holds_it() {
        let asked = |finalizers: Value, grace: u8| {
            pod(
                "a",
                &json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace, "finalizers": finalizers }),
            )
        };
        let stage = stage(&[]);
        for (object, expected) in [
            (pod("a", &json!({})), "Modified Pod a (uid-a)"),
            (asked(json!(["a/b"]), 0), "Modified Pod a (uid-a)"),
            (asked(json!([]), 30), "Modified Pod a (uid-a)"),
            (asked(json!([]), 0), "Deleted Pod a (uid-a)"),
        ] {
            stage.is(object);
            assert_eq!(told(&stage.next_round()), [expected]);
        }
    }

    #[test]
    fn what_nobody_wants_concerns_nobody_and_what_nobody_can_decode_is_told_and_exists() {
        let stage = stage(&[json!({ "metadata": { "name": "odd", "uid": "uid-odd" }, "spec": 7 })]);
        stage.is(json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": "a", "uid": "s" } }));
        assert!(stage.next_round().is_empty());
        assert_eq!(stage.uids(TypeId::of::<Pod>()), Some(HashSet::from(["uid-odd".to_owned()])));
        assert_eq!(stage.uids(TypeId::of::<Service>()), None, "not all of them are known");
        let troubles = stage.troubles.take();
        assert!(
            troubles.len() == 1 && troubles[0].starts_with("Pod odd (uid-odd) was not looked at: "),
            "{troubles:?}"
        );
    }
}
