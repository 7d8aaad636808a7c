//! Blocks of addresses, and what is left of them without their exceptions.

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::IPBlock;

/// The networks that together are just the block. None when a text in it is no network.
pub(super) fn networks(block: &IPBlock) -> Result<Vec<IpNet>, String> {
    let read = |text: &str| {
        text.parse::<IpNet>().map(|net| net.trunc()).map_err(|_| format!("`{text}` is no block of addresses"))
    };
    let mut left = vec![read(&block.cidr)?];
    for except in block.except.iter().flatten() {
        let except = read(except)?;
        left = left.into_iter().flat_map(|net| without(net, except)).collect();
    }
    Ok(left)
}

/// The fewest networks that together are just these.
pub(super) fn merged(mut networks: Vec<IpNet>) -> Vec<IpNet> {
    networks = IpNet::aggregate(&networks);
    networks.sort();
    networks
}

/// What is left of a network without another one: for each bit by which that one is narrower, the other half.
fn without(net: IpNet, except: IpNet) -> Vec<IpNet> {
    if except.contains(&net) {
        return Vec::new();
    }
    if !net.contains(&except) {
        return vec![net];
    }
    let Ok(halves) = net.subnets(net.prefix_len() + 1) else { return Vec::new() };
    halves.flat_map(|half| without(half, except)).collect()
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
        let nets = merged(networks(&block(cidr, except)).unwrap());
        nets.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn exceptions_are_cut_out_and_what_overlaps_is_merged() {
        assert_eq!(left("10.0.0.7/30", &[]), ["10.0.0.4/30"]);
        assert_eq!(left("10.0.0.0/30", &["10.0.0.1/32"]), ["10.0.0.0/32", "10.0.0.2/31"]);
        assert_eq!(left("10.0.0.0/30", &["10.0.0.0/31", "10.0.0.0/32"]), ["10.0.0.2/31"]);
        assert_eq!(left("10.0.0.0/30", &["10.0.0.0/8"]), [""; 0]);
        assert_eq!(left("10.0.0.0/30", &["192.0.2.0/24", "fd00::/8"]), ["10.0.0.0/30"]);
        assert_eq!(left("::/0", &["8000::/1"]), ["::/1"]);
        let overlapping = ["10.0.0.0/25", "10.0.0.128/25", "10.0.0.5/32"].map(|text| text.parse().unwrap());
        assert_eq!(merged(overlapping.to_vec()), ["10.0.0.0/24".parse::<IpNet>().unwrap()]);
        assert!(networks(&block("10.0.0.0", &[])).is_err());
        assert!(networks(&block("10.0.0.0/8", &["all"])).is_err());
    }

    fn net((last, length): (u8, u8)) -> IpNet {
        IpNet::new([10, 0, 0, last].into(), length).unwrap().trunc()
    }

    proptest! {
        #[test]
        fn an_address_is_in_what_is_left_just_if_it_is_in_the_block_and_in_no_exception(
            cidr in (any::<u8>(), 24u8..=32),
            except in prop::collection::vec((any::<u8>(), 24u8..=32), 0..4),
            last in any::<u8>(),
        ) {
            let (cidr, except) = (net(cidr), except.into_iter().map(net).collect::<Vec<_>>());
            let texts = except.iter().map(ToString::to_string).collect();
            let left = networks(&IPBlock { cidr: cidr.to_string(), except: Some(texts) }).unwrap();
            let address: std::net::IpAddr = [10, 0, 0, last].into();
            let found = left.iter().filter(|left| left.contains(&address)).count();
            let expected = cidr.contains(&address) && !except.iter().any(|except| except.contains(&address));
            prop_assert_eq!(found, usize::from(expected));
        }
    }
}
