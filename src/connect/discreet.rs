//! What is wrong with a kubeconfig or with what it names, told without what stands there: that may be a secret.

use std::error::Error;

use kube::client::AuthError;
use kube::config::{InferConfigError, KubeconfigError};
use staffetta_handler::causes;
use tower::BoxError;

/// What is wrong, in one line. It quotes neither the kubeconfig nor what a program for credentials wrote.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Discreet(String);

impl From<KubeconfigError> for Discreet {
    fn from(error: KubeconfigError) -> Self {
        Self(of_kubeconfig(&error))
    }
}

impl From<InferConfigError> for Discreet {
    fn from(error: InferConfigError) -> Self {
        let kubeconfig = error.source().and_then(|source| source.downcast_ref::<KubeconfigError>());
        match kubeconfig {
            Some(error @ KubeconfigError::Parse(_)) => Self(of_kubeconfig(error)),
            _ => Self(causes(&error)),
        }
    }
}

impl From<kube::Error> for Discreet {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Auth(error) => Self(of_credentials(error)),
            _ => Self(causes(&error)),
        }
    }
}

/// The error of a request. A program for credentials may be run for any.
pub(super) fn of_request(error: BoxError) -> BoxError {
    match error.downcast::<AuthError>() {
        Ok(error) => Discreet(of_credentials(&error)).into(),
        Err(other) => other,
    }
}

fn of_kubeconfig(error: &KubeconfigError) -> String {
    match error {
        // The long form quotes the lines around the place. The short one ends with line and column.
        KubeconfigError::Parse(error) => {
            let text = error.without_snippet().to_string();
            format!("it is not YAML of that form: {}", text.lines().next().unwrap_or_default())
        }
        other => causes(other),
    }
}

fn of_credentials(error: &AuthError) -> String {
    const PROGRAM: &str = "the program for credentials that the kubeconfig names";
    match error {
        AuthError::AuthExecRun { out, .. } => format!("{PROGRAM} failed: {}", out.status),
        AuthError::AuthExecParse(error) => {
            let place =
                error.location().map(|place| format!(" at line {}, column {}", place.line(), place.column()));
            format!("what {PROGRAM} wrote is no `ExecCredential`{}", place.unwrap_or_default())
        }
        AuthError::MalformedTokenExpirationDate(_) => {
            format!("what {PROGRAM} wrote does not say as a time when the token ends")
        }
        other => causes(other),
    }
}
