//! What a release of Octavia can do, by the newest version that it tells.

use staffetta_driver::Protocol;

/// What a release can do. The versions are those of Octavia's list at its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a thing that a release has or lacks by itself")]
pub(super) struct Features {
    /// Tags, since 2.5.
    pub(super) tags: bool,
    /// `allowed_cidrs` of a listener, since 2.12.
    pub(super) allowed_cidrs: bool,
    /// Several listeners at one port, each of another protocol, since 2.13.
    pub(super) same_port: bool,
    /// SCTP, since 2.23.
    pub(super) sctp: bool,
    /// Session affinity by the provider `ovn`: OVN has it since its release 22.12, which came after 2.26. Providers before that
    /// take it and do not keep it.
    pub(super) ovn_affinity: bool,
    /// `vip_sg_ids` of a load balancer, since 2.29.
    pub(super) vip_groups: bool,
}

impl Features {
    pub(super) fn of(version: (u32, u32)) -> Self {
        Self {
            tags: version >= (2, 5),
            allowed_cidrs: version >= (2, 12),
            same_port: version >= (2, 13),
            sctp: version >= (2, 23),
            ovn_affinity: version >= (2, 26),
            vip_groups: version >= (2, 29),
        }
    }

    /// Whether there are listeners of that protocol.
    pub(super) fn serves(self, protocol: Protocol) -> bool {
        self.sctp || protocol != Protocol::Sctp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_can_do_what_came_with_its_version_or_before() {
        let of = |minor| {
            let Features { tags, allowed_cidrs, same_port, sctp, ovn_affinity, vip_groups } =
                Features::of((2, minor));
            let all = [tags, allowed_cidrs, same_port, sctp, ovn_affinity, vip_groups];
            all.into_iter().filter(|has| *has).count()
        };
        let gained = [0, 4, 5, 11, 12, 13, 22, 23, 25, 26, 28, 29, 30].map(of);
        assert_eq!(gained, [0, 0, 1, 1, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
        assert!(!Features::of((2, 22)).serves(Protocol::Sctp) && Features::of((2, 0)).serves(Protocol::Udp));
    }
}
