//! The addresses of a node's pool, and the annotation of a pod that contains its address.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use staffetta_driver::Uid;
use staffetta_pool::{Candidate, PoolKind};

/// The key of the annotation of a pod that contains its address, and the name of the extended resource that such a pod requests.
pub const PRIVATE_IPV4_ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// An address together with the assigned block that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockAddress {
    /// The block on the interface of the node: a prefix, or a single address with 32 bits.
    pub block: Ipv4Net,
    /// The address within the block.
    pub address: Ipv4Addr,
}

/// The [`PoolKind`] of a node's address pools: a group is a block on the node's interface, and an item is an address for a pod.
///
/// Addresses are taken from the block with the fewest free ones, so that other blocks become wholly free and can be released. Of several
/// such blocks, the one with the lowest address is used.
#[derive(Debug)]
pub struct Addresses;

impl PoolKind for Addresses {
    type Group = Ipv4Net;
    type Item = BlockAddress;
    type Want = ();
    type Owner = Uid;
    type Rank = usize;

    fn items(block: &Ipv4Net) -> Vec<BlockAddress> {
        let (first, size) = (u32::from(block.network()), 1_u32 << (32 - block.prefix_len().clamp(16, 32)));
        (first..=first + (size - 1))
            .map(|address| BlockAddress { block: *block, address: address.into() })
            .collect()
    }

    fn group(item: &BlockAddress) -> Ipv4Net {
        item.block
    }

    fn rank(candidate: &Candidate<'_, Self>) -> usize {
        candidate.free
    }
}

/// Returns the address in `value`, the value of the annotation of a pod; `None` if it is not an IPv4 address with an optional
/// prefix length, such as `10.0.0.5/32`. The prefix length is not used.
pub fn parse(value: &str) -> Option<Ipv4Addr> {
    let network = value.parse::<Ipv4Net>().map(|network| network.addr());
    network.or_else(|_| value.parse()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_sixteen_addresses_the_first_and_the_last_included() {
        let addresses = Addresses::items(&"192.0.2.32/28".parse().unwrap());
        assert_eq!(addresses.len(), 16);
        assert_eq!(addresses[0].address, Ipv4Addr::new(192, 0, 2, 32));
        assert_eq!(addresses[15].address, Ipv4Addr::new(192, 0, 2, 47));
        let last = Addresses::items(&"255.255.255.255/32".parse().unwrap());
        assert_eq!(last.iter().map(|item| item.address).collect::<Vec<_>>(), [Ipv4Addr::BROADCAST]);
    }

    #[test]
    fn an_annotation_has_an_address_and_at_most_a_prefix_length() {
        let address = Ipv4Addr::new(192, 168, 25, 15);
        for value in ["192.168.25.15/32", "192.168.25.15/19", "192.168.25.15"] {
            assert_eq!(parse(value), Some(address), "{value}");
        }
        for value in ["", "192.168.25", "192.168.25.15/33", "192.168.25.15/", "fe80::1/64", "192.168.25.15 "]
        {
            assert_eq!(parse(value), None, "{value}");
        }
    }
}
