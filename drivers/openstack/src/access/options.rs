//! The section `[neutron]`.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clouds::{Environment, read_cloud};
use super::resolve::{Places, resolve};
use super::{Access, AccessError, Secret};

/// How OpenStack is reached: Keystone, and through its catalogue Neutron and Octavia.
///
/// As clouds.yaml says, for the cloud that `cloud` or `$OS_CLOUD` names; or by `auth_url` and what goes with it, under the names
/// of kuryr.conf. Whatever else is given here stands above what clouds.yaml says of the cloud.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NeutronOptions {
    /// The cloud of clouds.yaml by which everything is reached. The file is `$OS_CLIENT_CONFIG_FILE`, or the first
    /// `clouds.yaml` in the working directory, in `~/.config/openstack` and in `/etc/openstack`; passwords may stand in a
    /// `secure.yaml` beside it. Without it: `$OS_CLOUD`, if `auth_url` is not set either.
    #[schemars(length(min = 1), example = &"prod")]
    pub cloud: Option<String>,
    /// How Keystone knows us: `password`, `v3applicationcredential`, or `none` where the services ask for no token and
    /// `endpoint_override` says where they are.
    #[schemars(length(min = 1), example = &"password")]
    pub auth_type: Option<String>,
    /// Keystone, with or without the version at its end.
    #[schemars(length(min = 1), example = "https://keystone.example.com/v3")]
    pub auth_url: Option<String>,
    /// The user.
    #[schemars(length(min = 1), example = &"kuryr")]
    pub username: Option<String>,
    /// The id of the user, in place of the name and the domain.
    #[schemars(length(min = 1))]
    pub user_id: Option<String>,
    /// The password. Better in a file, or in the environment as `STAFFETTA_NEUTRON__PASSWORD`.
    #[schemars(length(min = 1), example = &"secret", extend("x-secret" = true))]
    pub password: Option<Secret>,
    /// The file that holds the password in its first line. It is read at each login.
    #[schemars(length(min = 1), example = "/etc/staffetta/password")]
    pub password_file: Option<PathBuf>,
    /// The project in which everything is done.
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
    #[schemars(length(min = 1), example = &"secret", extend("x-secret" = true))]
    pub application_credential_secret: Option<Secret>,
    /// The file that holds the secret of the application credential in its first line.
    #[schemars(length(min = 1), example = "/etc/staffetta/secret")]
    pub application_credential_secret_file: Option<PathBuf>,
    /// The region. Without it: the first that the catalogue names for a service.
    #[schemars(length(min = 1), example = &"RegionOne")]
    pub region_name: Option<String>,
    /// Which URL of a service is used: `public`, `internal` or `admin`. Without it: `public`.
    #[schemars(length(min = 1), example = &"internal")]
    pub endpoint_type: Option<String>,
    /// Where Neutron is, instead of what the catalogue says.
    #[schemars(length(min = 1), example = "http://192.0.2.1:9696")]
    pub endpoint_override: Option<String>,
    /// Where Octavia is, instead of what the catalogue says.
    #[schemars(length(min = 1), example = "http://192.0.2.1:9876")]
    pub load_balancer_endpoint_override: Option<String>,
    /// A PEM file with the only authorities whose certificates are believed. Without it: those of the system.
    #[schemars(length(min = 1), example = "/etc/staffetta/ca.pem")]
    pub cafile: Option<PathBuf>,
    /// A PEM file with the certificate by which we are known to the services.
    #[schemars(length(min = 1))]
    pub certfile: Option<PathBuf>,
    /// A PEM file with its key. Without it, the key is in `certfile`.
    #[schemars(length(min = 1))]
    pub keyfile: Option<PathBuf>,
    /// Believe any certificate: whoever stands in between can read the password. It is said loudly at start.
    pub insecure: Option<bool>,
    /// How many seconds a call may take that makes one thing; one that makes many at once has 200 ms more for each.
    /// Without it: 30.
    #[schemars(range(min = 1, max = 3600))]
    pub timeout: Option<u64>,
    /// How many calls may be in flight at a time, for Neutron and Octavia each. A service that says 429 or 503 is asked
    /// less, down to one at a time, until it is well again.
    #[schemars(range(min = 1, max = 1000))]
    pub max_concurrency: usize,
}

impl Default for NeutronOptions {
    fn default() -> Self {
        Self {
            cloud: None,
            auth_type: None,
            auth_url: None,
            username: None,
            user_id: None,
            password: None,
            password_file: None,
            project_name: None,
            project_id: None,
            user_domain_name: None,
            user_domain_id: None,
            project_domain_name: None,
            project_domain_id: None,
            application_credential_id: None,
            application_credential_name: None,
            application_credential_secret: None,
            application_credential_secret_file: None,
            region_name: None,
            endpoint_type: None,
            endpoint_override: None,
            load_balancer_endpoint_override: None,
            cafile: None,
            certfile: None,
            keyfile: None,
            insecure: None,
            timeout: None,
            max_concurrency: 16,
        }
    }
}

impl NeutronOptions {
    /// How the cloud is reached: as these options say, and clouds.yaml where they or the environment name a cloud.
    pub fn access(&self, environment: &Environment) -> Result<Access, AccessError> {
        let named = self.auth_url.is_some() || self.endpoint_override.is_some();
        let cloud = self.cloud.as_ref().or(environment.cloud.as_ref().filter(|_| !named));
        match cloud {
            Some(_) if self.auth_url.is_some() => {
                Err(AccessError::new("neutron.auth_url", "only one of this and neutron.cloud may be given"))
            }
            Some(cloud) => {
                let (said, mut places) = read_cloud(cloud, environment)?;
                let access = resolve(&self.above(said, &mut places), &places)?;
                self.all_used_by(&access.auth)?;
                Ok(access)
            }
            None if named || self.auth_type.as_deref() == Some("none") => resolve(self, &Places::section()),
            None => Err(AccessError::new(
                "neutron.auth_url",
                "is missing, and neither neutron.cloud nor $OS_CLOUD names a cloud of clouds.yaml",
            )),
        }
    }
}
