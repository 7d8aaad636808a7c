//! The properties of a cluster that handlers depend on: the API versions that it serves, and the cluster id.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use staffetta_handler::{Registry, Setup};

use crate::base::config::Configuration;
use crate::base::connect::api_versions;

/// The namespace whose UID identifies a cluster: every cluster has it, and it cannot be deleted.
const KUBE_SYSTEM: &str = "kube-system";

/// The properties of a cluster on which handlers depend.
#[derive(Clone)]
pub(crate) struct ClusterInfo {
    /// The API versions that the server serves; `None` if the server is not known and is assumed to serve all.
    api_versions: Option<HashSet<String>>,
    /// The cluster id, which marks every resource that is created outside the cluster.
    cluster_id: String,
}

impl ClusterInfo {
    /// Reads the properties of the cluster. The cluster id is `kubernetes.cluster_id` or, if that is not set, the UID of the namespace
    /// `kube-system` without hyphens: 32 hexadecimal digits.
    pub(crate) async fn read(configuration: &Configuration, client: &Client) -> Result<Self, kube::Error> {
        let api_versions = Some(api_versions(client).await?);
        let cluster_id = match &configuration.kubernetes.cluster_id {
            Some(cluster_id) => cluster_id.clone(),
            None => kube_system_uid(client).await?.replace('-', ""),
        };
        Ok(Self { api_versions, cluster_id })
    }

    /// Returns placeholders for a cluster that is not known: it serves all API versions. They suffice to create the handlers offline.
    pub(crate) fn unknown() -> Self {
        Self { api_versions: None, cluster_id: "unknown".to_owned() }
    }

    /// Returns the properties of a cluster that serves only these API versions.
    #[cfg(test)]
    pub(crate) fn serving(api_versions: &[&str]) -> Self {
        let served = api_versions.iter().map(|&version| version.to_owned()).collect();
        Self { api_versions: Some(served), ..Self::unknown() }
    }

    /// Returns `true` if the server serves that API version, or if it is not known which versions it serves.
    pub(crate) fn serves(&self, api_version: &str) -> bool {
        self.api_versions.as_ref().is_none_or(|served| served.contains(api_version))
    }

    /// Returns the cluster id, which marks every resource that is created outside the cluster.
    pub(crate) fn id(&self) -> &str {
        &self.cluster_id
    }

    /// Returns the same properties with `cluster_id`, the id of another cluster, in place of its own; `None` if the two ids are equal.
    pub(crate) fn of_other(self, cluster_id: &str) -> Option<Self> {
        (self.cluster_id != cluster_id).then(|| Self { cluster_id: cluster_id.to_owned(), ..self })
    }

    /// Returns the setup with which handlers and drivers are created: the configuration with this cluster id, the client and the served API
    /// versions.
    pub(crate) fn setup(
        self,
        registry: &Arc<Registry>,
        configuration: &Configuration,
        client: Client,
    ) -> Setup {
        let mut value = configuration.value.clone();
        value["kubernetes"]["cluster_id"] = self.cluster_id.into();
        registry.setup(client, value, self.api_versions)
    }
}

async fn kube_system_uid(client: &Client) -> Result<String, kube::Error> {
    let namespace = Api::<Namespace>::all(client.clone()).get_metadata(KUBE_SYSTEM).await?;
    Ok(namespace.metadata.uid.expect("the API server gives every object a UID"))
}
