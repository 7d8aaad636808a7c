//! A VIF in its envelope: the fields that every VIF has, and those of its class.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use staffetta_driver::{PortProfile, Vif};

use super::network::NetworkForm;
use super::{NAMESPACE, class};
use crate::versioned_object::{Envelope, Versioned};

/// The first number of this version is that of every VIF and port profile that is understood.
const UNDERSTOOD: &str = "1.0";

/// A VIF as it stands in an annotation.
pub(super) struct VifForm(pub(super) Vif);

#[derive(Serialize, Deserialize)]
struct Base {
    active: bool,
    address: String,
    #[serde(default)]
    has_traffic_filtering: bool,
    id: String,
    network: Versioned<NetworkForm>,
    plugin: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    port_profile: Option<ProfileForm>,
    #[serde(default)]
    preserve_on_delete: bool,
    #[serde(flatten)]
    own: Map<String, Value>,
}

struct ProfileForm(PortProfile);

impl Serialize for VifForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(vif) = self;
        let parts = class::vif_parts(&vif.class);
        let data = Base {
            active: vif.active,
            address: vif.address.to_string(),
            has_traffic_filtering: vif.has_traffic_filtering,
            id: vif.id.to_string(),
            network: Versioned(NetworkForm::of(&vif.network, &vif.subnets)),
            plugin: vif.plugin.clone(),
            port_profile: vif.port_profile.clone().map(ProfileForm),
            preserve_on_delete: vif.preserve_on_delete,
            own: parts.fields,
        };
        Envelope { name: parts.name, namespace: NAMESPACE.into(), version: parts.version, data }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for VifForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Envelope::<Value>::deserialize(deserializer)?;
        understood(&envelope, "VIF").map_err(D::Error::custom)?;
        let Envelope { name, version, data, .. } = envelope;
        let inside = |error: &dyn std::fmt::Display| D::Error::custom(format_args!("{name}: {error}"));
        let base: Base = serde_json::from_value(data).map_err(|error| inside(&error))?;
        let (network, subnets) = base.network.0.into_parts();
        Ok(Self(Vif {
            id: base.id.into(),
            address: base.address.parse().map_err(|error| inside(&error))?,
            active: base.active,
            plugin: base.plugin,
            class: class::vif_class(name.clone(), version, base.own).map_err(|error| inside(&error))?,
            network,
            subnets,
            has_traffic_filtering: base.has_traffic_filtering,
            preserve_on_delete: base.preserve_on_delete,
            port_profile: base.port_profile.map(|profile| profile.0),
        }))
    }
}

impl Serialize for ProfileForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts = class::profile_parts(&self.0);
        Envelope { name: parts.name, namespace: NAMESPACE.into(), version: parts.version, data: parts.fields }
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ProfileForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Envelope::<Map<String, Value>>::deserialize(deserializer)?;
        understood(&envelope, "VIFPortProfile").map_err(D::Error::custom)?;
        class::profile(envelope.name, envelope.version, envelope.data).map(Self).map_err(D::Error::custom)
    }
}

/// A class of `os_vif` whose name begins so, in a version whose first number is known.
fn understood<T>(envelope: &Envelope<T>, prefix: &str) -> Result<(), String> {
    let fits = envelope.namespace == NAMESPACE
        && envelope.name.starts_with(prefix)
        && envelope.is_version(UNDERSTOOD);
    fits.then_some(()).ok_or_else(|| {
        format!("found the object {}, expected a {prefix} class 1 of {NAMESPACE}", envelope.description())
    })
}
