//! Ownership marks: how what this cluster made is told from what others made.
//!
//! The mark is the description, which every release of Neutron takes in the call that makes a thing. It begins with the words
//! that are a tag too, where tags are taken in that call: at most 60 characters, which every release allows.

use staffetta_driver::{ClusterId, Owner, Uid};

const CLUSTER: &str = "staffetta:cluster=";
const UID: &str = "staffetta:uid=";
const NAME: &str = "staffetta:name=";

/// The tag of everything that a cluster made. A cluster id has at most 32 characters.
pub fn cluster_tag(cluster: &ClusterId) -> String {
    format!("{CLUSTER}{cluster}")
}

/// The tag of what was made for one object.
pub fn uid_tag(uid: &Uid) -> String {
    format!("{UID}{uid}")
}

/// The UID in a tag that [`uid_tag`] made.
pub fn uid_of(tag: &str) -> Option<Uid> {
    tag.strip_prefix(UID).map(Uid::from)
}

/// Whether what has this description and these tags was made by any cluster.
pub fn is_marked(description: &str, tags: &[String]) -> bool {
    description.starts_with(CLUSTER) || tags.iter().any(|tag| tag.starts_with(CLUSTER))
}

/// The description of what was made for one object of a cluster, and cannot be tagged at once.
pub fn description(cluster: &ClusterId, owner: &Owner) -> String {
    let name = match owner.namespace.as_str() {
        "" => owner.name.clone(),
        namespace => format!("{namespace}/{}", owner.name),
    };
    format!("{} {} {NAME}{name}", cluster_tag(cluster), uid_tag(&owner.uid))
}

/// Of which object a thing of `cluster` with this description is; none when the description is not one of that cluster's.
pub fn owner_in(description: &str, cluster: &ClusterId) -> Option<Owner> {
    let mut words = description.split(' ');
    words.next().filter(|word| *word == cluster_tag(cluster))?;
    let uid = uid_of(words.next()?)?;
    let name = words.next()?.strip_prefix(NAME)?;
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    Some(Owner { namespace: namespace.to_owned(), name: name.to_owned(), uid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(namespace: &str) -> Owner {
        Owner { namespace: namespace.into(), name: "web".into(), uid: "u1".into() }
    }

    #[test]
    fn what_a_description_says_is_read_back() {
        for owner in [owner("shop"), owner("")] {
            let text = description(&"east".into(), &owner);
            assert_eq!(owner_in(&text, &"east".into()), Some(owner.clone()), "{text}");
            assert_eq!(owner_in(&text, &"eas".into()), None);
            assert_eq!(owner_in(&text, &"east-2".into()), None);
        }
        for text in ["", "mine", "staffetta:cluster=east", "staffetta:cluster=east staffetta:uid=u1"] {
            assert_eq!(owner_in(text, &"east".into()), None, "{text}");
        }
    }

    #[test]
    fn a_thing_is_of_some_cluster_when_its_description_or_a_tag_says_so() {
        let tags = ["other".to_owned(), cluster_tag(&"east".into())];
        assert!(is_marked("mine", &tags) && is_marked("staffetta:cluster=west uid=u1", &[]));
        assert!(!is_marked("mine", &tags[..1]));
    }

    #[test]
    fn tags_fit_into_sixty_characters_and_descriptions_into_255() {
        let (cluster, uid) = ("c".repeat(32), "01234567-89ab-cdef-0123-456789abcdef");
        assert!(cluster_tag(&cluster.as_str().into()).len() <= 60 && uid_tag(&uid.into()).len() <= 60);
        let owner = Owner { namespace: String::new(), name: "n".repeat(63), uid: uid.into() };
        assert!(description(&cluster.into(), &owner).len() <= 255);
        assert_eq!(uid_of(&uid_tag(&uid.into())), Some(uid.into()));
    }
}
