//! The credentials of a device: from a Secret, or with a password from a file.

use std::io;
use std::path::Path;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use staffetta_driver::app_hosting::Password;
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::Failure;

use super::device::DeviceDescription;
use super::file::{FileError, password};

/// The step of reading the credentials, for error messages.
const STEP: &str = "read the account of the device";

/// The label, with the value `true`, of a Secret that may be sent to devices. Without it, whoever describes a device could choose any
/// Secret of this program's namespace.
const CREDENTIALS_LABEL: &str = "staffetta.dev/device-credentials";

/// Returns `spec` with the credentials from the Secret that its `credentialSecretRef` names, in the namespace of this program; `spec`
/// itself if it names none. The Secret is read each time the connection to the device is opened, for example after the device refused
/// the previous credentials. Returns an error if the Secret cannot be read, does not exist, lacks the label of credentials, or has no
/// key `password` with text.
pub(super) async fn with_account(
    client: &Client,
    spec: &DeviceDescription,
) -> Result<DeviceDescription, DriverError> {
    let mut spec = spec.clone();
    let Some(reference) = spec.credential_secret_ref.clone() else { return Ok(spec) };
    let namespace = client.default_namespace();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets.get_opt(&reference.name).await.map_err(|error| {
        let reason = if error.transient() { Reason::Unavailable } else { Reason::Refused };
        DriverError::new(reason, STEP).because(error)
    })?;
    let Some(secret) = secret else {
        let detail = format!("credentialSecretRef: there is no Secret {namespace}/{}", reference.name);
        return Err(DriverError::new(Reason::NotFound, STEP).detail(detail));
    };
    let unusable = |reason, why: &str| {
        let detail = format!("credentialSecretRef: the Secret {namespace}/{} {why}", reference.name);
        Err(DriverError::new(reason, STEP).detail(detail))
    };
    let label = secret.metadata.labels.as_ref().and_then(|labels| labels.get(CREDENTIALS_LABEL));
    if label.is_none_or(|value| value != "true") {
        return unusable(Reason::Refused, &format!("has no label `{CREDENTIALS_LABEL}: \"true\"`"));
    }
    let value = |key: &str| {
        let value = secret.data.as_ref().and_then(|data| data.get(key));
        value.and_then(|value| String::from_utf8(value.0.clone()).ok())
    };
    let Some(password) = value("password") else {
        return unusable(Reason::NotFound, "has no key `password`, or its value is not text");
    };
    spec.password = Some(Password::new(password));
    if let Some(username) = value("username") {
        spec.username = username;
    }
    Ok(spec)
}

/// Returns the password in a file, which is read each time the connection to the device is opened. The error is
/// [`Reason::NotFound`] if the file does not exist.
pub(super) fn password_of(file: &Path) -> Result<Password, DriverError> {
    password(file).map_err(|error| {
        let missing =
            matches!(&error, FileError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound);
        let reason = if missing { Reason::NotFound } else { Reason::Unavailable };
        DriverError::new(reason, STEP).because(error)
    })
}
