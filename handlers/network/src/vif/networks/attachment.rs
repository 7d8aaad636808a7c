//! The custom resource `NetworkAttachmentDefinition` of `k8s.cni.cncf.io/v1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use staffetta_driver::SubnetId;

/// The key of Kuryr's annotation on a `NetworkAttachmentDefinition`. Its value is the definition of
/// the network in JSON.
const KURYR_CONFIG: &str = "openstack.org/kuryr-config";

/// A network to which pods can be attached: a custom resource of the Kubernetes Network Plumbing
/// Working Group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetworkAttachmentDefinition {
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The definition of the network.
    #[serde(default)]
    pub spec: NetworkAttachmentSpec,
}

/// The definition of a network: the `spec` of a [`NetworkAttachmentDefinition`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetworkAttachmentSpec {
    /// The configuration of a CNI plug-in, in JSON; `None` if the object has none.
    pub config: Option<String>,
}

impl Resource for NetworkAttachmentDefinition {
    const API_VERSION: &'static str = "k8s.cni.cncf.io/v1";
    const GROUP: &'static str = "k8s.cni.cncf.io";
    const KIND: &'static str = "NetworkAttachmentDefinition";
    const VERSION: &'static str = "v1";
    const URL_PATH_SEGMENT: &'static str = "network-attachment-definitions";
    type Scope = NamespaceResourceScope;
}

impl Metadata for NetworkAttachmentDefinition {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The part of a network's definition that this program uses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Attachment {
    /// The subnet of the network.
    pub(super) subnet_id: SubnetId,
    /// The VIF driver that the network requires; `None` if any driver is allowed.
    pub(super) driver_type: Option<String>,
}

impl Attachment {
    /// Parses the definition in the annotation `openstack.org/kuryr-config` or, if there is no
    /// annotation, in `spec.config`. Returns a description of the problem if the definition is
    /// missing or malformed.
    pub(super) fn of(network: &NetworkAttachmentDefinition) -> Result<Self, String> {
        let annotation = network.annotations().get(KURYR_CONFIG).map(|text| (KURYR_CONFIG, text));
        let config = network.spec.config.as_ref().map(|text| ("spec.config", text));
        let Some((place, text)) = annotation.or(config) else {
            return Err(format!("it has neither the annotation {KURYR_CONFIG} nor spec.config"));
        };
        serde_json::from_str(text).map_err(|error| format!("{place}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(metadata: &serde_json::Value, spec: &serde_json::Value) -> Result<Attachment, String> {
        let network = json!({ "metadata": metadata, "spec": spec });
        Attachment::of(&serde_json::from_value(network).unwrap())
    }

    #[test]
    fn the_annotation_or_else_the_configuration_names_the_subnet() {
        let config = json!({ "config": r#"{"cniVersion":"0.3.1","type":"kuryr-cni","subnetId":"s2"}"# });
        let annotations =
            json!({ "annotations": { KURYR_CONFIG: r#"{"subnetId":"s1","driverType":"nested-vlan"}"# } });
        let from_annotation = Attachment { subnet_id: "s1".into(), driver_type: Some("nested-vlan".into()) };
        assert_eq!(read(&annotations, &config), Ok(from_annotation));
        assert_eq!(read(&json!({}), &config), Ok(Attachment { subnet_id: "s2".into(), driver_type: None }));
        assert!(read(&json!({}), &json!({})).unwrap_err().contains("neither"));
        assert!(read(&json!({}), &json!({ "config": "{}" })).unwrap_err().contains("subnetId"));
    }
}
