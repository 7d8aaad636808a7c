//! Additional networks of pods, as the Kubernetes Network Plumbing Working Group defines them: the
//! annotation `k8s.v1.cni.cncf.io/networks` of a pod names `NetworkAttachmentDefinition`s, each of
//! which names a subnet.

mod request;

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{Metadata, NamespaceResourceScope, Resource};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use staffetta_driver::SubnetId;
use staffetta_handler::{Event, Index};

use self::request::{NetworkRequest, parse};

pub use self::request::NetworksError;

/// The key of the annotation in which a pod requests additional networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// The key of Kuryr's annotation on a `NetworkAttachmentDefinition`. Its value is the definition of
/// the network in JSON.
const KURYR_CONFIG: &str = "openstack.org/kuryr-config";

/// A driver of the option `multi_vif_driver`, which decides if pods may have additional networks.
///
/// ```
/// use staffetta_network::vif::networks::{AdditionalNetworks, MultiVifDriver};
///
/// /// Gives every pod one network.
/// struct Single;
///
/// impl MultiVifDriver for Single {
///     fn additional_networks(&self) -> Option<AdditionalNetworks> {
///         None
///     }
/// }
/// ```
pub trait MultiVifDriver: Send + Sync {
    /// Returns the additional networks that pods may request, or `None` if every pod has only one
    /// network.
    fn additional_networks(&self) -> Option<AdditionalNetworks>;
}

/// The driver `npwg_multiple_interfaces` of the option `multi_vif_driver`: pods may have additional
/// networks.
#[derive(Clone)]
pub struct AdditionalNetworks {
    /// An index of all `NetworkAttachmentDefinition`s.
    pub networks: Arc<Networks>,
    /// The namespaces whose networks every pod may use, if a pod may use only these and those of its
    /// own namespace; `None` if every pod may use all networks.
    pub shared_namespaces: Option<Vec<String>>,
    /// The name of the VIF driver of nodes that do not name a driver themselves. An additional
    /// network that requires another VIF driver than the pod's node has is refused.
    pub driver: String,
}

impl AdditionalNetworks {
    /// Returns the additional networks that the pod requests, in the order of its annotation.
    /// Returns an error if the annotation is malformed, or if a network does not exist, is invalid,
    /// or belongs to a namespace whose networks the pod may not use.
    pub(super) fn of(&self, pod: &Pod) -> Result<Vec<AdditionalNetwork>, NetworksError> {
        let Some(text) = annotation(pod) else { return Ok(Vec::new()) };
        let own = pod.namespace().unwrap_or_default();
        let is_open = |other: &String| {
            *other == own || self.shared_namespaces.as_ref().is_none_or(|shared| shared.contains(other))
        };
        let find = |request: NetworkRequest| {
            if !is_open(&request.namespace) {
                return Err(NetworksError::Isolated(format!("{}/{}", request.namespace, request.name)));
            }
            self.networks.find(request)
        };
        parse(text, &own)?.into_iter().map(find).collect()
    }
}

impl MultiVifDriver for AdditionalNetworks {
    fn additional_networks(&self) -> Option<AdditionalNetworks> {
        Some(self.clone())
    }
}

/// The driver `noop` of the option `multi_vif_driver`: every pod has only one network.
pub struct OneNetwork;

impl MultiVifDriver for OneNetwork {
    fn additional_networks(&self) -> Option<AdditionalNetworks> {
        None
    }
}

/// A network to which pods can be attached: a custom resource of the Kubernetes Network Plumbing
/// Working Group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NetworkAttachmentDefinition {
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The definition of the network: the configuration of a CNI plug-in.
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
    /// The subnet of the additional network.
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

/// An additional network of a pod, and its interface in the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdditionalNetwork {
    /// The name of the interface in the pod.
    pub(super) interface: String,
    /// The definition of the network: its subnet and the VIF driver that it requires.
    pub(super) attachment: Attachment,
}

/// Index of the existing `NetworkAttachmentDefinition`s by namespace and name. An entry contains
/// the parsed definition, or a description of the problem if the definition is invalid.
#[derive(Default)]
pub struct Networks(DashMap<(String, String), Result<Attachment, String>>);

impl Networks {
    /// Looks up a requested network. Returns an error if the network does not exist or is invalid.
    fn find(&self, request: NetworkRequest) -> Result<AdditionalNetwork, NetworksError> {
        let NetworkRequest { namespace, name, interface } = request;
        let full = format!("NetworkAttachmentDefinition {namespace}/{name}");
        let problem = match self.0.get(&(namespace, name)).map(|attachment| attachment.clone()) {
            Some(Ok(attachment)) => return Ok(AdditionalNetwork { interface, attachment }),
            Some(Err(problem)) => format!("the {full} does not specify a subnet: {problem}"),
            None => format!("there is no {full}"),
        };
        Err(NetworksError::Unavailable(problem))
    }
}

impl Index<NetworkAttachmentDefinition> for Networks {
    fn apply(&self, event: &Event<NetworkAttachmentDefinition>) {
        let object_ref = event.object_ref();
        let key = (object_ref.namespace.unwrap_or_default().to_owned(), object_ref.name.to_owned());
        match event {
            Event::Added(network) | Event::Modified(network) => {
                self.0.insert(key, Attachment::of(network));
            }
            Event::Deleted(_) => {
                self.0.remove(&key);
            }
        }
    }
}

/// Returns `true` if the pod requests additional networks.
pub(super) fn requests_networks(pod: &Pod) -> bool {
    annotation(pod).is_some()
}

/// Returns the value of the pod's annotation [`NETWORKS`], or `None` if the annotation is missing or
/// names no network.
fn annotation(pod: &Pod) -> Option<&str> {
    let text = pod.annotations().get(NETWORKS)?.trim();
    Some(text).filter(|text| !text.is_empty() && *text != "[]")
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
