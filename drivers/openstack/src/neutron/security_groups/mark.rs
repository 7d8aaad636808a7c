//! The mark of a security group: its description, which Neutron takes in the call that makes it.

use staffetta_driver::{ClusterId, GroupName, Owner, Uid};

use crate::mark::{cluster_tag, uid_of, uid_tag};

const GROUP: &str = "staffetta:group=";
const NAME: &str = "staffetta:name=";

/// The longest description that every release takes, in characters.
const LONGEST: usize = 255;

/// What a group is, to which cluster, and for whom it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) cluster: ClusterId,
    pub(super) name: GroupName,
    pub(super) owner: Option<Owner>,
}

impl Mark {
    /// Reads a description; none when it is no mark.
    pub(super) fn read(description: &str, cluster: &ClusterId) -> Option<Self> {
        let mut words = description.split(' ');
        words.next().filter(|word| *word == cluster_tag(cluster))?;
        let name = words.next()?.strip_prefix(GROUP)?.into();
        let uid: Option<Uid> = words.next().and_then(uid_of);
        let owner = uid.map(|uid| {
            let named = words.next().and_then(|word| word.strip_prefix(NAME)).unwrap_or_default();
            let (namespace, name) = named.split_once('/').unwrap_or(("", named));
            Owner { namespace: namespace.to_owned(), name: name.to_owned(), uid }
        });
        Some(Self { cluster: cluster.clone(), name, owner })
    }

    /// The description. What does not fit of it is a part of the owner's name.
    pub(super) fn description(&self) -> String {
        let mut words = vec![cluster_tag(&self.cluster), format!("{GROUP}{}", self.name)];
        if let Some(Owner { namespace, name, uid }) = &self.owner {
            words.extend([uid_tag(uid), format!("{NAME}{namespace}/{name}")]);
        }
        words.join(" ").chars().take(LONGEST).collect()
    }

    /// What a person reads in a list of groups.
    pub(super) fn title(&self) -> String {
        let title = match &self.owner {
            Some(Owner { namespace, name, .. }) => format!("{}/{namespace}/{name}", self.cluster),
            None => format!("{}/{}", self.cluster, self.name),
        };
        title.chars().take(LONGEST).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(name: &str, owner: Option<&str>) -> Mark {
        let uid: Uid = "01234567-89ab-cdef-0123-456789abcdef".into();
        let owner = owner.map(|name| Owner { namespace: "shop".into(), name: name.into(), uid: uid.clone() });
        Mark { cluster: "east".into(), name: name.into(), owner }
    }

    #[test]
    fn a_mark_is_read_as_it_is_written() {
        for mark in [mark("nodes", None), mark("policy-u1", Some("web"))] {
            let text = mark.description();
            assert_eq!(Mark::read(&text, &mark.cluster), Some(mark.clone()), "{text}");
            assert_eq!(Mark::read(&text, &"eas".into()), None);
            assert_eq!(Mark::read(&text, &"east-2".into()), None);
        }
        for text in ["", "mine", "staffetta:cluster=east", "staffetta:cluster=east staffetta:uid=u1"] {
            assert_eq!(Mark::read(text, &"east".into()), None, "{text}");
        }
    }

    #[test]
    fn of_a_mark_that_is_too_long_a_part_of_the_owners_name_is_missing_and_nothing_else() {
        let long = format!("policy-01234567-89ab-cdef-0123-456789abcdef-{}", "d".repeat(40));
        let mark = Mark { cluster: "c".repeat(32).into(), ..mark(&long, Some(&"x".repeat(253))) };
        let text = mark.description();
        assert!(text.len() <= LONGEST && mark.title().len() <= LONGEST);
        let read = Mark::read(&text, &mark.cluster).unwrap();
        assert_eq!((&read.name, read.owner.unwrap().uid), (&mark.name, mark.owner.unwrap().uid));
    }
}
