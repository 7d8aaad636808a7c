//! How security groups are called: the same in every process, so that they are found again.

use ring::digest::{SHA256, digest};
use serde::Serialize;

use crate::id::{GroupName, Uid};

/// How many hexadecimal digits of a digest tell things apart. Whoever writes policies must not be able to make two that clash.
const DIGITS: usize = 40;

/// How the names of groups begin that pods bear because somebody describes them.
const PEERS: &str = "peers-";

/// The group of what no policy keeps away from anybody: the nodes, and what the configuration names.
pub(super) fn nodes() -> GroupName {
    "nodes".into()
}

/// The group that lets everything in.
pub(super) fn open_ingress() -> GroupName {
    "open-ingress".into()
}

/// The group that lets everything out.
pub(super) fn open_egress() -> GroupName {
    "open-egress".into()
}

/// The group of the pods that a policy selects; of those whose named ports are `resolved` so, where the policy names any.
pub(super) fn policy(uid: &Uid, resolved: Option<&impl Serialize>) -> GroupName {
    match resolved {
        Some(resolved) => format!("policy-{uid}-{}", digits(resolved)).into(),
        None => format!("policy-{uid}").into(),
    }
}

/// The group of the pods that these words describe.
pub(super) fn peers(description: &impl Serialize) -> GroupName {
    format!("{PEERS}{}", digits(description)).into()
}

/// Of the pods of a group, those whose port has this number.
pub(super) fn numbered(peers: &GroupName, number: u16) -> GroupName {
    format!("{peers}-{number}").into()
}

/// Whether it is the group of pods that some words describe, or of some of them.
pub(super) fn is_of_peers(name: &GroupName) -> bool {
    name.as_str().starts_with(PEERS)
}

fn digits(value: &impl Serialize) -> String {
    let text = serde_json::to_vec(value).expect("sets of texts are plain data");
    let digest = digest(&SHA256, &text);
    let nibbles = digest.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.take(DIGITS).filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}
