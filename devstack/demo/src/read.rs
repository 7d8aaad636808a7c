//! A snapshot of the API on which the checks run.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

/// The objects that the judge looks at.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    pub(crate) deployments: Vec<Deployment>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) services: Vec<Service>,
    pub(crate) slices: Vec<EndpointSlice>,
}

impl Objects {
    /// Lists them.
    pub(crate) async fn read(client: &Client) -> kube::Result<Self> {
        Ok(Self {
            deployments: list(client).await?,
            pods: list(client).await?,
            services: list(client).await?,
            slices: list(client).await?,
        })
    }
}

async fn list<K>(client: &Client) -> kube::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Ok(Api::all(client.clone()).list(&ListParams::default()).await?.items)
}
