//! An index of the device specifications from the configuration, files and `CiscoDevice` objects.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use staffetta_handler::{Event, Identity, Index};
use tokio::sync::Notify;

use super::check::mistake;
use super::cisco_device::CiscoDevice;
use super::device::DeviceDescription;
use super::entry::DeviceEntry;
use super::name::is_name;
use super::options::AppHostingOptions;

/// The device specifications, by the name of the node. If several specifications have the same node name, only one is
/// in effect: that from the configuration or a file, or else that of the `CiscoDevice` object.
pub(super) struct Devices {
    /// The specifications by the name of the node, and by precedence.
    claims: Mutex<HashMap<String, BTreeMap<Rank, Claim>>>,
    /// The options that limit what a `CiscoDevice` object may specify.
    options: AppHostingOptions,
    /// Parses the specification in a `CiscoDevice` object.
    parse: fn(Value) -> Result<DeviceDescription, serde_json::Error>,
    /// Notified when a device specification is added, changed or removed.
    pub(super) changed: Notify,
}

/// Parses a specification, whose section must be of the type `S`. The driver of the device parses the section again.
fn parse<S: DeserializeOwned>(spec: Value) -> Result<DeviceDescription, serde_json::Error> {
    DeviceDescription::<S>::deserialize(&spec)?;
    serde_json::from_value(spec)
}

/// The precedence of a device specification among those with the same node name. The valid one with the lowest
/// rank is in effect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// The specification comes from a file or the configuration, and takes precedence.
    File,
    /// The specification comes from a `CiscoDevice` object.
    Resource,
}

/// A device specification that claims a node name, with its origin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claim {
    /// The `CiscoDevice` object with the specification; `None` if it comes from a file or the configuration.
    pub(super) object: Option<Arc<CiscoDevice>>,
    /// The last valid specification of the device; `None` if none was valid yet.
    pub(super) spec: Option<Arc<DeviceDescription>>,
    /// A file with the password of the device, which overrides the password in the specification; `None` if none is configured.
    pub(super) password_file: Option<PathBuf>,
    /// The reason why the current specification is invalid; `None` if it is valid. While the current specification is
    /// invalid, the last valid one stays in effect, so that a typing error removes no node from the cluster.
    wrong: Option<String>,
    /// `true` once the object, which is being deleted, claims its node name no more: the workloads are removed from the device, or stay
    /// there because the device is unreachable or no specification was valid. The node is deleted next.
    left: bool,
}

impl Claim {
    /// Returns `true` if the specification is that of the `CiscoDevice` object with this UID.
    fn is_of(&self, uid: &str) -> bool {
        self.object.as_ref().is_some_and(|object| object.metadata.uid.as_deref() == Some(uid))
    }

    /// Returns `true` if the specification is that of a `CiscoDevice` object that is being deleted.
    pub(super) fn is_leaving(&self) -> bool {
        self.object.as_ref().is_some_and(|object| object.metadata.deletion_timestamp.is_some())
    }
}

/// The result of checking the specification of a `CiscoDevice`, and comparing it with the other specifications for the
/// same node name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The specification is valid, and no other one with precedence has the same node name.
    Holds,
    /// The specification of the `CiscoDevice` is invalid, for the reason in the text.
    Invalid(String),
    /// A file or the configuration specifies a device with the node name of the `CiscoDevice`, and takes precedence.
    Taken,
}

impl Devices {
    /// Creates the index with the devices from files and the configuration, by the name of their node.
    pub(super) fn new(devices: BTreeMap<String, DeviceEntry>, options: AppHostingOptions) -> Self {
        let claims = devices.into_iter().map(|(name, DeviceEntry { device, password_file, .. })| {
            let spec = Some(Arc::new(device));
            let claim = Claim { object: None, spec, password_file, wrong: None, left: false };
            (name, BTreeMap::from([(Rank::File, claim)]))
        });
        let claims = claims.collect();
        let parse = parse::<Map<String, Value>>;
        Self { claims: Mutex::new(claims), options, parse, changed: Notify::new() }
    }

    /// Makes the index accept only `CiscoDevice` objects whose section is of the type `S`.
    pub(super) fn with_section<S: DeserializeOwned>(self) -> Self {
        Self { parse: parse::<S>, ..self }
    }

    /// Returns the specifications in effect, by the name of the node.
    pub(super) fn in_effect(&self) -> BTreeMap<String, Claim> {
        let claims = self.claims.lock();
        claims.iter().filter_map(|(name, claims)| Some((name.clone(), holder(claims)?.clone()))).collect()
    }

    /// Returns the specification in effect for the node `name`; `None` if there is none.
    pub(super) fn of(&self, name: &str) -> Option<Claim> {
        self.claims.lock().get(name).and_then(holder).cloned()
    }

    /// Returns the names of nodes all of whose specifications are invalid. Such nodes may exist, and must not be deleted.
    pub(super) fn nodes_without_valid_description(&self) -> Vec<String> {
        let claims = self.claims.lock();
        let stands = |claims: &BTreeMap<Rank, Claim>| {
            holder(claims).is_none() && claims.values().any(|claim| !claim.left)
        };
        claims.iter().filter(|(_, claims)| stands(claims)).map(|(name, _)| name.clone()).collect()
    }

    /// Returns `true` if the specification of the `CiscoDevice` object with this UID is in effect for the node `name`.
    pub(super) fn is_held_by(&self, name: &str, uid: &str) -> bool {
        self.of(name).is_some_and(|claim| claim.is_of(uid))
    }

    /// Returns all `CiscoDevice` objects.
    pub(super) fn objects(&self) -> Vec<Arc<CiscoDevice>> {
        let claims = self.claims.lock();
        claims.values().flat_map(BTreeMap::values).filter_map(|claim| claim.object.clone()).collect()
    }

    /// Returns the newest known state of a `CiscoDevice` object; `None` if it does not exist.
    pub(super) fn object(&self, identity: &Identity) -> Option<Arc<CiscoDevice>> {
        let claims = self.claims.lock();
        let claim = claims.get(&identity.name)?.values().find(|claim| claim.is_of(&identity.uid));
        claim?.object.clone()
    }

    /// Returns the result of checking the specification of a `CiscoDevice` object, and comparing it with the other specifications for
    /// the same node name.
    pub(super) fn verdict(&self, object: &CiscoDevice) -> Verdict {
        let claims = self.claims.lock();
        let of_name = claims.get(object.metadata.name.as_deref().unwrap_or_default());
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        let own = of_name.and_then(|claims| claims.values().find(|claim| claim.is_of(uid)));
        match (own, of_name.and_then(holder)) {
            (None, _) => Verdict::Invalid("it has not been read".to_owned()),
            (Some(Claim { wrong: Some(reason), .. }), _) => Verdict::Invalid(reason.clone()),
            (Some(own), Some(holder)) if !own.left && !holder.is_of(uid) => Verdict::Taken,
            _ => Verdict::Holds,
        }
    }

    /// Returns `true` if the `CiscoDevice` object with this UID is being deleted and does not claim the node name `name` any more
    /// ([`leave`](Self::leave)). The finalizer of the object is removed once the node is deleted.
    pub(super) fn has_left(&self, name: &str, uid: &str) -> bool {
        let is_left = |claim: &Claim| claim.left && claim.is_of(uid);
        self.claims.lock().get(name).is_some_and(|claims| claims.values().any(is_left))
    }

    /// Ends the claim to the node name `name` of the `CiscoDevice` object with this UID, which is being deleted. The caller has removed the
    /// workloads from the device, or leaves them there because the device cannot be reached. The node is deleted next.
    pub(super) fn leave(&self, name: &str, uid: &str) {
        let mut claims = self.claims.lock();
        let of_name = claims.get_mut(name).into_iter().flat_map(BTreeMap::values_mut);
        of_name.filter(|claim| claim.is_of(uid)).for_each(|claim| claim.left = true);
        drop(claims);
        self.changed.notify_one();
    }

    /// Removes the specification of the deleted `CiscoDevice` object with this UID for the node `name`.
    fn release(&self, name: &str, uid: &str) {
        let mut claims = self.claims.lock();
        if let Some(of_name) = claims.get_mut(name) {
            of_name.retain(|_, claim| !claim.is_of(uid));
            if of_name.is_empty() {
                claims.remove(name);
            }
        }
        drop(claims);
        self.changed.notify_one();
    }

    /// Records the specification of a `CiscoDevice` object. If it is invalid, the last valid specification of the same object stays in
    /// effect, so that a mistake does not stop the applications of the device.
    fn claim(&self, object: &Arc<CiscoDevice>) {
        let meta = &object.metadata;
        let name = meta.name.clone().unwrap_or_default();
        let described = self.described(&name, object).map(Arc::new);
        let mut claims = self.claims.lock();
        let of_name = claims.entry(name).or_default();
        let uid = meta.uid.as_deref().unwrap_or_default();
        let before = of_name.get(&Rank::Resource).filter(|claim| claim.is_of(uid));
        let left = before.is_some_and(|claim| claim.left);
        let (spec, wrong) = match described {
            Ok(spec) => (Some(spec), None),
            Err(reason) => match before.and_then(|claim| claim.spec.clone()) {
                Some(before) => {
                    (Some(before), Some(format!("{reason}; the previous description stays in effect")))
                }
                None => (None, Some(reason)),
            },
        };
        let claim = Claim { object: Some(Arc::clone(object)), spec, password_file: None, wrong, left };
        of_name.insert(Rank::Resource, claim);
        drop(claims);
        self.changed.notify_one();
    }

    /// Returns the decoded specification of the `CiscoDevice` object `name`, or the reason why it is invalid.
    fn described(&self, name: &str, object: &CiscoDevice) -> Result<DeviceDescription, String> {
        if !is_name(name) {
            return Err("no node may have the name of this object: at most 63 characters".to_owned());
        }
        let spec = (self.parse)(object.spec.clone()).map_err(|error| format!("spec: {error}"))?;
        let mistake = mistake(&spec).or_else(|| self.options.forbidden(&spec));
        mistake.map_or(Ok(spec), |mistake| Err(format!("spec.{mistake}")))
    }
}

/// Returns the specification in effect among `claims`, which have the same node name; `None` if there is none.
fn holder(claims: &BTreeMap<Rank, Claim>) -> Option<&Claim> {
    claims.values().find(|claim| claim.spec.is_some() && !claim.left)
}

impl Index<CiscoDevice> for Devices {
    fn apply(&self, event: &Event<CiscoDevice>) {
        match event {
            // A tenant may have created it; the controller rejects it.
            Event::Added(object) | Event::Modified(object) if object.metadata.namespace.is_some() => {}
            Event::Added(object) | Event::Modified(object) => self.claim(object),
            Event::Deleted(_) => self.release(event.object_ref().name, event.uid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(uid: &str, spec: &Value) -> Arc<CiscoDevice> {
        let metadata = json!({ "name": "r1", "uid": uid });
        Arc::new(serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
    }

    /// Returns an index that allows the addresses of these tests and the label `rack`.
    fn index(devices: BTreeMap<String, DeviceEntry>) -> Devices {
        let options =
            json!({ "allowed_addresses": ["x", "one", "two", "three"], "allowed_label_prefixes": ["rack"] });
        Devices::new(devices, serde_json::from_value(options).unwrap())
    }

    #[test]
    fn a_device_of_a_file_has_precedence_over_a_custom_resource_of_its_name() {
        let object = object("uid", &json!({ "driver": "FAKE", "address": "one" }));
        let spec = serde_json::from_value(json!({ "driver": "FAKE", "address": "file" })).unwrap();
        let file = DeviceEntry { name: None, password_file: None, device: spec };
        let devices = index([("r1".to_owned(), file)].into());
        devices.claim(&object);
        assert_eq!(devices.verdict(&object), Verdict::Taken);
        assert_eq!(devices.of("r1").unwrap().spec.unwrap().address, "file");
    }

    #[test]
    fn a_description_that_cannot_be_right_is_reported_and_its_node_stays() {
        let devices = index(BTreeMap::new());
        let wrong = object("uid", &json!({ "driver": "FAKE", "address": "x", "colour": 1 }));
        devices.claim(&wrong);
        assert!(matches!(devices.verdict(&wrong), Verdict::Invalid(reason) if reason.contains("colour")));
        assert_eq!(
            (devices.nodes_without_valid_description(), devices.in_effect().len()),
            (vec!["r1".to_owned()], 0)
        );
    }

    #[test]
    fn an_object_of_the_same_name_has_nothing_of_the_one_before() {
        let devices = index(BTreeMap::new());
        devices.claim(&object("first", &json!({ "driver": "FAKE", "address": "one" })));
        devices.leave("r1", "first");
        let second = object("second", &json!({ "driver": "FAKE", "address": "one", "colour": 1 }));
        devices.claim(&second);
        assert!(devices.of("r1").is_none() && !devices.has_left("r1", "second"));
        devices.release("r1", "first");
        assert_eq!(devices.nodes_without_valid_description(), ["r1"]);
    }

    #[test]
    fn a_description_that_is_not_allowed_is_reported() {
        let devices = index(BTreeMap::new());
        let stranger = object("uid", &json!({ "driver": "FAKE", "address": "192.0.2.1" }));
        devices.claim(&stranger);
        let verdict = devices.verdict(&stranger);
        assert!(
            matches!(&verdict, Verdict::Invalid(reason) if reason.starts_with("spec.address: `192.0.2.1`")),
            "{verdict:?}"
        );
        assert!(devices.of("r1").is_none());
    }

    #[test]
    fn a_description_that_chooses_a_label_of_ours_cannot_be_right() {
        for key in ["type", "staffetta.dev/handler", "staffetta.dev/cluster", "kubernetes.io/hostname"] {
            let spec = json!({ "address": "x", "labels": { key: "edge" } });
            let device = object("uid", &spec);
            let devices = index(BTreeMap::new());
            devices.claim(&device);
            assert!(matches!(devices.verdict(&device), Verdict::Invalid(reason) if reason.contains(key)));
        }
    }

    #[test]
    fn a_description_with_a_label_that_no_server_takes_cannot_be_right() {
        let devices = index(BTreeMap::new());
        let device = object("uid", &json!({ "address": "x", "labels": { "rack": "7 b" } }));
        devices.claim(&device);
        let verdict = devices.verdict(&device);
        assert!(
            matches!(&verdict, Verdict::Invalid(reason) if reason.starts_with("spec.labels[rack]: ")),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_description_that_was_right_holds_while_the_one_after_it_cannot_be() {
        let devices = index(BTreeMap::new());
        let spec = |address: &str| json!({ "driver": "FAKE", "address": address });
        devices.claim(&object("uid", &spec("one")));
        let mut wrong = spec("two");
        wrong["colour"] = json!("red");
        let wrong = object("uid", &wrong);
        devices.claim(&wrong);
        let address = || devices.of("r1").and_then(|claim| claim.spec).map(|spec| spec.address.clone());
        assert_eq!(address().as_deref(), Some("one"));
        assert!(devices.is_held_by("r1", "uid") && devices.nodes_without_valid_description().is_empty());
        assert!(matches!(devices.verdict(&wrong), Verdict::Invalid(reason) if reason.contains("colour")));
        devices.claim(&object("uid", &spec("three")));
        assert_eq!(address().as_deref(), Some("three"));
    }

    #[test]
    fn a_section_that_its_driver_cannot_read_is_reported_and_the_description_before_it_holds() {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Section {
            #[serde(rename = "slot")]
            _slot: u8,
        }
        let devices = index(BTreeMap::new()).with_section::<Section>();
        let device = |section| object("uid", &json!({ "driver": "FAKE", "address": "one", "xe": section }));
        devices.claim(&device(json!({ "slot": 1 })));
        let wrong = device(json!({ "colour": 1 }));
        devices.claim(&wrong);
        let verdict = devices.verdict(&wrong);
        assert!(
            matches!(&verdict, Verdict::Invalid(reason) if reason.contains("unknown field `colour`")),
            "{verdict:?}"
        );
        assert!(devices.is_held_by("r1", "uid"));
    }
}
