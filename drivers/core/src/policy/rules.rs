//! The rules of the groups: what policies say, in the words of security groups.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::name;
use super::pod::PortName;
use super::terms::{Allowance, Others, Terms};
use crate::id::GroupName;
use crate::security_group::{Direction, Family, Ports, Remote, SecurityRule};

/// The rules of a group, each once.
pub(super) type Rules = BTreeSet<SecurityRule<GroupName>>;

/// Everything in one direction.
pub(super) fn everything(direction: Direction) -> Rules {
    Family::ALL
        .map(|family| SecurityRule { direction, family, ports: None, remote: Remote::Any })
        .into_iter()
        .collect()
}

/// Everything from or to these networks.
pub(super) fn always<'n>(direction: Direction, networks: impl Iterator<Item = &'n IpNet>) -> Rules {
    networks.flat_map(|net| rule(direction, None, &Remote::Net(*net))).collect()
}

/// What a policy lets in and out, where the named ports of the pods that it selects have the numbers `own`, and those of its
/// peers the numbers that `numbers` tells.
pub(super) fn of(
    terms: &Terms,
    own: &BTreeMap<PortName, u16>,
    numbers: impl Fn(&GroupName) -> Vec<u16>,
) -> Rules {
    let mut rules = Rules::new();
    for (direction, allowances) in [(Direction::Ingress, &terms.ingress), (Direction::Egress, &terms.egress)]
    {
        for allowance in allowances.iter().flatten() {
            let remotes = remotes(allowance.peers.as_ref());
            for ports in ports(allowance, own) {
                rules.extend(remotes.iter().flat_map(|remote| rule(direction, ports, remote)));
            }
            for (peers, protocol) in &allowance.named_peers {
                for number in numbers(peers) {
                    let ports = Some(Ports { protocol: *protocol, range: Some((number, number)) });
                    let remote = Remote::Group(name::numbered(peers, number));
                    rules.extend(rule(direction, ports, &remote));
                }
            }
        }
    }
    rules
}

/// The ports of a rule of a policy that have numbers.
fn ports(allowance: &Allowance, own: &BTreeMap<PortName, u16>) -> Vec<Option<Ports>> {
    let Some(ports) = &allowance.ports else { return vec![None] };
    let named = allowance.own_ports.iter().filter_map(|name| {
        let number = *own.get(name)?;
        Some(Ports { protocol: name.1, range: Some((number, number)) })
    });
    ports.iter().copied().chain(named).map(Some).collect()
}

fn remotes(peers: Option<&Others>) -> Vec<Remote<GroupName>> {
    match peers {
        None => vec![Remote::Any],
        Some(Others { networks, pods }) => {
            let networks = networks.iter().map(|net| Remote::Net(*net));
            networks.chain(pods.iter().cloned().map(Remote::Group)).collect()
        }
    }
}

/// One rule for each version of the Internet protocol that the remote can have. A network of all addresses is anybody of its
/// version.
fn rule(
    direction: Direction,
    ports: Option<Ports>,
    remote: &Remote<GroupName>,
) -> Vec<SecurityRule<GroupName>> {
    let (families, remote) = match remote {
        Remote::Net(net) if net.prefix_len() == 0 => (vec![Family::of(net)], Remote::Any),
        Remote::Net(net) => (vec![Family::of(net)], Remote::Net(*net)),
        other => (Family::ALL.to_vec(), other.clone()),
    };
    let of = |family| SecurityRule { direction, family, ports, remote: remote.clone() };
    families.into_iter().map(of).collect()
}
