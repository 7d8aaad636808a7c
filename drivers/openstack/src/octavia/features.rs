//! The features of an Octavia release, according to its newest API version.

use staffetta_driver::{ClusterId, Owner, Protocol};

use crate::mark;

/// The query parameters that filter a list.
pub(super) type Filter = Vec<(&'static str, String)>;

/// The features of an Octavia release. The versions in these comments are versions of its API, which Octavia lists at its root URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each feature exists independently of the others")]
pub(super) struct Features {
    /// Tags of resources; since API version 2.5.
    pub(super) tags: bool,
    /// Additions to the members of a pool that leave the others (`additive_only`); since API version 2.11.
    pub(super) additive_members: bool,
    /// The field `allowed_cidrs` of a listener; since API version 2.12.
    pub(super) allowed_cidrs: bool,
    /// Several listeners with different protocols at one port; since API version 2.13.
    pub(super) same_port: bool,
    /// Listeners with the protocol SCTP; since API version 2.23.
    pub(super) sctp: bool,
    /// Session affinity with the provider `ovn`; since API version 2.26, because OVN supports it since its release 22.12. Older
    /// providers accept the option, but it has no effect.
    pub(super) ovn_affinity: bool,
    /// The field `vip_sg_ids` of a load balancer; since API version 2.29.
    pub(super) vip_groups: bool,
}

impl Features {
    /// Returns the features of a release with this newest API version.
    pub(super) fn of(version: (u32, u32)) -> Self {
        Self {
            tags: version >= (2, 5),
            additive_members: version >= (2, 11),
            allowed_cidrs: version >= (2, 12),
            same_port: version >= (2, 13),
            sctp: version >= (2, 23),
            ovn_affinity: version >= (2, 26),
            vip_groups: version >= (2, 29),
        }
    }

    /// Returns `true` if listeners may have this protocol.
    pub(super) fn serves(self, protocol: Protocol) -> bool {
        self.sctp || protocol != Protocol::Sctp
    }

    /// Returns the filter for the load balancers of a cluster or, if `owner` is given, of one owner. It is empty if the release has no
    /// tags.
    pub(super) fn filter(self, cluster: &ClusterId, owner: Option<&Owner>) -> Filter {
        self.tags.then(|| ("tags", mark::tags(cluster, owner).join(","))).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_the_features_of_its_version_and_of_older_ones() {
        let of = |minor| {
            let features = Features::of((2, minor));
            let Features { tags, additive_members, allowed_cidrs, same_port, .. } = features;
            let Features { sctp, ovn_affinity, vip_groups, .. } = features;
            let all = [tags, additive_members, allowed_cidrs, same_port, sctp, ovn_affinity, vip_groups];
            all.into_iter().filter(|has| *has).count()
        };
        let counts = [0, 4, 5, 10, 11, 12, 13, 22, 23, 25, 26, 28, 29, 30].map(of);
        assert_eq!(counts, [0, 0, 1, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
        assert!(!Features::of((2, 22)).serves(Protocol::Sctp) && Features::of((2, 0)).serves(Protocol::Udp));
    }

    #[test]
    fn load_balancers_are_filtered_by_their_tags_where_there_are_any() {
        let owner = Owner { namespace: "shop".into(), name: "web".into(), uid: "u1".into() };
        let tags = |owner| Features::of((2, 5)).filter(&"east".into(), owner);
        assert_eq!(tags(None), [("tags", "staffetta:cluster=east".to_owned())]);
        assert_eq!(tags(Some(&owner)), [("tags", "staffetta:cluster=east,staffetta:uid=u1".to_owned())]);
        assert_eq!(Features::of((2, 4)).filter(&"east".into(), None), []);
    }
}
