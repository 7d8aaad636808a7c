//! Conversion of the IP blocks in policies to networks without the exceptions.

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::IPBlock;

/// Splits an IP block into networks that together cover the block without its exceptions. Stops
/// early once there are more than `limit` networks. Returns a text for the user if a network is
/// invalid.
pub(super) fn networks(block: &IPBlock, limit: usize) -> Result<Vec<IpNet>, String> {
    let read = |text: &String| {
        text.parse::<IpNet>().map(|net| net.trunc()).map_err(|_| format!("`{text}` is not an IP block"))
    };
    let net = read(&block.cidr)?;
    let except = merged(block.except.iter().flatten().map(read).collect::<Result<_, _>>()?);
    let mut left = Vec::new();
    if !except.iter().any(|except| except.contains(&net)) {
        let inside: Vec<_> = except.into_iter().filter(|except| net.contains(except)).collect();
        split(net, &inside, limit, &mut left);
    }
    Ok(left)
}

/// Merges networks into the smallest set that covers the same addresses, sorted.
pub(super) fn merged(mut networks: Vec<IpNet>) -> Vec<IpNet> {
    networks = IpNet::aggregate(&networks);
    networks.sort();
    networks
}

/// Splits `net` into networks that cover it without `except`, and adds them to `left`. `except`
/// must be sorted and free of overlaps. Halves with an exception are split recursively. Stops early
/// once `left` has more than `limit` networks.
fn split(net: IpNet, except: &[IpNet], limit: usize, left: &mut Vec<IpNet>) {
    match except {
        _ if left.len() > limit => {}
        [] => left.push(net),
        [all] if *all == net => {}
        _ => {
            let mut rest = except;
            for half in net.subnets(net.prefix_len() + 1).into_iter().flatten() {
                let (inside, others) = rest.split_at(rest.partition_point(|except| half.contains(except)));
                split(half, inside, limit, left);
                rest = others;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(cidr: &str, except: &[&str]) -> IPBlock {
        let except = except.iter().map(|text| (*text).to_owned()).collect();
        IPBlock { cidr: cidr.into(), except: Some(except) }
    }

    fn left(cidr: &str, except: &[&str]) -> Vec<String> {
        let nets = merged(networks(&block(cidr, except), usize::MAX).unwrap());
        nets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn exceptions_are_cut_out_and_overlapping_networks_are_merged() {
        assert_eq!(left("10.0.0.7/30", &[]), ["10.0.0.4/30"]);
        assert_eq!(left("10.0.0.0/30", &["10.0.0.1/32"]), ["10.0.0.0/32", "10.0.0.2/31"]);
        assert_eq!(left("10.0.0.0/30", &["10.0.0.0/31", "10.0.0.0/32"]), ["10.0.0.2/31"]);
        assert_eq!(left("10.0.0.0/30", &["10.0.0.0/8"]), [""; 0]);
        assert_eq!(left("10.0.0.0/30", &["192.0.2.0/24", "fd00::/8"]), ["10.0.0.0/30"]);
        assert_eq!(left("::/0", &["8000::/1"]), ["::/1"]);
        let overlapping = ["10.0.0.0/25", "10.0.0.128/25", "10.0.0.5/32"].map(|text| text.parse().unwrap());
        assert_eq!(merged(overlapping.to_vec()), ["10.0.0.0/24".parse::<IpNet>().unwrap()]);
        assert!(networks(&block("10.0.0.0", &[]), 9).is_err());
        assert!(networks(&block("10.0.0.0/8", &["all"]), 9).is_err());
    }

    fn net((last, length): (u8, u8)) -> IpNet {
        IpNet::new([10, 0, 0, last].into(), length).unwrap().trunc()
    }

    proptest! {
        #[test]
        fn the_networks_have_an_address_if_and_only_if_the_block_has_it_and_no_exception_does(
            cidr in (any::<u8>(), 24u8..=32),
            except in prop::collection::vec((any::<u8>(), 24u8..=32), 0..4),
            last in any::<u8>(),
        ) {
            let (cidr, except) = (net(cidr), except.into_iter().map(net).collect::<Vec<_>>());
            let texts = except.iter().map(ToString::to_string).collect();
            let block = IPBlock { cidr: cidr.to_string(), except: Some(texts) };
            let left = networks(&block, usize::MAX).unwrap();
            let address: std::net::IpAddr = [10, 0, 0, last].into();
            let found = left.iter().filter(|left| left.contains(&address)).count();
            let expected = cidr.contains(&address) && !except.iter().any(|except| except.contains(&address));
            prop_assert_eq!(found, usize::from(expected));
            if let Some(limit) = left.len().checked_sub(1) {
                prop_assert_eq!(networks(&block, limit).unwrap().len(), left.len());
            }
        }
    }
}
