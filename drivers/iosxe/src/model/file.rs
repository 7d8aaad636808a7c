//! The operations `copy` and `delete` of the module `Cisco-IOS-XE-rpc`: files of a device.

use serde_json::{Value, json};

/// Something that is done with a file of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileOperation {
    /// The device fetches `from`, and answers when `to` is there.
    Copy {
        from: String,
        to: String,
    },
    Delete {
        file: String,
    },
}

impl FileOperation {
    /// Where it is sent, under the root of RESTCONF.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "operations/Cisco-IOS-XE-rpc:copy",
            Self::Delete { .. } => "operations/Cisco-IOS-XE-rpc:delete",
        }
    }

    /// What it does, as an imperative.
    pub(crate) fn step(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "copy a package to the flash",
            Self::Delete { .. } => "delete a package from the flash",
        }
    }

    /// Its input, without the envelope of RFC 8040.
    pub(crate) fn input(&self) -> Value {
        match self {
            Self::Copy { from, to } => {
                json!({ "source-drop-node-name": from, "destination-drop-node-name": to })
            }
            Self::Delete { file } => json!({ "filename-drop-node-name": file }),
        }
    }
}
