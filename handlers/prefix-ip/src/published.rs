//! Reads the addresses in the annotations of all pods from the API server.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use staffetta_handler::{HandlerError, each_living_pod};

use crate::address::{PRIVATE_IPV4_ADDRESS, parse};

/// Reads which addresses the annotations of pods contain. The table of nodes needs that after a change of the leader: the last write of the
/// process that led before may take effect after this one has listed the pods, and its watch may show that much later.
#[async_trait]
pub trait PublishedAddresses: Send + Sync {
    /// Returns the addresses in the annotations of all pods that may still have a network. They are read from the API server, so that each
    /// write is seen that took effect before the call.
    async fn published_addresses(&self) -> Result<BTreeSet<Ipv4Addr>, HandlerError>;
}

/// Reads the addresses in the annotations of the pods at an API server.
pub struct AddressAnnotations(Api<Pod>);

impl AddressAnnotations {
    /// Creates a reader that reads the pods of all namespaces through `client`.
    pub fn new(client: Client) -> Self {
        Self(Api::all(client))
    }
}

#[async_trait]
impl PublishedAddresses for AddressAnnotations {
    async fn published_addresses(&self) -> Result<BTreeSet<Ipv4Addr>, HandlerError> {
        let mut published = BTreeSet::new();
        each_living_pod(&self.0, |pod| {
            published.extend(pod.annotations().get(PRIVATE_IPV4_ADDRESS).and_then(|text| parse(text)));
        })
        .await?;
        Ok(published)
    }
}
