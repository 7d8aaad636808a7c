//! Selects IP addresses for applications without DHCP, from the subnet of the device.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// Returns the address of the gateway in a subnet: the first host address. `None` if the subnet is empty.
pub(super) fn gateway(subnet: Ipv4Net) -> Option<Ipv4Addr> {
    subnet.hosts().next()
}

/// Returns the lowest host address of `subnet` after the gateway for which `used` returns `false`; `None` if all are
/// used.
pub(crate) fn free_address(subnet: Ipv4Net, used: impl Fn(Ipv4Addr) -> bool) -> Option<Ipv4Addr> {
    subnet.hosts().skip(1).find(|address| !used(*address))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn all(subnet: &str) -> Vec<String> {
        let subnet = subnet.parse().unwrap();
        let mut taken = Vec::new();
        while let Some(address) = free_address(subnet, |address| taken.contains(&address)) {
            taken.push(address);
        }
        taken.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn router_subnet_and_broadcast_are_never_handed_out() {
        assert_eq!(all("10.0.0.0/29"), ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
        assert_eq!(all("10.0.0.0/31"), ["10.0.0.1"]);
        assert_eq!(all("10.0.0.7/32"), [""; 0]);
        assert_eq!(gateway("10.0.0.8/29".parse().unwrap()).unwrap().to_string(), "10.0.0.9");
    }

    proptest! {
        #[test]
        fn an_address_has_one_holder_and_one_that_was_given_back_is_used_again(acts in prop::collection::vec(any::<(bool, usize)>(), 1..200)) {
            let subnet: Ipv4Net = "10.0.0.0/28".parse().unwrap();
            let mut held: Vec<Ipv4Addr> = Vec::new();
            for (take, which) in acts {
                if take {
                    if let Some(address) = free_address(subnet, |address| held.contains(&address)) {
                        held.push(address);
                    } else {
                        prop_assert_eq!(held.len(), 13);
                    }
                } else if !held.is_empty() {
                    let which = which % held.len();
                    held.swap_remove(which);
                }
                prop_assert_eq!(held.iter().collect::<HashSet<_>>().len(), held.len());
            }
        }
    }
}
