//! Blocks of addresses, and what is left of them without their exceptions.

use ipnet::IpNet;
use k8s_openapi::api::networking::v1::IPBlock;

/// The networks that together are just the block. Where they are more than `most`, not all of them, but more than `most`.
/// Fails with the text in it that is no network.
pub(super) fn networks(block: &IPBlock, most: usize) -> Result<Vec<IpNet>, String> {
    let read = |text: &String| {
        text.parse::<IpNet>().map(|net| net.trunc()).map_err(|_| format!("`{text}` is no block of addresses"))
    };
    let net = read(&block.cidr)?;
    let except = merged(block.except.iter().flatten().map(read).collect::<Result<_, _>>()?);
    let mut left = Vec::new();
    if !except.iter().any(|except| except.contains(&net)) {
        let inside: Vec<_> = except.into_iter().filter(|except| net.contains(except)).collect();
        cut(net, &inside, most, &mut left);
    }
    Ok(left)
}

/// The fewest networks that together are just these.
pub(super) fn merged(mut networks: Vec<IpNet>) -> Vec<IpNet> {
    networks = IpNet::aggregate(&networks);
    networks.sort();
    networks
}

/// What is left of a network without others within it, which are sorted and apart from each other: the halves of it that are
/// touched are cut in their turn. It ends when more than `most` are left.
fn cut(net: IpNet, except: &[IpNet], most: usize, left: &mut Vec<IpNet>) {
    match except {
        _ if left.len() > most => {}
        [] => left.push(net),
        [all] if *all == net => {}
        _ => {
            let mut rest = except;
            for half in net.subnets(net.prefix_len() + 1).into_iter().flatten() {
                let (inside, others) = rest.split_at(rest.partition_point(|except| half.contains(except)));
                cut(half, inside, most, left);
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
    fn exceptions_are_cut_out_and_what_overlaps_is_merged() {
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
        fn an_address_is_in_what_is_left_just_if_it_is_in_the_block_and_in_no_exception(
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
            if let Some(most) = left.len().checked_sub(1) {
                prop_assert_eq!(networks(&block, most).unwrap().len(), left.len());
            }
        }
    }
}
