//! Translates policies into the rules of security groups.

use std::collections::BTreeSet;

use ipnet::IpNet;
use staffetta_driver::{Direction, GroupName, IpFamily, Protocol, ProtocolPorts, Remote, SecurityRule};

use super::name;
use super::pod::PortNumbers;
use super::terms::{ParsedPolicy, RuleTerm};

/// The rules of a security group. They refer to other groups by name.
pub(crate) type GroupRules = BTreeSet<SecurityRule<GroupName>>;

/// Returns the security group rules that allow everything in one direction: one for each IP version.
pub(super) fn allow_everything(direction: Direction) -> GroupRules {
    rule(direction, None, &Remote::Any).into_iter().collect()
}

/// Returns the rules that allow everything from these networks (ingress) or to them (egress).
pub(super) fn allow_networks<'n>(
    direction: Direction,
    networks: impl Iterator<Item = &'n IpNet>,
) -> GroupRules {
    networks.flat_map(|net| rule(direction, None, &Remote::Net(*net))).collect()
}

/// Returns the security group rules of a policy for one group of its pods. `own` contains the
/// numbers of the policy's named ports at the pods in the group. `numbers` returns the numbers of a
/// peer selector's named port at the matching pods.
pub(super) fn of(
    terms: &ParsedPolicy,
    own: &PortNumbers,
    numbers: impl Fn(&GroupName) -> Vec<u16>,
) -> GroupRules {
    let rules = terms.rules.iter().flat_map(|(direction, term)| match term {
        RuleTerm::Ports(ports, remote) => rule(*direction, *ports, remote),
        RuleTerm::OwnPort(name, remote) => {
            let number = own.get(name).copied();
            number.map(|number| rule(*direction, Some(port(name.1, number)), remote)).unwrap_or_default()
        }
        RuleTerm::PeerPort(peers, protocol) => {
            let remote = |number| Remote::Group(name::numbered(peers, number));
            let numbers = numbers(peers).into_iter();
            numbers
                .flat_map(|number| rule(*direction, Some(port(*protocol, number)), &remote(number)))
                .collect()
        }
    });
    rules.collect()
}

/// Returns the port range that consists of the single port `number` of the protocol.
fn port(protocol: Protocol, number: u16) -> ProtocolPorts {
    ProtocolPorts { protocol, range: Some((number, number)) }
}

/// Returns one rule for each IP version of `remote`; `None` as `ports` stands for all ports of all
/// protocols. A network that contains all addresses becomes [`Remote::Any`].
fn rule(
    direction: Direction,
    ports: Option<ProtocolPorts>,
    remote: &Remote<GroupName>,
) -> Vec<SecurityRule<GroupName>> {
    let (families, remote) = match remote {
        Remote::Net(net) if net.prefix_len() == 0 => (vec![IpFamily::of(net)], Remote::Any),
        Remote::Net(net) => (vec![IpFamily::of(net)], Remote::Net(*net)),
        other => (IpFamily::ALL.to_vec(), other.clone()),
    };
    let of = |family| SecurityRule { direction, family, ports, remote: remote.clone() };
    families.into_iter().map(of).collect()
}
