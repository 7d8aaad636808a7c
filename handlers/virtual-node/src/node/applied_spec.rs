//! The annotation with the labels, annotations, taints and address that this program last wrote to a Node object.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Taint};
use serde::{Deserialize, Serialize};

use super::spec::NodeSpec;

/// The annotation with the [`AppliedNodeSpec`], in JSON.
const ANNOTATION: &str = "staffetta.dev/described";

/// The labels, annotations, taints and address that this program last wrote to a Node object, stored in the annotation
/// `staffetta.dev/described`. With it, a later process removes what is no longer wanted.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AppliedNodeSpec {
    /// The keys of the labels that were written from the specification of the node.
    pub(super) labels: BTreeSet<String>,
    /// The keys of the annotations that were written from the specification of the node.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) annotations: BTreeSet<String>,
    /// The taints that were written from the specification of the node, as `KEY:EFFECT`.
    taints: BTreeSet<String>,
    /// The address of the machine behind the node. In JSON, `place`.
    #[serde(rename = "place", skip_serializing_if = "String::is_empty")]
    address: String,
}

/// Returns the address of the machine that the node had before, from the annotation of the Node object; `None` if the address
/// is the same as in `spec`, or the annotation has none.
pub(crate) fn former_address(node: &Node, spec: &NodeSpec) -> Option<String> {
    Some(AppliedNodeSpec::read(node).address)
        .filter(|address| !address.is_empty() && *address != spec.address)
}

/// Labels, annotations and taints of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodeMarks {
    /// The labels of the node: value by key.
    pub(crate) labels: BTreeMap<String, String>,
    /// The annotations of the node: value by key.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The taints of the node, each with its key, value and effect.
    pub(crate) taints: Vec<Taint>,
}

impl NodeMarks {
    /// Returns the labels, annotations and taints of `node` that this program wrote.
    pub(crate) fn of(node: &Node) -> Self {
        let applied = AppliedNodeSpec::read(node);
        let kept = |all: &Option<BTreeMap<String, String>>, keys: &BTreeSet<String>| {
            let all = all.iter().flatten().filter(|(key, _)| keys.contains(*key));
            all.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        Self {
            labels: kept(&node.metadata.labels, &applied.labels),
            annotations: kept(&node.metadata.annotations, &applied.annotations),
            taints: taints.filter(|taint| applied.has_taint(taint)).cloned().collect(),
        }
    }
}

impl AppliedNodeSpec {
    /// Returns the content of the annotation `staffetta.dev/described` for a node with this specification.
    pub(super) fn of(spec: &NodeSpec) -> Self {
        Self {
            labels: spec.labels.keys().cloned().collect(),
            annotations: spec.annotations.keys().cloned().collect(),
            taints: spec.taints.iter().map(name).collect(),
            address: spec.address.clone(),
        }
    }

    /// Reads the annotation `staffetta.dev/described` of a node. Returns an empty value if it is missing or cannot be decoded.
    pub(super) fn read(node: &Node) -> Self {
        let text = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Returns the annotation `staffetta.dev/described` to write to the Node object: its key, and this value in JSON.
    pub(super) fn written(&self) -> (String, String) {
        (ANNOTATION.to_owned(), serde_json::json!(self).to_string())
    }

    /// Returns `true` if this program wrote a taint with the key and effect of `taint`.
    pub(super) fn has_taint(&self, taint: &Taint) -> bool {
        self.taints.contains(&name(taint))
    }
}

/// Returns the key and the effect of a taint, as `KEY:EFFECT`.
fn name(taint: &Taint) -> String {
    format!("{}:{}", taint.key, taint.effect)
}
