//! Conversions between a pod's VIFs and the objects of `os_vif`, each of which is in an envelope.
//!
//! The fields of a class have the same names as the fields of the drivers' types in JSON. Only the
//! envelopes, the lists of objects and the names of the classes are added and removed here.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::{Error, Map, Value, from_value, json, to_value};
use staffetta_driver::{SubnetAddresses, Vif};

use super::PodState;
use crate::versioned_object::Envelope;

/// The key of the object in an envelope of oslo.versionedobjects.
pub(super) const DATA: &str = "versioned_object.data";
/// The key of the name of the class in an envelope of oslo.versionedobjects.
pub(super) const NAME: &str = "versioned_object.name";
/// The key of the version of the class in an envelope of oslo.versionedobjects.
pub(super) const VERSION: &str = "versioned_object.version";

/// The namespace of the classes of `os_vif`, including Kuryr's own VIF classes.
const NAMESPACE: &str = "os_vif";

/// The variants of an enum, as triples: the name of the variant in JSON, the name of its class, and
/// the version of its class. The variant `other` is missing; it contains a [`ClassObject`].
type Classes = [(&'static str, &'static str, &'static str)];

/// The classes of the variants of [`VifClass`](staffetta_driver::VifClass).
const VIFS: &Classes = &[
    ("open_vswitch", "VIFOpenVSwitch", "1.0"),
    ("bridge", "VIFBridge", "1.0"),
    ("vhost_user", "VIFVHostUser", "1.0"),
    ("vlan_nested", "VIFVlanNested", "1.0"),
    ("macvlan_nested", "VIFMacvlanNested", "1.0"),
    ("dpdk_nested", "VIFDPDKNested", "1.0"),
];

/// The classes of the variants of [`PortProfile`](staffetta_driver::PortProfile).
const PROFILES: &Classes = &[("open_vswitch", "VIFPortProfileOpenVSwitch", "1.4")];

/// The fields of an object of `os_vif` in JSON, by name.
type Fields = Map<String, Value>;
/// The result of a conversion, whose error is a text for the person who wrote the annotation.
type Result<T> = std::result::Result<T, Error>;

/// The content of an envelope of oslo.versionedobjects: the name and version of the class, and the
/// fields of the object.
#[derive(Serialize, Deserialize)]
struct ClassObject {
    name: String,
    version: String,
    fields: Fields,
}

/// The fields that every VIF has. All other fields are specific to the class of the VIF.
const VIF_FIELDS: [&str; 8] = [
    "active",
    "address",
    "has_traffic_filtering",
    "id",
    "network",
    "plugin",
    "port_profile",
    "preserve_on_delete",
];

/// Converts a pod's VIFs to an object of Kuryr's class `PodState`, in its envelope (oslo.versionedobjects).
pub(super) fn write_state(state: &PodState) -> Result<Value> {
    let additional = state.additional_vifs.iter().map(|(name, vif)| Ok((name.clone(), write_vif(vif)?)));
    let additional_vifs = additional.collect::<Result<Fields>>()?;
    let fields =
        [("additional_vifs", additional_vifs.into()), ("default_vif", write_vif(&state.default_vif)?)];
    Ok(pod_state(Value::from_iter(fields)))
}

/// Puts `fields` into the envelope (oslo.versionedobjects) of an object of Kuryr's class `PodState`.
pub(super) fn pod_state(fields: Value) -> Value {
    object("PodState", "1.0", fields)
}

/// Converts a VIF to an object of its class of `os_vif`, in its envelope (oslo.versionedobjects).
fn write_vif(vif: &Vif) -> Result<Value> {
    let ClassObject { name, version, fields: mut data } = to_class_object(&vif.class, VIFS)?;
    data.extend(fields(vif)?);
    data.retain(|field, _| field != "class" && field != "subnets");
    let subnets = vif.subnets.iter().map(write_subnet).collect::<Result<_>>()?;
    let mut network = fields(&vif.network)?;
    network.insert("multi_host".into(), false.into());
    network.insert("subnets".into(), list("Subnet", subnets));
    data.insert("network".into(), object("Network", "1.1", network));
    if let Some(profile) = &vif.port_profile {
        let ClassObject { name, version, fields } = to_class_object(profile, PROFILES)?;
        data.insert("port_profile".into(), object(&name, &version, fields));
    }
    Ok(object(&name, &version, data))
}

/// Converts a subnet with the addresses of the VIF to the fields of an object of `os_vif`, without its
/// envelope.
fn write_subnet(subnet: &SubnetAddresses) -> Result<Value> {
    let mut data = fields(subnet)?;
    let routes = subnet.routes.iter().map(to_value).collect::<Result<_>>()?;
    data.insert("routes".into(), list("Route", routes));
    data.insert(
        "ips".into(),
        list("FixedIP", subnet.ips.iter().map(|ip| json!({ "address": ip })).collect()),
    );
    Ok(data.into())
}

/// Puts each of `objects` into an envelope of the class `class`, and all of them into an envelope of
/// the class of lists of `class`.
fn list(class: &str, objects: Vec<Value>) -> Value {
    let objects: Vec<_> = objects.into_iter().map(|data| object(class, "1.0", data)).collect();
    object(&format!("{class}List"), "1.0", Value::from_iter([("objects", objects)]))
}

/// Puts `data` into the envelope (oslo.versionedobjects) of a class of the namespace `os_vif`.
fn object(name: &str, version: &str, data: impl Into<Value>) -> Value {
    let data = data.into();
    let texts = [(NAME, name), ("versioned_object.namespace", NAMESPACE), (VERSION, version)];
    std::iter::once((DATA, data)).chain(texts.map(|(key, text)| (key, text.into()))).collect()
}

/// Converts `of` to JSON, and returns its fields without those that are null.
fn fields(of: &impl Serialize) -> Result<Fields> {
    let mut fields: Fields = from_value(to_value(of)?)?;
    fields.retain(|_, value| !value.is_null());
    Ok(fields)
}

/// Converts the JSON form of an enum variant to the name and version of its class, and its fields.
fn to_class_object(variant: &impl Serialize, classes: &Classes) -> Result<ClassObject> {
    let variant: BTreeMap<String, Value> = from_value(to_value(variant)?)?;
    let (variant, fields) = variant.into_iter().next().ok_or_else(|| Error::missing_field("class"))?;
    match classes.iter().find(|(known, ..)| *known == variant) {
        Some((_, name, version)) => {
            Ok(ClassObject { name: (*name).into(), version: (*version).into(), fields: from_value(fields)? })
        }
        None => from_value(fields),
    }
}

/// Parses an object of Kuryr's class `PodState` in its envelope (oslo.versionedobjects).
pub(super) fn read_state(value: Value) -> Result<PodState> {
    /// The fields of a `PodState`, each still in its envelope.
    #[derive(Deserialize)]
    struct StateFields {
        #[serde(default)]
        additional_vifs: BTreeMap<String, Value>,
        default_vif: Value,
    }
    open_envelope(value, "PodState", |class| {
        let StateFields { additional_vifs, default_vif } = from_value(class.fields.into())?;
        let additional = additional_vifs.into_iter().map(|(name, vif)| Ok((name, read_vif(vif)?)));
        Ok(PodState {
            default_vif: read_vif(default_vif)?,
            additional_vifs: additional.collect::<Result<_>>()?,
        })
    })
}

/// Parses a VIF of `os_vif` in its envelope (oslo.versionedobjects).
fn read_vif(value: Value) -> Result<Vif> {
    open_envelope(value, "VIF*", |mut class| {
        let common = VIF_FIELDS.iter().filter_map(|field| class.fields.remove_entry(*field));
        let mut vif: Fields = common.collect();
        let (network, subnets) = read_network(take(&mut vif, "network")?)?;
        let profile = vif.remove("port_profile").filter(|profile| !profile.is_null());
        let profile = profile.map(|profile| {
            open_envelope(profile, "VIFPortProfile*", |class| Ok(from_class_object(&class, PROFILES)))
        });
        vif.insert("class".into(), from_class_object(&class, VIFS));
        vif.insert("network".into(), network.into());
        vif.insert("subnets".into(), subnets.into());
        vif.insert("port_profile".into(), profile.transpose()?.into());
        set_defaults(&mut vif, ["has_traffic_filtering", "preserve_on_delete"]);
        from_value(vif.into())
    })
}

/// Parses a network of `os_vif` in its envelope (oslo.versionedobjects). Returns the fields of the
/// network, and those of each of its subnets.
fn read_network(value: Value) -> Result<(Fields, Vec<Fields>)> {
    open_envelope(value, "Network", |ClassObject { mut fields, .. }| {
        let subnets = read_list(Some(take(&mut fields, "subnets")?), "Subnet", read_subnet)?;
        set_defaults(&mut fields, ["should_provide_bridge", "should_provide_vlan"]);
        Ok((fields, subnets))
    })
}

/// Sets those of the boolean fields `flags` that are missing to `false`.
fn set_defaults(fields: &mut Fields, flags: [&str; 2]) {
    for flag in flags {
        fields.entry(flag).or_insert(false.into());
    }
}

/// Removes `field` from `fields` and returns its value. Returns an error if the field is missing.
fn take(fields: &mut Fields, field: &'static str) -> Result<Value> {
    fields.remove(field).ok_or_else(|| Error::missing_field(field))
}

/// Converts the fields of a subnet of `os_vif` to those of `SubnetAddresses` in JSON.
fn read_subnet(mut fields: Fields) -> Result<Fields> {
    let routes = read_list(fields.remove("routes"), "Route", |route| Ok(Value::from(route)))?;
    let ips = read_list(fields.remove("ips"), "FixedIP", |mut ip| take(&mut ip, "address"))?;
    fields.extend([("routes".to_owned(), routes.into()), ("ips".to_owned(), ips.into())]);
    fields.entry("dns").or_insert(json!([]));
    Ok(fields)
}

/// Parses a list of objects of the class `class`, which has an envelope like each of the objects, by
/// calling `read` with the fields of each object. `None` gives an empty list.
fn read_list<T>(list: Option<Value>, class: &str, read: impl Fn(Fields) -> Result<T>) -> Result<Vec<T>> {
    let Some(list) = list else { return Ok(Vec::new()) };
    open_envelope(list, &format!("{class}List"), |mut list| {
        let objects: Vec<Value> = from_value(take(&mut list.fields, "objects")?)?;
        let object = |value| open_envelope(value, class, |object| read(object.fields));
        objects.into_iter().map(object).collect()
    })
}

/// Removes the envelope (oslo.versionedobjects) of an object of `os_vif`, and parses its content with
/// `read`. Returns an error unless the object has this class and the major version 1. A `class` that ends in
/// `*` stands for all classes whose names begin so. An error about the content names the class.
fn open_envelope<T>(value: Value, class: &str, read: impl FnOnce(ClassObject) -> Result<T>) -> Result<T> {
    let envelope: Envelope<Fields> = from_value(value)?;
    envelope.check::<Error>(NAMESPACE, class, "1.0")?;
    let Envelope { data: fields, name, version, .. } = envelope;
    let class = name.clone();
    read(ClassObject { name, version, fields }).map_err(|error| Error::custom(format!("{class}: {error}")))
}

/// Converts an object of a class to the JSON form of the enum variant that `classes` lists for it. A
/// class that is not in `classes` becomes the variant `other`.
fn from_class_object(class: &ClassObject, classes: &Classes) -> Value {
    match classes.iter().find(|(_, name, _)| *name == class.name) {
        Some((variant, ..)) => json!({ (*variant): class.fields }),
        None => json!({ "other": class }),
    }
}
