//! Errors of kubeconfig files and credential plugins, without quotations that could contain a secret.

use std::error::Error;

use kube::client::AuthError;
use kube::config::{InferConfigError, KubeconfigError};
use staffetta_handler::causes;
use tower::BoxError;

/// An error message of one line that contains no secret, because it quotes neither the kubeconfig nor the output of a credential
/// plugin.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RedactedError(String);

impl From<&KubeconfigError> for RedactedError {
    fn from(error: &KubeconfigError) -> Self {
        Self(match error {
            // The long form quotes the lines around the error; the first line of the short one ends with line and column.
            KubeconfigError::Parse(error) => {
                let text = error.without_snippet().to_string();
                format!("invalid kubeconfig: {}", text.lines().next().unwrap_or_default())
            }
            other => causes(other),
        })
    }
}

impl From<&AuthError> for RedactedError {
    fn from(error: &AuthError) -> Self {
        const PLUGIN: &str = "the credential plugin of the kubeconfig";
        Self(match error {
            AuthError::AuthExecRun { out, .. } => format!("{PLUGIN} failed: {}", out.status),
            AuthError::AuthExecParse(error) => {
                let place = error.location();
                let place =
                    place.map(|place| format!(" at line {}, column {}", place.line(), place.column()));
                format!("the output of {PLUGIN} is not an `ExecCredential`{}", place.unwrap_or_default())
            }
            AuthError::MalformedTokenExpirationDate(_) => {
                format!("{PLUGIN} returned an invalid expiration time of the token")
            }
            other => causes(other),
        })
    }
}

impl From<InferConfigError> for RedactedError {
    fn from(error: InferConfigError) -> Self {
        let kubeconfig = error.source().and_then(|source| source.downcast_ref::<KubeconfigError>());
        match kubeconfig {
            Some(error @ KubeconfigError::Parse(_)) => error.into(),
            _ => Self(causes(&error)),
        }
    }
}

impl From<kube::Error> for RedactedError {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Auth(error) => error.into(),
            _ => Self(causes(&error)),
        }
    }
}

/// Redacts the error of a request if it is one of the credential plugin, which any request may run. Returns other errors unchanged.
pub(super) fn redact_request_error(error: BoxError) -> BoxError {
    match error.downcast::<AuthError>() {
        Ok(error) => RedactedError::from(&*error).into(),
        Err(other) => other,
    }
}
