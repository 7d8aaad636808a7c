//! How a device proves who it is.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether and how a device is talked to with TLS. A device is known in one way: by `caFile`, `certificateSha256`, or not at all; none
/// of the keys has a meaning where TLS is not used. A file is read up to 1 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TlsSpec {
    /// Whether TLS is used. Without it, the password crosses the network in clear.
    #[serde(default)]
    pub enabled: bool,
    /// Whether any certificate is taken. Whoever stands between then reads the password.
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// Our certificate, a PEM file. `keyFile` belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_file: Option<PathBuf>,
    /// The key of our certificate, a PEM file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The certificates of the authorities that may vouch for the device, a PEM file; those of this system if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The SHA-256 of the one certificate that the device may show, in 64 hexadecimal digits, with or without colons. No
    /// authority is asked then, which suits a certificate that the device signed itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_sha256: Option<String>,
}
