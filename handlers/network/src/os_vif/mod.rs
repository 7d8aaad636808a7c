//! The annotation in which a pod's VIFs are written down, in the form of the library `os_vif`: Kuryr's CNI reads it.

mod class;
mod network;
mod overlay;
mod vif;

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use staffetta_driver::Vif;

use crate::annotation::{self, AnnotationError};
use crate::versioned_object::{Sealed, Versioned, VersionedObject, to_text};
use vif::VifForm;

/// The key of the annotation on a Pod.
pub const KURYR_VIF: &str = "openstack.org/kuryr-vif";

/// How many VIFs a pod may have beside the default one.
pub(crate) const MOST_FURTHER: usize = 16;

/// The namespace of the classes of `os_vif`; Kuryr's own VIF classes use it too.
const NAMESPACE: &str = "os_vif";

const ALWAYS_JSON: &str = "keys are strings and no number is without a JSON form";

/// The VIFs of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodState {
    /// The VIF of `eth0`.
    pub default_vif: Vif,
    /// The others, by the name of the interface in the pod.
    pub additional_vifs: BTreeMap<String, Vif>,
}

impl PodState {
    /// A pod with one VIF.
    pub fn new(default_vif: Vif) -> Self {
        Self { default_vif, additional_vifs: BTreeMap::new() }
    }

    /// Reads the annotation. The form of Kuryr's Queens release, a VIF without a state around it, is read too.
    pub fn read(text: &str) -> Result<Self, AnnotationError> {
        annotation::read::<AnyForm>(KURYR_VIF, text).map(|form| form.0)
    }

    /// The text of the annotation: JSON in one line, its keys sorted.
    pub fn write(&self) -> String {
        serde_json::to_string(&self.form()).expect(ALWAYS_JSON)
    }

    /// The text of the annotation that takes the place of `old`: what this program does not know of the VIFs in `old`
    /// stays as it is.
    pub fn write_over(&self, old: &str) -> String {
        let (Ok(known), Ok(old)) = (Self::read(old), serde_json::from_str(old)) else { return self.write() };
        to_text(&overlay::overlay(overlay::as_pod_state(old), &known.value(), self.value()))
    }

    /// All VIFs, the default one first.
    pub fn vifs(&self) -> impl Iterator<Item = &Vif> {
        std::iter::once(&self.default_vif).chain(self.additional_vifs.values())
    }

    /// All VIFs, the default one first.
    pub fn vifs_mut(&mut self) -> impl Iterator<Item = &mut Vif> {
        std::iter::once(&mut self.default_vif).chain(self.additional_vifs.values_mut())
    }

    fn value(&self) -> Value {
        serde_json::to_value(self.form()).expect(ALWAYS_JSON)
    }

    fn form(&self) -> Versioned<PodStateForm> {
        let additional_vifs = &self.additional_vifs;
        Versioned(PodStateForm {
            default_vif: VifForm(self.default_vif.clone()),
            additional_vifs: additional_vifs
                .iter()
                .map(|(name, vif)| (name.clone(), VifForm(vif.clone())))
                .collect(),
        })
    }
}

#[derive(Serialize, Deserialize)]
struct PodStateForm {
    #[serde(default)]
    additional_vifs: BTreeMap<String, VifForm>,
    default_vif: VifForm,
}

impl VersionedObject for PodStateForm {
    const NAMESPACE: &'static str = NAMESPACE;
    const NAME: &'static str = "PodState";
    const VERSION: &'static str = "1.0";
}

/// A state, or a VIF without one.
struct AnyForm(PodState);

impl<'de> Deserialize<'de> for AnyForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Sealed::deserialize(deserializer)?;
        let state = if overlay::is_vif(&envelope.name) {
            PodState::new(VifForm::unseal(&envelope)?.0)
        } else {
            let Versioned(PodStateForm { default_vif, additional_vifs }) = Versioned::unseal(&envelope)?;
            PodState {
                default_vif: default_vif.0,
                additional_vifs: additional_vifs.into_iter().map(|(name, vif)| (name, vif.0)).collect(),
            }
        };
        let further = state.additional_vifs.len();
        if further > MOST_FURTHER {
            let wrong =
                format!("it has {further} VIFs beside the default one, and {MOST_FURTHER} is the most");
            return Err(D::Error::custom(wrong));
        }
        Ok(AnyForm(state))
    }
}

#[cfg(test)]
mod tests;
