//! The TLS options of a device.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The TLS options of the connection to a device. The certificate of the device is verified in one way: by `caFile`, by
/// `certificateSha256`, or not at all with `insecureSkipVerify`; without these keys, by the CAs of the system. No other key may
/// be set together with `enabled: false`. A file may have at most 1 MiB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TlsSpec {
    /// `true` if TLS is used, the default. With `false`, the password is sent in clear text, which a warning reports.
    pub enabled: bool,
    /// `true` if any certificate of the device is accepted. An attacker between the controller and the device can then read the
    /// password.
    pub insecure_skip_verify: bool,
    /// A PEM file with the client certificate that the controller presents to the device. Requires `keyFile`.
    pub cert_file: Option<PathBuf>,
    /// A PEM file with the private key of the client certificate in `certFile`.
    pub key_file: Option<PathBuf>,
    /// A PEM file with the CA certificates that verify the certificate of the device. If absent, the CAs of the system do.
    pub ca_file: Option<PathBuf>,
    /// The SHA-256 fingerprint of the only certificate that is accepted from the device: 64 hexadecimal digits, with or without
    /// colons. No CA is needed, so it suits self-signed certificates.
    pub certificate_sha256: Option<String>,
}

impl Default for TlsSpec {
    fn default() -> Self {
        Self {
            enabled: true,
            insecure_skip_verify: false,
            cert_file: None,
            key_file: None,
            ca_file: None,
            certificate_sha256: None,
        }
    }
}

impl TlsSpec {
    /// Returns the options of a connection without TLS.
    pub fn off() -> Self {
        Self { enabled: false, ..Self::default() }
    }
}
