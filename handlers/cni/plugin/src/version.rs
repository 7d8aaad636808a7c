//! Versions of the CNI specification.

use serde_json::Value;

use crate::error::{CniError, Code};

/// The supported versions of the CNI specification, the newest last.
pub const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// A supported version of the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Version 0.3.1.
    V0_3_1,
    /// Version 0.4.0, the first one with `CHECK`.
    V0_4_0,
    /// Version 1.0.0, whose addresses do not state their IP version.
    V1_0_0,
    /// Version 1.1.0, the first one with `STATUS` and `GC`.
    V1_1_0,
}

impl Version {
    /// Reads the field `cniVersion` of a configuration. Without the field, the version is 0.3.1.
    pub fn read(configuration: &Value) -> Result<Self, CniError> {
        let text = match &configuration["cniVersion"] {
            Value::Null => "0.3.1",
            value => value.as_str().unwrap_or_default(),
        };
        let all = [Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
        let found = all.into_iter().zip(VERSIONS).find(|(_, name)| *name == text);
        found.map(|(version, _)| version).ok_or_else(|| {
            CniError::new(Code::IncompatibleVersion, "the version of the configuration is not supported")
                .details(format!("`cniVersion` is `{text}`; supported are {}", VERSIONS.join(", ")))
        })
    }

    /// Returns the version as text.
    pub fn name(self) -> &'static str {
        VERSIONS[self as usize]
    }
}
