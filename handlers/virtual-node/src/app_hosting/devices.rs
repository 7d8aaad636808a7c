//! An index of the device specifications from the configuration, files and `CiscoDevice` objects.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use staffetta_driver::app_hosting::DeviceSpec;
use staffetta_handler::{Event, Identity, Index};
use tokio::sync::Notify;

use super::check::mistake;
use super::cisco_device::CiscoDevice;
use super::entry::DeviceEntry;
use super::name::is_name;
use crate::lock::lock;

/// The device specifications, by the name of the node. If several specifications have the same node name, only one is
/// in effect: that from the configuration or a file, or else that of the oldest object.
pub(super) struct Devices {
    claims: Mutex<HashMap<String, BTreeMap<Rank, Claim>>>,
    /// Notified when a specification is added, changed or removed.
    pub(super) changed: Notify,
}

/// The precedence of a device specification among those with the same node name. The lowest one is in effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    File,
    Resource { created: Option<jiff::Timestamp>, namespace: String, uid: String },
}

/// A device specification that claims a node name, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    /// The `CiscoDevice` object with the specification; `None` if it comes from a file or the configuration.
    pub(super) object: Option<Arc<CiscoDevice>>,
    /// The last valid specification; `None` if none was valid yet.
    pub(super) spec: Option<Arc<DeviceSpec>>,
    /// A file with the password, which overrides the password in the specification.
    pub(super) password_file: Option<PathBuf>,
    /// The reason why the current specification is invalid; `None` if it is valid. While it is invalid, the last valid
    /// one stays in effect, so that a typing error removes no node from the cluster.
    wrong: Option<String>,
    /// `true` if the object is being deleted and nothing of the device remains. It claims no node name any more.
    left: bool,
}

impl Claim {
    /// Returns `true` if the specification is that of the object with this UID.
    fn is_of(&self, uid: &str) -> bool {
        self.object.as_ref().is_some_and(|object| object.metadata.uid.as_deref() == Some(uid))
    }

    /// Returns the origin of the specification, for messages.
    fn origin(&self) -> String {
        let namespace = self.object.as_ref().and_then(|object| object.metadata.namespace.as_ref());
        namespace.map_or_else(
            || "a file or the configuration".to_owned(),
            |namespace| format!("the namespace {namespace}"),
        )
    }

    /// Returns `true` if the specification is that of an object that is being deleted.
    pub(super) fn is_leaving(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.metadata.deletion_timestamp.is_some())
    }
}

/// The result of checking the specification of a `CiscoDevice`, and comparing it with the others for the same node
/// name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The specification is valid, and no other one with precedence has the same node name.
    Holds,
    /// The specification is invalid, for the reason in the text.
    Invalid(String),
    /// A file, the configuration or an older object already has the node name. The text is its origin, for messages.
    Taken(String),
}

impl Devices {
    /// Creates the index with the devices from files and the configuration, by the name of their node.
    pub(super) fn new(devices: BTreeMap<String, DeviceEntry>) -> Self {
        let claims = devices.into_iter().map(|(name, DeviceEntry { device, password_file, .. })| {
            let spec = Some(Arc::new(device));
            let claim = Claim { object: None, spec, password_file, wrong: None, left: false };
            (name, BTreeMap::from([(Rank::File, claim)]))
        });
        let claims = claims.collect();
        Self { claims: Mutex::new(claims), changed: Notify::new() }
    }

    /// Returns the specifications in effect, by the name of the node.
    pub(super) fn in_effect(&self) -> BTreeMap<String, Claim> {
        let claims = lock(&self.claims);
        claims.iter().filter_map(|(name, claims)| Some((name.clone(), holder(claims)?.clone()))).collect()
    }

    /// Returns the specification in effect for a node; `None` if there is none.
    pub(super) fn of(&self, name: &str) -> Option<Claim> {
        lock(&self.claims).get(name).and_then(holder).cloned()
    }

    /// Returns the names of nodes without a valid specification. These nodes exist, and must not be deleted.
    pub(super) fn nodes_without_valid_description(&self) -> Vec<String> {
        let claims = lock(&self.claims);
        let stands = |claims: &BTreeMap<Rank, Claim>| {
            holder(claims).is_none() && claims.values().any(|claim| !claim.left)
        };
        claims.iter().filter(|(_, claims)| stands(claims)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns `true` if the specification of the object with this UID is in effect for the node.
    pub(super) fn is_held_by(&self, name: &str, uid: &str) -> bool {
        self.of(name).is_some_and(|claim| claim.is_of(uid))
    }

    /// Returns all `CiscoDevice` objects.
    pub(super) fn objects(&self) -> Vec<Arc<CiscoDevice>> {
        let claims = lock(&self.claims);
        claims.values().flat_map(BTreeMap::values).filter_map(|claim| claim.object.clone()).collect()
    }

    /// Returns the newest known state of a `CiscoDevice` object; `None` if it does not exist.
    pub(super) fn object(&self, identity: &Identity) -> Option<Arc<CiscoDevice>> {
        let claims = lock(&self.claims);
        let claim = claims.get(&identity.name)?.values().find(|claim| claim.is_of(&identity.uid));
        claim?.object.clone()
    }

    /// Checks the specification of an object, and compares it with the others for the same node name.
    pub(super) fn verdict(&self, object: &CiscoDevice) -> Verdict {
        let claims = lock(&self.claims);
        let of_name = claims.get(object.metadata.name.as_deref().unwrap_or_default());
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let own = of_name.and_then(|claims| claims.values().find(|claim| claim.is_of(uid)));
        match (own, of_name.and_then(holder)) {
            (None, _) => Verdict::Invalid("it has not been read".to_owned()),
            (Some(Claim { wrong: Some(reason), .. }), _) => Verdict::Invalid(reason.clone()),
            (Some(own), Some(holder)) if !own.left && !holder.is_of(uid) => Verdict::Taken(holder.origin()),
            _ => Verdict::Holds,
        }
    }

    /// Returns `true` if the object with this UID is being deleted and nothing of its device remains, so that its
    /// finalizer can be removed.
    pub(super) fn has_left(&self, name: &str, uid: &str) -> bool {
        let is_left = |claim: &Claim| claim.left && claim.is_of(uid);
        lock(&self.claims).get(name).is_some_and(|claims| claims.values().any(is_left))
    }

    /// Records that nothing remains of the device of the object with this UID: others may use the node name.
    pub(super) fn leave(&self, name: &str, uid: &str) {
        let mut claims = lock(&self.claims);
        let of_name = claims.get_mut(name).into_iter().flat_map(BTreeMap::values_mut);
        of_name.filter(|claim| claim.is_of(uid)).for_each(|claim| claim.left = true);
        drop(claims);
        self.changed.notify_one();
    }

    /// Removes the specification of a deleted object.
    fn release(&self, name: &str, uid: &str) {
        let mut claims = lock(&self.claims);
        if let Some(of_name) = claims.get_mut(name) {
            of_name.retain(|_, claim| !claim.is_of(uid));
            if of_name.is_empty() {
                claims.remove(name);
            }
        }
        drop(claims);
        self.changed.notify_one();
    }

    fn claim(&self, object: &Arc<CiscoDevice>) {
        let meta = &object.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let rank = Rank::Resource {
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            namespace: meta.namespace.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        };
        let described = described(&name, object).map(Arc::new);
        let mut claims = lock(&self.claims);
        let of_name = claims.entry(name).or_default();
        let left = of_name.get(&rank).is_some_and(|claim| claim.left) && meta.deletion_timestamp.is_some();
        let (spec, wrong) = match described {
            Ok(spec) => (Some(spec), None),
            Err(reason) => match of_name.get(&rank).and_then(|claim| claim.spec.clone()) {
                Some(before) => {
                    (Some(before), Some(format!("{reason}; the previous description stays in effect")))
                }
                None => (None, Some(reason)),
            },
        };
        of_name
            .insert(rank, Claim { object: Some(Arc::clone(object)), spec, password_file: None, wrong, left });
        drop(claims);
        self.changed.notify_one();
    }
}

/// Returns the specification in effect among those that claim a node name.
fn holder(claims: &BTreeMap<Rank, Claim>) -> Option<&Claim> {
    claims.values().find(|claim| claim.spec.is_some() && !claim.left)
}

/// Returns the decoded specification of an object, or the reason why it is invalid.
fn described(name: &str, object: &CiscoDevice) -> Result<DeviceSpec, String> {
    if !is_name(name) {
        return Err("no node may have the name of this object: at most 63 characters".to_owned());
    }
    let spec = serde_json::from_value(object.spec.clone()).map_err(|error| format!("spec: {error}"))?;
    mistake(&spec).map_or(Ok(spec), |mistake| Err(format!("spec.{mistake}")))
}

impl Index<CiscoDevice> for Devices {
    fn apply(&self, event: &Event<CiscoDevice>) {
        match event {
            Event::Added(object) | Event::Modified(object) => self.claim(object),
            Event::Deleted(_) => self.release(event.object_ref().name, event.uid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(namespace: &str, created: &str, spec: &serde_json::Value) -> Arc<CiscoDevice> {
        let metadata = json!({ "name": "r1", "namespace": namespace, "uid": format!("uid-{namespace}"), "creationTimestamp": created });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
    }

    #[test]
    fn of_several_devices_of_one_name_the_oldest_holds_in_whatever_order_they_are_seen() {
        let spec = |address: &str| json!({ "driver": "FAKE", "address": address });
        let old = object("b", "2026-01-01T00:00:00Z", &spec("old"));
        let new = object("a", "2026-02-01T00:00:00Z", &spec("new"));
        for order in [[&old, &new], [&new, &old]] {
            let devices = Devices::new(BTreeMap::new());
            for object in order {
                devices.claim(object);
            }
            assert_eq!(devices.verdict(&old), Verdict::Holds);
            assert_eq!(devices.verdict(&new), Verdict::Taken("the namespace b".into()));
            devices.release("r1", "uid-b");
            assert_eq!(devices.verdict(&new), Verdict::Holds);
        }
        let spec = serde_json::from_value(spec("file")).unwrap();
        let file = DeviceEntry { name: None, password_file: None, device: spec };
        let devices = Devices::new([("r1".to_owned(), file)].into());
        devices.claim(&old);
        assert_eq!(devices.verdict(&old), Verdict::Taken("a file or the configuration".into()));
        assert_eq!(devices.of("r1").unwrap().spec.unwrap().address, "file");
    }

    #[test]
    fn a_description_that_cannot_be_right_is_told_and_holds_no_name() {
        let devices = Devices::new(BTreeMap::new());
        let wrong =
            object("a", "2026-01-01T00:00:00Z", &json!({ "driver": "FAKE", "address": "x", "colour": 1 }));
        let right = object("b", "2026-02-01T00:00:00Z", &json!({ "driver": "FAKE", "address": "y" }));
        devices.claim(&wrong);
        devices.claim(&right);
        assert!(matches!(devices.verdict(&wrong), Verdict::Invalid(reason) if reason.contains("colour")));
        assert_eq!(devices.verdict(&right), Verdict::Holds);
        devices.release("r1", "uid-b");
        assert_eq!(
            (devices.nodes_without_valid_description(), devices.in_effect().len()),
            (vec!["r1".to_owned()], 0)
        );
    }

    #[test]
    fn a_description_that_chooses_a_label_of_ours_cannot_be_right() {
        for key in ["type", "staffetta.dev/handler", "staffetta.dev/cluster", "kubernetes.io/hostname"] {
            let spec = json!({ "address": "x", "labels": { key: "edge" } });
            let device = object("a", "2026-01-01T00:00:00Z", &spec);
            let devices = Devices::new(BTreeMap::new());
            devices.claim(&device);
            assert!(matches!(devices.verdict(&device), Verdict::Invalid(reason) if reason.contains(key)));
        }
    }

    #[test]
    fn a_description_with_a_label_that_no_server_takes_cannot_be_right() {
        let devices = Devices::new(BTreeMap::new());
        let device =
            object("a", "2026-01-01T00:00:00Z", &json!({ "address": "x", "labels": { "rack": "7 b" } }));
        devices.claim(&device);
        let verdict = devices.verdict(&device);
        assert!(
            matches!(&verdict, Verdict::Invalid(reason) if reason.starts_with("spec.labels[rack]: ")),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_description_that_was_right_holds_while_the_one_after_it_cannot_be() {
        let devices = Devices::new(BTreeMap::new());
        let spec = |address: &str| json!({ "driver": "FAKE", "address": address });
        devices.claim(&object("a", "2026-01-01T00:00:00Z", &spec("one")));
        let mut wrong = spec("two");
        wrong["colour"] = json!("red");
        let wrong = object("a", "2026-01-01T00:00:00Z", &wrong);
        devices.claim(&wrong);
        let address = || devices.of("r1").and_then(|claim| claim.spec).map(|spec| spec.address.clone());
        assert_eq!(address().as_deref(), Some("one"));
        assert!(devices.is_held_by("r1", "uid-a") && devices.nodes_without_valid_description().is_empty());
        assert!(matches!(devices.verdict(&wrong), Verdict::Invalid(reason) if reason.contains("colour")));
        devices.claim(&object("a", "2026-01-01T00:00:00Z", &spec("three")));
        assert_eq!(address().as_deref(), Some("three"));
    }
}
