//! Which load balancers a list is to tell of.

use staffetta_driver::{ClusterId, Owner};

use super::api::Filter;
use super::features::Features;
use crate::mark::{cluster_tag, uid_tag};

/// What the load balancers of a cluster pass, or those of one owner. Before there were tags, all do.
pub(super) fn filter(features: Features, cluster: &ClusterId, owner: Option<&Owner>) -> Filter {
    if !features.tags {
        return Filter::new();
    }
    let uid = owner.map(|owner| format!(",{}", uid_tag(&owner.uid))).unwrap_or_default();
    vec![("tags", format!("{}{uid}", cluster_tag(cluster)))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_balancers_are_found_by_their_tags_where_there_are_any() {
        let owner = Owner { namespace: "shop".into(), name: "web".into(), uid: "u1".into() };
        let tags = |owner| filter(Features::of((2, 5)), &"east".into(), owner);
        assert_eq!(tags(None), [("tags", "staffetta:cluster=east".to_owned())]);
        assert_eq!(tags(Some(&owner)), [("tags", "staffetta:cluster=east,staffetta:uid=u1".to_owned())]);
        assert_eq!(filter(Features::of((2, 4)), &"east".into(), None), []);
    }
}
