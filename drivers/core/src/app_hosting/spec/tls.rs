//! The authentication of a device by TLS.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The TLS options of the connection to a device. A device is verified in one way: by `caFile`, `certificateSha256`, or not at all;
/// these keys apply only if TLS is used. A file is read up to 1 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TlsSpec {
    /// Uses TLS. Without it, the password is sent in clear text.
    pub enabled: bool,
    /// Accepts any certificate. A man in the middle can then read the password.
    pub insecure_skip_verify: bool,
    /// Our certificate, a PEM file. `keyFile` belongs to it.
    pub cert_file: Option<PathBuf>,
    /// The key of our certificate, a PEM file.
    pub key_file: Option<PathBuf>,
    /// A PEM file with the CA certificates that verify the device; the CAs of the system if absent.
    pub ca_file: Option<PathBuf>,
    /// The SHA-256 of the one certificate that the device may show, in 64 hexadecimal digits, with or without colons. No
    /// CA is needed then, which suits a self-signed certificate.
    pub certificate_sha256: Option<String>,
}
