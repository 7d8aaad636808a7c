//! The section `[neutron]`.

use std::collections::HashMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::clouds::{Environment, read_cloud};
use super::resolve::{Locations, resolve};
use super::{Access, AccessError, Secret};

/// The access to OpenStack: Keystone, and through its catalogue Neutron and Octavia.
///
/// Either `cloud` or `$OS_CLOUD` selects a cloud of clouds.yaml, or `auth_url` and its companions describe the login, with the names
/// of kuryr.conf. Other options override those of clouds.yaml.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NeutronOptions {
    /// The cloud of clouds.yaml. The file is `$OS_CLIENT_CONFIG_FILE`, or the first
    /// `clouds.yaml` in the working directory, in `~/.config/openstack` and in `/etc/openstack`; passwords may stand in a
    /// `secure.yaml` beside it. Without it: `$OS_CLOUD`, if `auth_url` is not set either.
    #[schemars(length(min = 1), example = &"prod")]
    pub cloud: Option<String>,
    /// The login method: `password`, `v3applicationcredential`, or `none` if the services need no token and
    /// `endpoint_override` is set.
    #[schemars(length(min = 1), example = &"password")]
    pub auth_type: Option<String>,
    /// The URL of Keystone, with or without the version at its end.
    #[schemars(length(min = 1), example = "https://keystone.example.com/v3")]
    pub auth_url: Option<String>,
    /// The name of the user.
    #[schemars(length(min = 1), example = &"kuryr")]
    pub username: Option<String>,
    /// The id of the user, in place of the name and the domain.
    #[schemars(length(min = 1))]
    pub user_id: Option<String>,
    /// The password. Better in a file, or in the environment as `STAFFETTA_NEUTRON__PASSWORD`.
    #[schemars(with = "Option<String>", length(min = 1), example = &"secret", extend("x-secret" = true))]
    pub password: Option<Secret>,
    /// The file with the password in its first line. It is read at each login.
    #[schemars(length(min = 1), example = "/etc/staffetta/password")]
    pub password_file: Option<PathBuf>,
    /// The name of the project of the login.
    #[schemars(length(min = 1), example = &"k8s")]
    pub project_name: Option<String>,
    /// The id of the project, in place of the name and the domain.
    #[schemars(length(min = 1))]
    pub project_id: Option<String>,
    /// The domain of the user. Without it and the id: the domain with the id `default`.
    #[schemars(length(min = 1), example = &"Default")]
    pub user_domain_name: Option<String>,
    /// The id of the domain of the user.
    #[schemars(length(min = 1))]
    pub user_domain_id: Option<String>,
    /// The domain of the project. Without it and the id: the domain with the id `default`.
    #[schemars(length(min = 1), example = &"Default")]
    pub project_domain_name: Option<String>,
    /// The id of the domain of the project.
    #[schemars(length(min = 1))]
    pub project_domain_id: Option<String>,
    /// The id of an application credential.
    #[schemars(length(min = 1))]
    pub application_credential_id: Option<String>,
    /// The name of an application credential of `username`, in place of the id.
    #[schemars(length(min = 1))]
    pub application_credential_name: Option<String>,
    /// The secret of the application credential.
    #[schemars(with = "Option<String>", length(min = 1), example = &"secret", extend("x-secret" = true))]
    pub application_credential_secret: Option<Secret>,
    /// The file with the secret of the application credential in its first line.
    #[schemars(length(min = 1), example = "/etc/staffetta/secret")]
    pub application_credential_secret_file: Option<PathBuf>,
    /// The region. Without it: the first one of each service in the catalogue.
    #[schemars(length(min = 1), example = &"RegionOne")]
    pub region_name: Option<String>,
    /// The interface of endpoints: `public`, `internal` or `admin`. Without it: `public`.
    #[schemars(length(min = 1), example = &"internal")]
    pub endpoint_type: Option<String>,
    /// The URL of Neutron, instead of that in the catalogue.
    #[schemars(length(min = 1), example = "http://192.0.2.1:9696")]
    pub endpoint_override: Option<String>,
    /// The URL of Octavia, instead of that in the catalogue.
    #[schemars(length(min = 1), example = "http://192.0.2.1:9876")]
    pub load_balancer_endpoint_override: Option<String>,
    /// A PEM file with the trusted CA certificates. Without it: the CAs of the system.
    #[schemars(length(min = 1), example = "/etc/staffetta/ca.pem")]
    pub cafile: Option<PathBuf>,
    /// A PEM file with the client certificate.
    #[schemars(length(min = 1))]
    pub certfile: Option<PathBuf>,
    /// A PEM file with the private key of the client certificate. Without it, the key is in `certfile`.
    #[schemars(length(min = 1))]
    pub keyfile: Option<PathBuf>,
    /// Disables the verification of certificates: the password can then be read on the network. A warning is logged at start.
    pub insecure: Option<bool>,
    /// The timeout of a call that creates one resource, in seconds; a call that creates several has 200 ms more for each.
    /// Without it: 30.
    #[schemars(range(min = 1, max = 3600))]
    pub timeout: Option<u64>,
    /// The maximum number of calls in flight, for Neutron and Octavia each. After a response with status 429 or 503 there are
    /// fewer, down to one, until the service stops throttling.
    #[serde(default = "max_concurrency")]
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrency: usize,
}

fn max_concurrency() -> usize {
    16
}

impl Default for NeutronOptions {
    fn default() -> Self {
        serde_json::from_value(json!({})).expect("each option has a default")
    }
}

impl NeutronOptions {
    /// Converts these options to an [`Access`]. If they name a cloud, or else `$OS_CLOUD` does and neither `auth_url` nor
    /// `endpoint_override` is set, they override the entry of that cloud in clouds.yaml. Fails if options are missing, invalid or
    /// contradictory.
    pub fn access(&self, environment: &Environment) -> Result<Access, AccessError> {
        let named = self.auth_url.is_some() || self.endpoint_override.is_some();
        let cloud = self.cloud.as_ref().or(environment.cloud.as_ref().filter(|_| !named));
        let access = match cloud {
            Some(_) if self.auth_url.is_some() => {
                return Err(AccessError::new(
                    "neutron.auth_url",
                    "only one of this and neutron.cloud may be given",
                ));
            }
            Some(cloud) => {
                let (cloud_options, mut locations) = read_cloud(cloud, environment)?;
                resolve(&self.merged_over(cloud_options, &mut locations), &locations)?
            }
            None if named || self.auth_type.as_deref() == Some("none") => {
                resolve(self, &Locations { prefix: Locations::in_section(""), given: HashMap::new() })?
            }
            None => {
                return Err(AccessError::new(
                    "neutron.auth_url",
                    "is missing, and neither neutron.cloud nor $OS_CLOUD names a cloud of clouds.yaml",
                ));
            }
        };
        self.reject_unused(&access.auth, cloud.is_some())?;
        Ok(access)
    }
}
