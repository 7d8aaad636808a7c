//! The networks that exist, and what a pod gets of them.

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use staffetta_handler::{Event, Index, Message};

use super::asked::{Asked, NetworksError, asked};
use super::attachment::{Attachment, NetworkAttachmentDefinition};
use super::{Further, NETWORKS};

/// The networks that exist: of each the subnet that it names, or what is wrong with it.
#[derive(Default)]
pub struct Networks(DashMap<(String, String), Result<Attachment, String>>);

impl Networks {
    /// The further interfaces for which the pod asks, in its order.
    pub(in crate::vif) fn of(&self, pod: &Pod) -> Result<Vec<Further>, NetworksError> {
        let Some(text) = text(pod) else { return Ok(Vec::new()) };
        let asked = asked(text, &pod.namespace().unwrap_or_default())?;
        asked.into_iter().map(|asked| self.further(asked)).collect()
    }

    fn further(&self, asked: Asked) -> Result<Further, NetworksError> {
        let Asked { namespace, name, interface } = asked;
        let full = format!("{namespace}/{name}");
        match self.0.get(&(namespace, name)).map(|known| known.clone()) {
            None => Err(NetworksError::Unknown(full)),
            Some(Err(wrong)) => Err(NetworksError::Undefined { name: full, wrong }),
            Some(Ok(Attachment { subnet_id, driver_type })) => {
                Ok(Further { interface, subnet: subnet_id, driver: driver_type })
            }
        }
    }
}

/// Whether the pod asks for further networks.
pub(in crate::vif) fn asks(pod: &Pod) -> bool {
    text(pod).is_some()
}

fn text(pod: &Pod) -> Option<&str> {
    pod.annotations().get(NETWORKS).map(|text| text.trim()).filter(|text| !text.is_empty() && *text != "[]")
}

impl Index<NetworkAttachmentDefinition> for Networks {
    fn apply(&self, event: &Event<NetworkAttachmentDefinition>) {
        let subject = event.subject();
        let key = (subject.namespace.unwrap_or_default().to_owned(), subject.name.to_owned());
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
