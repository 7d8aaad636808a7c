//! The pod to which a container belongs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The pod to which a container belongs. In text and JSON, `namespace/name`, or `all`.
///
/// ```
/// use staffetta_driver::tunnel::PodKey;
///
/// let web = PodKey::Pod { namespace: "default".into(), name: "web-1".into() };
/// assert_eq!("default/web-1".parse(), Ok(web));
/// assert_eq!(PodKey::All.to_string(), "all");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PodKey {
    /// All pods of the node (`PodKeyAll`): the machine does not know the pod, and the pods share the container. The status of
    /// the container applies to each container with the same key on this node.
    All,
    /// One pod, by its namespace and name.
    Pod {
        /// The namespace of the pod.
        namespace: String,
        /// The name of the pod.
        name: String,
    },
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Pod { namespace, name } => write!(f, "{namespace}/{name}"),
        }
    }
}

impl FromStr for PodKey {
    type Err = InvalidPodKey;

    fn from_str(text: &str) -> Result<Self, InvalidPodKey> {
        match text.split_once('/') {
            None if text == "all" => Ok(Self::All),
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self::Pod { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(InvalidPodKey { quoted: text.chars().take(64).collect() }),
        }
    }
}

impl TryFrom<String> for PodKey {
    type Error = InvalidPodKey;

    fn try_from(text: String) -> Result<Self, InvalidPodKey> {
        text.parse()
    }
}

impl From<PodKey> for String {
    fn from(key: PodKey) -> Self {
        key.to_string()
    }
}

/// The error for a text that is not a [`PodKey`]. It quotes at most the first 64 characters of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{quoted:?} is no pod: use `namespace/name` or `all`")]
pub struct InvalidPodKey {
    quoted: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_is_written() {
        for text in ["all", "default/web-1"] {
            assert_eq!(text.parse::<PodKey>().unwrap().to_string(), text);
        }
        for text in ["", "web-1", "default/", "/web-1", "a/b/c"] {
            assert!(text.parse::<PodKey>().is_err(), "{text}");
        }
    }
}
