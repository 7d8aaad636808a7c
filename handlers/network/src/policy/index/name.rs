//! Names of security groups. A name depends only on the policies and on the port numbers of pods, so that another process finds
//! the same groups by their names.

use ring::digest::{SHA256, digest};
use serde::Serialize;
use staffetta_driver::{Direction, GroupName, Uid};

use super::pod::PortNumbers;

/// The number of hexadecimal digits of a digest in a name. It is so high that authors of policies
/// cannot find two contents with the same digest.
const DIGITS: usize = 40;

/// The prefix of the names of the security groups of peers: pods that the peer selector of a policy rule matches.
const PEERS: &str = "peers-";

/// Returns the name of the security group for the traffic that no policy restricts: from and to the
/// nodes and the configured networks.
pub(super) fn nodes() -> GroupName {
    "nodes".into()
}

/// Returns the name of the security group that allows everything in one direction.
pub(super) fn open(direction: Direction) -> GroupName {
    match direction {
        Direction::Ingress => "open-ingress".into(),
        Direction::Egress => "open-egress".into(),
    }
}

/// Returns the name of the security group of the pods that a policy selects.
pub(super) fn policy(uid: &Uid) -> GroupName {
    format!("policy-{uid}").into()
}

/// Returns the name of the group of those pods in the group `policy` that have these numbers for
/// the policy's named ports.
pub(super) fn resolved(policy: &GroupName, numbers: &PortNumbers) -> GroupName {
    format!("{policy}-{}", digits(&numbers.iter().collect::<Vec<_>>())).into()
}

/// Returns the name of the security group of the pods that match the peer selector `selector`.
pub(super) fn peers(selector: &impl Serialize) -> GroupName {
    format!("{PEERS}{}", digits(selector)).into()
}

/// Returns the name of the group of those pods in the group `peers` whose named port has this
/// number.
pub(super) fn numbered(peers: &GroupName, number: u16) -> GroupName {
    format!("{peers}-{number}").into()
}

/// Returns `true` if `name` is the name of a security group of peers (pods that a peer selector matches), with or without a port number.
pub(super) fn is_of_peers(name: &GroupName) -> bool {
    name.as_str().starts_with(PEERS)
}

/// Returns the first 40 hexadecimal digits of the SHA-256 digest of a value's JSON form.
fn digits(value: &impl Serialize) -> String {
    let text = serde_json::to_vec(value).expect("sets of texts are plain data");
    let digest = digest(&SHA256, &text);
    let nibbles = digest.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.take(DIGITS).filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}
