//! A VIF in its envelope: the fields that every VIF has, and those of its class.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use staffetta_driver::{PortProfile, Vif};

use super::network::NetworkForm;
use super::{NAMESPACE, class};
use crate::versioned_object::{Envelope, Sealed, Versioned, reason};

/// The first number of this version is that of every VIF and port profile that is understood.
const UNDERSTOOD: &str = "1.0";

/// A VIF as it stands in an annotation.
pub(super) struct VifForm(pub(super) Vif);

/// What is in the envelope of a VIF.
#[derive(Deserialize)]
struct Base {
    active: bool,
    address: String,
    #[serde(default)]
    has_traffic_filtering: bool,
    id: String,
    network: Versioned<NetworkForm>,
    plugin: String,
    #[serde(default)]
    port_profile: Option<ProfileForm>,
    #[serde(default)]
    preserve_on_delete: bool,
    #[serde(flatten)]
    own: Map<String, Value>,
}

/// A field of a VIF, as it is written: those of its class stand sorted among those of every VIF.
#[derive(Serialize)]
#[serde(untagged)]
enum Field<'a> {
    Flag(bool),
    Text(&'a str),
    Network(Versioned<NetworkForm>),
    Profile(ProfileForm),
    Own(Value),
}

struct ProfileForm(PortProfile);

impl Serialize for VifForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(vif) = self;
        let parts = class::vif_parts(&vif.class);
        let address = vif.address.to_string();
        let own = parts.fields.iter().map(|(name, value)| (name.as_str(), Field::Own(value.clone())));
        let mut data: BTreeMap<_, _> = own.collect();
        data.extend([
            ("active", Field::Flag(vif.active)),
            ("address", Field::Text(&address)),
            ("has_traffic_filtering", Field::Flag(vif.has_traffic_filtering)),
            ("id", Field::Text(vif.id.as_str())),
            ("network", Field::Network(Versioned(NetworkForm::of(&vif.network, &vif.subnets)))),
            ("plugin", Field::Text(&vif.plugin)),
            ("preserve_on_delete", Field::Flag(vif.preserve_on_delete)),
        ]);
        let profile = vif.port_profile.clone().map(ProfileForm);
        data.extend(profile.map(|profile| ("port_profile", Field::Profile(profile))));
        Envelope { data, name: parts.name.into(), namespace: NAMESPACE.into(), version: parts.version.into() }
            .serialize(serializer)
    }
}

impl VifForm {
    /// The VIF in an envelope, of whatever class of VIFs.
    pub(super) fn unseal<E: Error>(envelope: &Sealed) -> Result<Self, E> {
        understood(envelope, "VIF").map_err(E::custom)?;
        let base: Base = envelope.open()?;
        let address = base.address.parse().map_err(|error| envelope.wrong(error))?;
        let (name, version) = (envelope.name.clone().into_owned(), envelope.version.clone().into_owned());
        let class =
            class::vif_class(name, version, base.own).map_err(|error| envelope.wrong(reason(&error)))?;
        let (network, subnets) = base.network.0.into_parts();
        Ok(Self(Vif {
            id: base.id.into(),
            address,
            active: base.active,
            plugin: base.plugin,
            class,
            network,
            subnets,
            has_traffic_filtering: base.has_traffic_filtering,
            preserve_on_delete: base.preserve_on_delete,
            port_profile: base.port_profile.map(|profile| profile.0),
        }))
    }
}

impl<'de> Deserialize<'de> for VifForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::unseal(&Sealed::deserialize(deserializer)?)
    }
}

impl Serialize for ProfileForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts = class::profile_parts(&self.0);
        Envelope {
            data: parts.fields,
            name: parts.name.into(),
            namespace: NAMESPACE.into(),
            version: parts.version.into(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ProfileForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Envelope::<Map<String, Value>>::deserialize(deserializer)?;
        understood(&envelope, "VIFPortProfile").map_err(D::Error::custom)?;
        let Envelope { data, name, version, .. } = envelope;
        class::profile(name.into_owned(), version.into_owned(), data).map(Self).map_err(D::Error::custom)
    }
}

/// A class of `os_vif` whose name begins so, in a version whose first number is known.
fn understood<T>(envelope: &Envelope<'_, T>, prefix: &str) -> Result<(), String> {
    let fits = envelope.namespace == NAMESPACE
        && envelope.name.starts_with(prefix)
        && envelope.is_version(UNDERSTOOD);
    fits.then_some(()).ok_or_else(|| {
        format!("found the object {}, expected a {prefix} class 1 of {NAMESPACE}", envelope.description())
    })
}
