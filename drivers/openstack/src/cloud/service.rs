//! The client of one service of a cloud.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::{Method, Url};
use serde::Deserialize;
use staffetta_driver::ProjectId;

use super::{ApiCall, CloudClient, ServiceState};
use crate::error::{OpenStackError, Result, StepName};
use crate::http::{service_root, url_below};
use crate::identity::Token;
use crate::projects::Projects;
use crate::service_kind::ServiceKind;

/// The time for which the extensions and the API version of a service are cached. Only an upgrade of the cloud changes them.
pub(super) const TTL: Duration = Duration::from_secs(600);

/// The client of one service of a cloud: Neutron or Octavia. In its methods, `step` names the operation in errors, as an imperative, and
/// `path` is the part of the URL below the API version, such as `ports/p1`.
///
/// ```no_run
/// # async fn example(cloud: staffetta_openstack::Cloud) -> Result<(), staffetta_openstack::OpenStackError> {
/// #[derive(serde::Deserialize)]
/// struct Port {
///     id: String,
/// }
///
/// let network = cloud.network();
/// let body = serde_json::json!({ "port": { "network_id": "n1" } });
/// let port: Port = network.post("create a port", "ports").json(&body).json_member("port").await?;
/// let down = network.get("list the ports", "ports").query("status", "DOWN").list::<Port>("ports").await?;
/// network.delete("delete a port", format!("ports/{}", port.id)).done().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Service {
    /// The client of the cloud, which the services share.
    pub(super) cloud: Arc<CloudClient>,
    /// The projects in which resources may belong to this Kubernetes cluster.
    pub(super) projects: Projects,
    /// The service: Neutron or Octavia.
    pub(super) kind: ServiceKind,
}

impl Service {
    /// Returns `true` if `project` is one of the projects of the configuration, in which resources may belong to this Kubernetes cluster.
    pub(crate) fn owns(&self, project: &ProjectId) -> bool {
        self.projects.contains(project)
    }

    /// Returns the maximum number of calls in flight while the service does not throttle them.
    pub(crate) fn max_concurrency(&self) -> usize {
        self.cloud.session.access.max_concurrency
    }

    /// Returns the maximum length of a request body in bytes. It is 112 KiB at first, and half the length of the shortest body that the
    /// service has refused as too large. Requests that can be divided are kept below it; others are sent all the same.
    pub(crate) fn body_limit(&self) -> usize {
        self.state().body_limit.load(Ordering::Relaxed)
    }

    /// Creates a call that reads (`GET`).
    pub fn get(&self, step: StepName, path: impl Into<String>) -> ApiCall<'_> {
        ApiCall::new(self, step, Method::GET, path.into())
    }

    /// Creates a call that creates a resource (`POST`). It is not idempotent.
    pub fn post(&self, step: StepName, path: impl Into<String>) -> ApiCall<'_> {
        ApiCall::new(self, step, Method::POST, path.into())
    }

    /// Creates a call that updates a resource (`PUT`). It counts as idempotent.
    pub fn put(&self, step: StepName, path: impl Into<String>) -> ApiCall<'_> {
        ApiCall::new(self, step, Method::PUT, path.into())
    }

    /// Creates a call that deletes a resource (`DELETE`). It counts as idempotent.
    pub fn delete(&self, step: StepName, path: impl Into<String>) -> ApiCall<'_> {
        ApiCall::new(self, step, Method::DELETE, path.into())
    }

    /// Returns the limiter and the cached capabilities of this service.
    pub(super) fn state(&self) -> &ServiceState {
        &self.cloud.services[self.kind as usize]
    }

    /// Returns the URL of a path. It is below the endpoint in the options or, without one, the endpoint in the catalogue of `token`. Fails
    /// if neither contains a usable endpoint.
    pub(super) fn url(&self, token: &Token, step: StepName, path: &str) -> Result<Url> {
        let base = self.endpoint(token, step)?;
        let (version, prefix) = self.kind.path();
        Ok(url_below(&base, version, &format!("{prefix}{path}")))
    }

    /// Returns the URL of the list of the API versions of the service. Fails if neither the options nor the catalogue of `token` contains a
    /// usable endpoint.
    pub(super) fn root(&self, token: &Token, step: StepName) -> Result<Url> {
        Ok(service_root(&self.endpoint(token, step)?))
    }

    /// Returns the endpoint of the service: the one in the options or, without it, the one in the catalogue of `token`. Fails if both lack
    /// it.
    fn endpoint(&self, token: &Token, step: StepName) -> Result<Url> {
        let access = &self.cloud.session.access;
        let given = match self.kind {
            ServiceKind::Network => &access.urls.network,
            ServiceKind::LoadBalancer => &access.urls.load_balancer,
        };
        if let Some(url) = given {
            return Ok(url.clone());
        }
        let missing = |text| OpenStackError::unavailable(step, text);
        token.catalogue.url(self.kind.as_str(), access.interface, access.region.as_deref()).map_err(missing)
    }

    /// Returns `true` if Neutron has the API extension with this alias. The list of extensions is cached for ten minutes.
    pub async fn has_extension(&self, alias: &str) -> Result<bool> {
        let list = || async {
            let call = self.get("list the extensions", "extensions");
            let extensions: Vec<ExtensionBody> = call.json_member("extensions").await?;
            let aliases: HashSet<_> = extensions.into_iter().map(|extension| extension.alias).collect();
            Ok::<_, OpenStackError>(Arc::new(aliases))
        };
        Ok(self.state().extensions.get(&(), list).await?.contains(alias))
    }

    /// Returns the newest API version that the service lists, as major and minor number such as `(2, 30)`. It is cached for ten minutes.
    pub async fn version(&self) -> Result<(u32, u32)> {
        const STEP: &str = "read the versions of a service";
        let read = || async {
            let response = self.get(STEP, "").send_to_root().await?;
            let list: VersionList = response.json(STEP, false)?;
            newest(&list).ok_or_else(|| response.unreadable(STEP, false))
        };
        self.state().version.get(&(), read).await
    }
}

/// An API extension of Neutron, in the list of extensions.
#[derive(Deserialize)]
struct ExtensionBody {
    alias: String,
}

/// The response of a service at its root URL: the list of its API versions.
#[derive(Deserialize)]
struct VersionList {
    versions: Vec<VersionBody>,
}

/// An API version that a service lists: `v2.30`.
#[derive(Deserialize)]
struct VersionBody {
    id: String,
}

/// Returns the newest version in the list, as major and minor number, or `None` if no version has both.
fn newest(list: &VersionList) -> Option<(u32, u32)> {
    let number = |id: &str| {
        let (major, minor) = id.strip_prefix('v')?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    list.versions.iter().filter_map(|version| number(&version.id)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_greatest_number() {
        let versions = ["v2.0", "v2.9", "v2.30", "beta"].map(|id| VersionBody { id: id.to_owned() });
        assert_eq!(newest(&VersionList { versions: versions.into() }), Some((2, 30)));
        assert_eq!(newest(&VersionList { versions: Vec::new() }), None);
    }
}
