//! How a cloud is reached: as whom, where, and by which certificates.

mod above;
mod clouds;
mod mistakes;
mod options;
mod resolve;
mod secret;

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

pub use self::clouds::Environment;
pub use self::mistakes::{AccessError, AccessMistake};
pub use self::options::NeutronOptions;
pub use self::secret::Secret;

/// How a cloud is reached.
#[derive(Clone, Debug)]
pub struct Access {
    /// As whom.
    pub auth: Auth,
    /// The region, where the cloud has several. Without it: the first of the catalogue.
    pub region: Option<String>,
    /// Which of the URLs of a service is used.
    pub interface: Interface,
    /// Where services are, instead of what the catalogue says.
    pub urls: Urls,
    /// Whom to believe.
    pub tls: Tls,
    /// How long a call may take that does one thing.
    pub timeout: Duration,
    /// How many calls of one service may be in flight at a time.
    pub max_concurrency: usize,
}

/// As whom calls are made.
#[derive(Clone, Debug)]
pub enum Auth {
    /// As nobody: the services ask for no token.
    None,
    /// As a user of a project.
    Password {
        /// Keystone, with or without the version at its end.
        url: Url,
        /// The user.
        user: User,
        /// The user's password.
        password: Secret,
        /// The project.
        scope: Scope,
    },
    /// With an application credential, which knows its user and its project.
    ApplicationCredential {
        /// Keystone, with or without the version at its end.
        url: Url,
        /// The credential: its id, or its name with the user to whom it belongs.
        credential: Credential,
        /// Its secret.
        secret: Secret,
    },
}

/// A user of Keystone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// By id.
    Id(String),
    /// By name, which is unique within a domain.
    Name(String, Domain),
}

/// The project in which calls are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// By id.
    Id(String),
    /// By name, which is unique within a domain.
    Name(String, Domain),
}

/// A domain of Keystone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// By id.
    Id(String),
    /// By name.
    Name(String),
}

/// An application credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By id.
    Id(String),
    /// By name, which is unique for a user.
    Name(String, User),
}

/// Which of the URLs of a service is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interface {
    /// The one for everybody.
    #[default]
    Public,
    /// The one within the cloud.
    Internal,
    /// The one for administrators.
    Admin,
}

impl Interface {
    /// The name, as a catalogue says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }

    /// The interface of that name; `publicURL`, as in older files, is the same as `public`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.strip_suffix("URL").unwrap_or(name);
        [Self::Public, Self::Internal, Self::Admin].into_iter().find(|interface| interface.as_str() == name)
    }
}

/// Where services are, instead of what the catalogue says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Urls {
    /// Neutron.
    pub network: Option<Url>,
    /// Octavia.
    pub load_balancer: Option<Url>,
}

/// Whom to believe, and as whom to connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whether any certificate is believed.
    pub insecure: bool,
    /// A PEM file with the only authorities that are believed. Without it: those of the system.
    pub ca_file: Option<PathBuf>,
    /// A PEM file with our own certificate and what leads to its authority.
    pub certificate_file: Option<PathBuf>,
    /// A PEM file with its key. Without it, the key is in the same file.
    pub key_file: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
