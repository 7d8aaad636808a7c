//! Additional networks of pods, as the Kubernetes Network Plumbing Working Group defines them: the
//! annotation `k8s.v1.cni.cncf.io/networks` names `NetworkAttachmentDefinition`s, and each of these
//! names a subnet.

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

/// The annotation in which a pod requests additional networks.
pub const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// A driver of the option `multi_vif_driver`: decides if pods may have additional networks.
///
/// ```
/// use staffetta_network::vif::networks::{AdditionalNetworks, MultiVif};
///
/// /// Gives every pod one network.
/// struct Single;
///
/// impl MultiVif for Single {
///     fn additional_networks(&self) -> Option<AdditionalNetworks> {
///         None
///     }
/// }
/// ```
pub trait MultiVif: Send + Sync {
    /// The additional networks that pods may request; none if a pod has one network only.
    fn additional_networks(&self) -> Option<AdditionalNetworks>;
}

/// The driver `npwg_multiple_interfaces`: pods may have additional networks.
#[derive(Clone)]
pub struct AdditionalNetworks {
    /// An index of all `NetworkAttachmentDefinition`s.
    pub networks: Arc<Networks>,
    /// The VIF driver of nodes that have none of their own. A network of another VIF driver is
    /// refused.
    pub driver: String,
}

impl MultiVif for AdditionalNetworks {
    fn additional_networks(&self) -> Option<AdditionalNetworks> {
        Some(self.clone())
    }
}

/// The driver `noop`: a pod has one network.
pub struct OneNetwork;

impl MultiVif for OneNetwork {
    fn additional_networks(&self) -> Option<AdditionalNetworks> {
        None
    }
}

/// An additional interface of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdditionalNetwork {
    /// The name of the interface in the pod.
    pub(super) interface: String,
    /// The subnet of its address.
    pub(super) subnet: SubnetId,
    /// The VIF driver that the network requires; none for any.
    pub(super) driver: Option<String>,
}

/// Index of the existing networks by namespace and name: their subnet, or the reason that they are
/// invalid.
#[derive(Default)]
pub struct Networks(DashMap<(String, String), Result<Attachment, String>>);

impl Networks {
    /// The additional networks that the pod requests, in its order.
    pub(super) fn of(&self, pod: &Pod) -> Result<Vec<AdditionalNetwork>, NetworksError> {
        let Some(text) = annotation(pod) else { return Ok(Vec::new()) };
        let requests = parse(text, &pod.namespace().unwrap_or_default())?;
        requests.into_iter().map(|request| self.find(request)).collect()
    }

    /// Looks up a requested network.
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

/// The value of the pod's annotation, if it names a network.
fn annotation(pod: &Pod) -> Option<&str> {
    let text = pod.annotations().get(NETWORKS)?.trim();
    Some(text).filter(|text| !text.is_empty() && *text != "[]")
}
