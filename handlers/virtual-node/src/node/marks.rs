//! The labels and taints of a description, recorded on the node, so that a later process can remove those
//! that are no longer wanted and knows the machine's previous address.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde::{Deserialize, Serialize};

use super::spec::NodeSpec;

/// The annotation with the record.
const ANNOTATION: &str = "staffetta.dev/described";

/// The recorded labels, taints and address of a description.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeMarks {
    /// The keys of the labels.
    pub(super) labels: BTreeSet<String>,
    /// The taints, as `KEY:EFFECT`.
    taints: BTreeSet<String>,
    /// The address of the machine.
    #[serde(rename = "place", skip_serializing_if = "String::is_empty")]
    address: String,
}

/// The previous address of a machine whose address changed.
pub(crate) fn former_address(node: &Node, spec: &NodeSpec) -> Option<String> {
    Some(NodeMarks::read(node).address).filter(|address| !address.is_empty() && *address != spec.address)
}

impl NodeMarks {
    /// Those of a description.
    pub(super) fn of(spec: &NodeSpec) -> Self {
        Self {
            labels: spec.labels.keys().cloned().collect(),
            taints: spec.taints.iter().map(name).collect(),
            address: spec.address.clone(),
        }
    }

    /// Reads those that are recorded on a node; none if there is no record, or one that cannot be read.
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
