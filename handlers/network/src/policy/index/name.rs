//! Names of security groups. They depend on the policies only, so that every process finds the
//! groups again.

use ring::digest::{SHA256, digest};
use serde::Serialize;
use staffetta_driver::{Direction, GroupName, Uid};

use super::pod::PortNumbers;

/// The number of hexadecimal digits of a digest in a name. Authors of policies must not be able to
/// find a collision.
const DIGITS: usize = 40;

/// The prefix of the groups of peers.
const PEERS: &str = "peers-";

/// The group of the traffic that no policy restricts: from and to the nodes and the configured
/// networks.
pub(super) fn nodes() -> GroupName {
    "nodes".into()
}

/// The group that allows everything in one direction.
pub(super) fn open(direction: Direction) -> GroupName {
    match direction {
        Direction::Ingress => "open-ingress".into(),
        Direction::Egress => "open-egress".into(),
    }
}

/// The group of the pods that a policy selects.
pub(super) fn policy(uid: &Uid) -> GroupName {
    format!("policy-{uid}").into()
}

/// The group of those pods of the group `policy` that have these numbers for its named ports.
pub(super) fn resolved(policy: &GroupName, numbers: &PortNumbers) -> GroupName {
    format!("{policy}-{}", digits(&numbers.iter().collect::<Vec<_>>())).into()
}

/// The group of the pods that match `selector`.
pub(super) fn peers(selector: &impl Serialize) -> GroupName {
    format!("{PEERS}{}", digits(selector)).into()
}

/// The group of the pods of `peers` whose named port has this number.
pub(super) fn numbered(peers: &GroupName, number: u16) -> GroupName {
    format!("{peers}-{number}").into()
}

/// Returns `true` for the group of peers, numbered or not.
pub(super) fn is_of_peers(name: &GroupName) -> bool {
    name.as_str().starts_with(PEERS)
}

/// The beginning of the SHA-256 digest of a value's JSON form, in hexadecimal.
fn digits(value: &impl Serialize) -> String {
    let text = serde_json::to_vec(value).expect("sets of texts are plain data");
    let digest = digest(&SHA256, &text);
    let nibbles = digest.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.take(DIGITS).filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}
