//! The options that give access to a cloud: login, endpoints and certificates.

mod clouds;
mod error;
mod merge;
mod options;
mod resolve;
mod secret;

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;
use serde::Serialize;

pub use self::clouds::Environment;
pub use self::error::{AccessError, AccessProblem};
pub use self::options::NeutronOptions;
pub use self::secret::Secret;

/// The login, endpoints and certificates of a cloud, and the limits of its calls.
#[derive(Clone, Debug)]
pub struct Access {
    /// The login method and its credentials.
    pub auth: Auth,
    /// The region of the endpoints. `None`: the first suitable endpoint in the catalogue, in any region.
    pub region: Option<String>,
    /// The interface of the endpoints that are used.
    pub interface: EndpointInterface,
    /// The endpoints that replace those of the catalogue.
    pub urls: EndpointOverrides,
    /// The certificates of TLS connections.
    pub tls: TlsOptions,
    /// The timeout of a call that creates at most one resource. It is extended by 200 ms for each resource that a bulk call creates.
    pub timeout: Duration,
    /// The maximum number of calls in flight, for each service.
    pub max_concurrency: usize,
}

/// The login method of a cloud, with its credentials.
#[derive(Clone, Debug)]
pub enum Auth {
    /// No login, because the services need no token.
    None,
    /// A login by the password of a user, for one project.
    Password {
        /// The URL of Keystone, with or without the version at its end.
        url: Url,
        /// The user.
        user: DomainResource,
        /// The user's password.
        password: Secret,
        /// The project of the token.
        scope: DomainResource,
    },
    /// A login by an application credential, which implies a user and a project.
    ApplicationCredential {
        /// The URL of Keystone, with or without the version at its end.
        url: Url,
        /// The application credential.
        credential: Credential,
        /// The secret of the application credential.
        secret: Secret,
    },
}

/// The id or the name of a Keystone resource, serialized as in Keystone's API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IdOrName {
    /// The id of the resource, unique in the cloud.
    Id(String),
    /// The name, which is unique within a domain or, for an application credential, within a user.
    Name(String),
}

/// A user or a project of Keystone, which may have a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DomainResource {
    /// The id or the name of the user or project.
    #[serde(flatten)]
    pub key: IdOrName,
    /// The domain of a user or project that is given by its name; `None` if `key` is an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<IdOrName>,
}

/// An application credential of Keystone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Credential {
    /// The id or the name of the application credential.
    #[serde(flatten)]
    pub key: IdOrName,
    /// The user who owns an application credential that is given by its name; `None` if `key` is an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<DomainResource>,
}

/// The interface of an endpoint, by which a catalogue distinguishes the URLs of one service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointInterface {
    /// The endpoints that tenants reach, usually from anywhere.
    #[default]
    Public,
    /// The endpoints within the cloud's own network.
    Internal,
    /// The endpoints for administrators.
    Admin,
}

impl EndpointInterface {
    /// Returns the name of the interface in a catalogue.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }

    /// Returns the interface with this name, or `None` if there is none. Names with the suffix `URL`, such as `publicURL` in older files,
    /// are accepted too.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.strip_suffix("URL").unwrap_or(name);
        [Self::Public, Self::Internal, Self::Admin].into_iter().find(|interface| interface.as_str() == name)
    }
}

/// The endpoints that replace those of the Keystone catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointOverrides {
    /// The URL of Neutron; `None` for the endpoint of the catalogue.
    pub network: Option<Url>,
    /// The URL of Octavia; `None` for the endpoint of the catalogue.
    pub load_balancer: Option<Url>,
}

/// The trusted CA certificates and the client certificate of TLS connections to the services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `true` if the certificates of servers are not verified.
    pub insecure: bool,
    /// A PEM file with the trusted CA certificates. `None`: the CA certificates of the system.
    pub ca_file: Option<PathBuf>,
    /// A PEM file with the client certificate and its chain. `None`: no client certificate.
    pub certificate_file: Option<PathBuf>,
    /// A PEM file with the private key of the client certificate. `None`: the key is in the file of the certificate.
    pub key_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
