//! The annotation with the VIFs of a pod, in the format of OpenStack's library `os_vif`, which
//! Kuryr's CNI plug-in reads.

mod format;
mod overlay;

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use staffetta_driver::Vif;

use crate::annotation::{self, AnnotationError};
use crate::versioned_object::to_text_of;

/// The key of the annotation that lists the VIFs of a pod.
pub const KURYR_VIF: &str = "openstack.org/kuryr-vif";

/// The maximum number of VIFs of a pod in addition to the default VIF.
pub(crate) const MAX_ADDITIONAL_VIFS: usize = 16;

/// The VIFs of a pod, as Kuryr's object `PodState` in the annotation `openstack.org/kuryr-vif`
/// lists them.
#[derive(Clone, Debug, PartialEq)]
pub struct PodState {
    /// The VIF of the interface `eth0` in the pod.
    pub default_vif: Vif,
    /// The additional VIFs by the name of their interface in the pod; at most 16.
    pub additional_vifs: BTreeMap<String, Vif>,
}

impl PodState {
    /// Creates the state of a pod that has only the default VIF.
    pub fn new(default_vif: Vif) -> Self {
        Self { default_vif, additional_vifs: BTreeMap::new() }
    }

    /// Parses the value of the annotation `openstack.org/kuryr-vif`. The format of Kuryr's Queens
    /// release, a VIF outside of a `PodState`, is accepted, too. Returns an error if `text` is
    /// malformed or lists more than 16 additional VIFs.
    pub fn read(text: &str) -> Result<Self, AnnotationError> {
        annotation::read(KURYR_VIF, text)
    }

    /// Formats the value of the annotation `openstack.org/kuryr-vif`: JSON in one line with sorted keys.
    pub fn write(&self) -> String {
        to_text_of(self.value())
    }

    /// Formats the value that replaces `old` in the annotation. It keeps the fields of VIFs in
    /// `old` that this program does not know. A malformed `old` is ignored.
    pub fn write_over(&self, old: &str) -> String {
        let (Ok(known), Ok(old)) = (Self::read(old), serde_json::from_str(old)) else { return self.write() };
        to_text_of(overlay::overlay(overlay::as_pod_state(old), &known.value(), self.value()))
    }

    /// Returns all VIFs of the pod, the default VIF first.
    pub fn vifs(&self) -> impl Iterator<Item = &Vif> {
        std::iter::once(&self.default_vif).chain(self.additional_vifs.values())
    }

    /// Returns mutable references to all VIFs of the pod, the default VIF first.
    pub fn vifs_mut(&mut self) -> impl Iterator<Item = &mut Vif> {
        std::iter::once(&mut self.default_vif).chain(self.additional_vifs.values_mut())
    }

    /// Returns the value of the annotation `openstack.org/kuryr-vif` as JSON.
    fn value(&self) -> Value {
        format::write_state(self).expect("keys are strings and no number is without a JSON form")
    }
}

/// Converts `status.vifs` of a `KuryrPort`, which contains the VIFs by their interface, to the state of
/// a pod and the value of the annotation. The annotation keeps the fields that this program does not
/// know. Returns an error if `vifs` is malformed or has no default VIF.
pub fn annotation_of_vifs(vifs: &BTreeMap<String, Value>) -> Result<(PodState, String), serde_json::Error> {
    let is_default = |(_, entry): &(&String, &Value)| entry["default"] == true;
    let default = vifs.iter().find(is_default).or_else(|| vifs.get_key_value("eth0"));
    let (name, default) = default.ok_or_else(|| serde_json::Error::custom("there is no default VIF"))?;
    let others = vifs.iter().filter(|(other, _)| *other != name);
    let others: BTreeMap<_, _> = others.map(|(other, entry)| (other, &entry["vif"])).collect();
    let value = format::pod_state(json!({ "additional_vifs": others, "default_vif": default["vif"] }));
    Ok((PodState::deserialize(&value)?, to_text_of(value)))
}

impl<'de> Deserialize<'de> for PodState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = overlay::as_pod_state(Value::deserialize(deserializer)?);
        let state = format::read_state(value).map_err(D::Error::custom)?;
        let additional = state.additional_vifs.len();
        if additional > MAX_ADDITIONAL_VIFS {
            return Err(D::Error::custom(format_args!(
                "it has {additional} VIFs beside the default one; the maximum is {MAX_ADDITIONAL_VIFS}"
            )));
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests;
