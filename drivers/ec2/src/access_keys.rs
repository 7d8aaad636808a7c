//! The access keys with which requests to AWS are signed.

use std::fmt;
use std::time::SystemTime;

use secrecy::SecretString;

/// The access keys of a user or a role. `Debug` shows no secret.
#[derive(Clone)]
pub(crate) struct AccessKeys {
    /// The access key id, which is not secret.
    pub(crate) id: String,
    /// The secret access key.
    pub(crate) secret: SecretString,
    /// The session token of temporary keys.
    pub(crate) token: Option<SecretString>,
    /// The time from which on the keys are refused; `None` if there is none.
    pub(crate) expires: Option<SystemTime>,
}

impl fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKeys")
            .field("id", &self.id)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}
