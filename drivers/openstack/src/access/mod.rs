//! The access to a cloud: login, endpoints and certificates.

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

/// The access to a cloud.
#[derive(Clone, Debug)]
pub struct Access {
    /// The login.
    pub auth: Auth,
    /// The region. Without it: the first one in the catalogue.
    pub region: Option<String>,
    /// The interface of endpoints.
    pub interface: EndpointInterface,
    /// Endpoints that override the catalogue.
    pub urls: EndpointOverrides,
    /// The certificates.
    pub tls: TlsOptions,
    /// The timeout of a call that creates at most one resource.
    pub timeout: Duration,
    /// The maximum number of calls of one service in flight.
    pub max_concurrency: usize,
}

/// The login of a cloud.
#[derive(Clone, Debug)]
pub enum Auth {
    /// No login: the services need no token.
    None,
    /// The password of a user of a project.
    Password {
        /// Keystone, with or without the version at its end.
        url: Url,
        /// The user.
        user: DomainResource,
        /// The user's password.
        password: Secret,
        /// The project.
        scope: DomainResource,
    },
    /// An application credential, which implies a user and a project.
    ApplicationCredential {
        /// Keystone, with or without the version at its end.
        url: Url,
        /// The credential.
        credential: Credential,
        /// Its secret.
        secret: Secret,
    },
}

/// The id or the name of a resource of Keystone, serialized as in its API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IdOrName {
    /// The id.
    Id(String),
    /// The name, which is unique within a domain, or for a user.
    Name(String),
}

/// A user or a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DomainResource {
    /// The id or the name.
    #[serde(flatten)]
    pub key: IdOrName,
    /// The domain of a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<IdOrName>,
}

/// An application credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Credential {
    /// The id or the name.
    #[serde(flatten)]
    pub key: IdOrName,
    /// The user of a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<DomainResource>,
}

/// The interface of the endpoints in a catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointInterface {
    /// The public network.
    #[default]
    Public,
    /// The internal network of the cloud.
    Internal,
    /// The network of administrators.
    Admin,
}

impl EndpointInterface {
    /// The name in a catalogue.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }

    /// The interface with this name; `publicURL`, as in older files, means `public`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.strip_suffix("URL").unwrap_or(name);
        [Self::Public, Self::Internal, Self::Admin].into_iter().find(|interface| interface.as_str() == name)
    }
}

/// Endpoints that override the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointOverrides {
    /// Neutron.
    pub network: Option<Url>,
    /// Octavia.
    pub load_balancer: Option<Url>,
}

/// The certificates of connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Disables the verification of certificates.
    pub insecure: bool,
    /// A PEM file with the trusted CA certificates. Without it: the CAs of the system.
    pub ca_file: Option<PathBuf>,
    /// A PEM file with the client certificate and its chain.
    pub certificate_file: Option<PathBuf>,
    /// A PEM file with its key. Without it, the key is in the same file.
    pub key_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
