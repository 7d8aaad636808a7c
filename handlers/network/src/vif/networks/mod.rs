//! Additional networks of pods, as the Kubernetes Network Plumbing Working Group defines them: the
//! annotation `k8s.v1.cni.cncf.io/networks` of a pod names `NetworkAttachmentDefinition`s, each of
//! which names a subnet.

mod attachment;
mod request;

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use staffetta_driver::SubnetId;
use staffetta_handler::{Event, Index};

use self::attachment::Attachment;
use self::request::{NetworkRequest, parse};

pub use self::attachment::NetworkAttachmentDefinition;
pub use self::request::NetworksError;

/// The key of the annotation in which a pod requests additional networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

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

/// An additional network of a pod, and its interface in the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdditionalNetwork {
    /// The name of the interface in the pod.
    pub(super) interface: String,
    /// The subnet of the interface's address.
    pub(super) subnet: SubnetId,
    /// The VIF driver that the network requires; `None` if any driver is allowed.
    pub(super) driver: Option<String>,
}

/// Index of the existing `NetworkAttachmentDefinition`s by namespace and name. An entry contains
/// the parsed definition, or a description of the problem if the definition is invalid.
#[derive(Default)]
pub struct Networks(DashMap<(String, String), Result<Attachment, String>>);

impl Networks {
    /// Looks up a requested network. Returns an error if the network does not exist or is invalid.
    fn find(&self, request: NetworkRequest) -> Result<AdditionalNetwork, NetworksError> {
        let NetworkRequest { namespace, name, interface } = request;
        let full = format!("{namespace}/{name}");
        match self.0.get(&(namespace, name)).map(|attachment| attachment.clone()) {
            None => Err(NetworksError::Unknown(full)),
            Some(Err(problem)) => Err(NetworksError::Invalid { name: full, problem }),
            Some(Ok(Attachment { subnet_id, driver_type })) => {
                Ok(AdditionalNetwork { interface, subnet: subnet_id, driver: driver_type })
            }
        }
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
