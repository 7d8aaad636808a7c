//! What of a node its description asked for: it is written down at the node, so that what is asked for no more can go, and a process
//! that comes later knows where the machine was.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde::{Deserialize, Serialize};

use super::spec::NodeSpec;

/// The annotation in which it is written down.
const ANNOTATION: &str = "staffetta.dev/described";

/// What a description asked for, and where it said that the machine is.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Marks {
    /// The keys of the labels.
    pub(super) labels: BTreeSet<String>,
    /// The taints, as `KEY:EFFECT`.
    taints: BTreeSet<String>,
    /// Where the machine is.
    #[serde(skip_serializing_if = "String::is_empty")]
    place: String,
}

/// Where the machine behind a node was that is somewhere else by now.
pub(crate) fn former_place(node: &Node, spec: &NodeSpec) -> Option<String> {
    Some(Marks::read(node).place).filter(|place| !place.is_empty() && *place != spec.place)
}

impl Marks {
    /// Those of a description.
    pub(super) fn of(spec: &NodeSpec) -> Self {
        Self {
            labels: spec.labels.keys().cloned().collect(),
            taints: spec.taints.iter().map(name).collect(),
            place: spec.place.clone(),
        }
    }

    /// Those that a node says were asked for; none where it does not say so, or nobody understands it.
    pub(super) fn read(node: &Node) -> Self {
        let text = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// The annotation and its value.
    pub(super) fn written(&self) -> (String, String) {
        (ANNOTATION.to_owned(), serde_json::json!(self).to_string())
    }

    pub(super) fn has_taint(&self, taint: &Taint) -> bool {
        self.taints.contains(&name(taint))
    }
}

fn name(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}
