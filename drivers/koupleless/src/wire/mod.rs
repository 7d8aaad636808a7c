//! The JSON of Arklet (the agent in a base), and its conversion to the types of [`staffetta_driver::tunnel`].
//!
//! Keys that this crate does not use are ignored. Where versions of Arklet write different JSON, all forms are read.

mod base;
mod biz;
mod health;
mod response;

pub(crate) use base::{BaseMetadata, BaseReport};
pub(crate) use biz::{BizInfo, statuses};
pub(crate) use health::{HealthInfo, node_status};
pub(crate) use response::{ArkResponse, OperationData, failed};

/// The label of a node that names its technology stack, and the value for bases.
pub(crate) const STACK: (&str, &str) = ("base.koupleless.io/stack", "java");

/// The label of a node that names the cluster of bases to which its base belongs.
pub(crate) const CLUSTER_NAME: &str = "base.koupleless.io/cluster-name";

/// The maximum length of a message of a base, in characters; the rest is cut off.
const MAX_MESSAGE: usize = 1024;

/// Returns a text that a base sent, for messages to users: at most [`MAX_MESSAGE`] characters, without control characters.
pub(crate) fn message(text: &str) -> String {
    text.chars().take(MAX_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns a text of a base as the reason of a condition, state or Event: one word of at most 64 characters. Returns an
/// empty string if the text is no such word.
fn reason(text: &str) -> String {
    let word = text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if word { text.to_owned() } else { String::new() }
}
