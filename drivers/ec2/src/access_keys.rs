//! The access keys with which requests to AWS are signed.

use std::fmt;
use std::time::SystemTime;

use jiff::Timestamp;
use secrecy::SecretString;
use serde::Deserialize;

/// The access keys of a user or a role. `Debug` shows no secret.
#[derive(Clone, Deserialize)]
#[serde(from = "IssuedKeys")]
pub(crate) struct AccessKeys {
    /// The access key id, which is not secret.
    pub(crate) id: String,
    /// The secret access key.
    pub(crate) secret: SecretString,
    /// The session token of temporary keys; `None` for long-term keys.
    pub(crate) token: Option<SecretString>,
    /// The time at which the keys expire; `None` if they do not expire.
    pub(crate) expires: Option<SystemTime>,
}

/// The access keys as their sources return them. STS and programs name the session token `SessionToken`; credentials agents and the
/// metadata service name it `Token`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IssuedKeys {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    token: Option<String>,
    expiration: Option<Timestamp>,
}

impl From<IssuedKeys> for AccessKeys {
    fn from(keys: IssuedKeys) -> Self {
        Self {
            id: keys.access_key_id,
            secret: keys.secret_access_key.into(),
            token: keys.session_token.or(keys.token).map(SecretString::from),
            expires: keys.expiration.map(SystemTime::from),
        }
    }
}

impl fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKeys")
            .field("id", &self.id)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}
