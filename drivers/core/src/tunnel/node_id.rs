//! The id of a node of a tunnel.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The maximum length of a node id, in bytes. It leaves room for a prefix in the name of the Node object (253 bytes).
const MAX_LENGTH: usize = 128;

/// The globally unique id of a node of a tunnel, chosen by its machine.
///
/// An id comes from outside and becomes a part of an object's name, of a label and of topics. It therefore consists of one or more
/// labels with dots between them, as a DNS name does (RFC 1123): lower-case letters, digits and inner hyphens, at most 63 bytes
/// each and 128 in all. A UUID and an IPv4 address are valid ids.
///
/// ```
/// use staffetta_driver::tunnel::NodeId;
///
/// assert!("192.0.2.7".parse::<NodeId>().is_ok());
/// assert!("a/b".parse::<NodeId>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(String);

impl NodeId {
    /// Returns the id as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for NodeId {
    type Err = InvalidNodeId;

    fn from_str(text: &str) -> Result<Self, InvalidNodeId> {
        let fits = text.len() <= MAX_LENGTH && text.split('.').all(is_label);
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidNodeId::new(text)) }
    }
}

impl TryFrom<String> for NodeId {
    type Error = InvalidNodeId;

    fn try_from(text: String) -> Result<Self, InvalidNodeId> {
        text.parse()
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> Self {
        id.0
    }
}

/// Returns `true` if `label` is a label of a DNS name (RFC 1123) in lower case.
fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !label.is_empty()
        && label.len() <= 63
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// The error for a text that is not a [`NodeId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{quoted:?} is no id of a node: use lower-case letters, digits, inner hyphens and dots, at most {MAX_LENGTH} in all and 63 \
     between dots"
)]
pub struct InvalidNodeId {
    quoted: String,
}

impl InvalidNodeId {
    fn new(text: &str) -> Self {
        Self { quoted: text.chars().take(64).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_could_leave_its_topic_or_is_no_object_name_is_rejected() {
        for id in ["base-1", "192.0.2.7", "0b3c", "a.b-c.d", &"a".repeat(63)] {
            assert_eq!(id.parse::<NodeId>().unwrap().as_str(), id);
        }
        let long = format!("{}.{}.{}", "a".repeat(63), "a".repeat(63), "a");
        let odd =
            ["", ".", "a.", "a..b", "-a", "a-", "a/b", "+", "#", "$SYS", "Base", "a b", "ä", "a\0", &long];
        for id in odd.into_iter().chain(["a".repeat(64).as_str()]) {
            assert!(id.parse::<NodeId>().is_err(), "{id}");
            assert!(serde_json::from_value::<NodeId>(id.into()).is_err(), "{id}");
        }
    }

    #[test]
    fn an_error_quotes_little_and_nothing_unprintable() {
        let error = format!("\n{}", "x".repeat(10_000)).parse::<NodeId>().unwrap_err().to_string();
        assert!(error.len() < 300 && !error.contains('\n'), "{error}");
    }
}
