//! Ownership marks: the descriptions and tags by which the resources of a cluster are recognized.
//!
//! The mark is the description, which every release of Neutron and Octavia accepts in the request that creates a resource. It is a
//! list of words `key=value`, of which the first names the cluster. Tags, where they are accepted in that request, repeat the
//! cluster and the UID for filters: at most 60 characters each, which every release allows.

use std::fmt;
use std::net::IpAddr;

use staffetta_driver::{ClusterId, GroupName, Owner, PortId, Uid};

const CLUSTER: &str = "staffetta:cluster";
const UID: &str = "staffetta:uid";
const NAME: &str = "staffetta:name";
const GROUP: &str = "staffetta:group";

/// The longest description that every release accepts, in characters.
const MAX_DESCRIPTION: usize = 255;

/// The tag of all resources of a cluster. A cluster id has at most 32 characters.
pub(crate) fn cluster_tag(cluster: &ClusterId) -> String {
    format!("{CLUSTER}={cluster}")
}

/// The tag of the resources of one owner.
pub(crate) fn uid_tag(uid: &Uid) -> String {
    format!("{UID}={uid}")
}

/// The tags of the resources of a cluster, or of one owner. Joined by commas, they are the filter for these resources.
pub(crate) fn tags(cluster: &ClusterId, owner: Option<&Owner>) -> Vec<String> {
    [cluster_tag(cluster)].into_iter().chain(owner.map(|owner| uid_tag(&owner.uid))).collect()
}

/// The UID in a tag of [`uid_tag`].
pub(crate) fn uid_of(tag: &str) -> Option<Uid> {
    Some(tag.strip_prefix(UID)?.strip_prefix('=')?.into())
}

/// Returns `true` if the description or a tag is the mark of any cluster.
pub(crate) fn is_marked(description: &str, tags: &[String]) -> bool {
    let is_mark = |text: &str| text.strip_prefix(CLUSTER).is_some_and(|rest| rest.starts_with('='));
    is_mark(description) || tags.iter().any(|tag| is_mark(tag))
}

/// The mark of a resource of `owner`, as a description.
pub(crate) fn description(cluster: &ClusterId, owner: &Owner) -> String {
    ResourceMark { cluster: cluster.clone(), group: None, owner: Some(owner.clone()) }.to_string()
}

/// The owner in a description, or `None` if it is not a mark of `cluster`.
pub(crate) fn owner_in(description: &str, cluster: &ClusterId) -> Option<Owner> {
    let mark = ResourceMark::parse(description).filter(|mark| mark.cluster == *cluster)?;
    mark.owner.filter(|owner| !owner.name.is_empty())
}

/// The words of a description: its cluster, and the others as keys and values.
struct Words<'a>(&'a str, Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    fn parse(description: &'a str) -> Option<Self> {
        let mut words = description.split_ascii_whitespace();
        let cluster = words.next()?.strip_prefix(CLUSTER)?.strip_prefix('=')?;
        Some(Self(cluster, words.filter_map(|word| word.split_once('=')).collect()))
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.1.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// The owner by the keys of its UID and its name. The name may be truncated.
    fn owner(&self, uid: &str, name: &str) -> Option<Owner> {
        let uid = self.get(uid)?.into();
        let name = self.get(name).unwrap_or_default();
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        Some(Owner { namespace: namespace.to_owned(), name: name.to_owned(), uid })
    }
}

fn write(f: &mut fmt::Formatter<'_>, words: &[String]) -> fmt::Result {
    f.write_str(&words.join(" ").chars().take(MAX_DESCRIPTION).collect::<String>())
}

/// The mark of a network, a load balancer, a floating IP or a security group. Its description may truncate the name of the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceMark {
    pub(crate) cluster: ClusterId,
    /// The name of a security group within the cluster.
    pub(crate) group: Option<GroupName>,
    pub(crate) owner: Option<Owner>,
}

impl ResourceMark {
    pub(crate) fn parse(description: &str) -> Option<Self> {
        let words = Words::parse(description)?;
        let group = words.get(GROUP).map(GroupName::from);
        Some(Self { cluster: words.0.into(), group, owner: words.owner(UID, NAME) })
    }
}

impl fmt::Display for ResourceMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = vec![cluster_tag(&self.cluster)];
        words.extend(self.group.iter().map(|group| format!("{GROUP}={group}")));
        if let Some(Owner { namespace, name, uid }) = &self.owner {
            let slash = if namespace.is_empty() { "" } else { "/" };
            words.extend([uid_tag(uid), format!("{NAME}={namespace}{slash}{name}")]);
        }
        write(f, &words)
    }
}

/// The mark of a port: its purpose, and the port or trunk that it is nested in. It never changes: a port for a pod is never used by
/// another pod, and a pooled port never names a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortMark {
    pub(crate) cluster: ClusterId,
    pub(crate) purpose: Purpose,
    /// The parent of a nested port.
    pub(crate) nesting: Option<Nesting>,
}

/// The purpose of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A pod. Its name may be truncated.
    Pod(Owner),
    /// A pool; the value is the name of the bulk request that created the port.
    Pool(String),
}

/// The parent of a nested port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nesting {
    /// The address of the node.
    pub(crate) host: IpAddr,
    pub(crate) parent: Parent,
}

/// The resource of the node that contains a nested port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// A trunk, with the VLAN that was reserved for the port; a pooled port gets its VLAN later.
    Trunk { id: String, vlan: Option<u16> },
    /// A port whose address pairs include those of the nested port.
    Port(PortId),
}

impl PortMark {
    /// The tags for filters.
    pub(crate) fn tags(&self) -> Vec<String> {
        tags(&self.cluster, self.owner())
    }

    /// The pod, or `None` for a pooled port.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        match &self.purpose {
            Purpose::Pod(owner) => Some(owner),
            Purpose::Pool(_) => None,
        }
    }

    /// The trunk of a subport, with the VLAN that was reserved for it.
    pub(crate) fn trunk(&self) -> Option<(&str, Option<u16>)> {
        match &self.nesting.as_ref()?.parent {
            Parent::Trunk { id, vlan } => Some((id, *vlan)),
            Parent::Port(_) => None,
        }
    }

    /// The port whose address pairs include those of a nested port.
    pub(crate) fn parent_port(&self) -> Option<&PortId> {
        match &self.nesting.as_ref()?.parent {
            Parent::Trunk { .. } => None,
            Parent::Port(id) => Some(id),
        }
    }

    /// Parses a description, or returns `None` if it is not a mark.
    pub(crate) fn parse(description: &str) -> Option<Self> {
        let words = Words::parse(description)?;
        let pod = words.owner("uid", "pod").map(Purpose::Pod);
        let purpose = pod.or_else(|| Some(Purpose::Pool(words.get("batch")?.to_owned())))?;
        let vlan = words.get("vlan").and_then(|vlan| vlan.parse().ok());
        let trunk = words.get("trunk").map(|id| Parent::Trunk { id: id.to_owned(), vlan });
        let parent = trunk.or_else(|| Some(Parent::Port(words.get("port")?.into())));
        let host = words.get("host").and_then(|host| host.parse().ok());
        let nesting = host.zip(parent).map(|(host, parent)| Nesting { host, parent });
        Some(Self { cluster: words.0.into(), purpose, nesting })
    }
}

/// Writes the description. The name of the pod comes last, since a description that is too long is truncated.
impl fmt::Display for PortMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = vec![cluster_tag(&self.cluster)];
        if let Some(Nesting { host, parent }) = &self.nesting {
            words.push(format!("host={host}"));
            match parent {
                Parent::Trunk { id, vlan } => {
                    words.push(format!("trunk={id}"));
                    words.extend(vlan.map(|vlan| format!("vlan={vlan}")));
                }
                Parent::Port(id) => words.push(format!("port={id}")),
            }
        }
        match &self.purpose {
            Purpose::Pod(Owner { namespace, name, uid }) => {
                words.extend([format!("uid={uid}"), format!("pod={namespace}/{name}")]);
            }
            Purpose::Pool(batch) => words.push(format!("batch={batch}")),
        }
        write(f, &words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn owner(namespace: &str, name: &str) -> Owner {
        Owner { namespace: namespace.into(), name: name.into(), uid: UID.into() }
    }

    fn trunk(vlan: Option<u16>) -> Nesting {
        let parent = Parent::Trunk { id: "7bdb2a36-6a5c-4f4e-9a55-2c7f6f0f3a11".into(), vlan };
        Nesting { host: "fd00:1111:2222:3333:4444:5555:6666:7777".parse().unwrap(), parent }
    }

    #[test]
    fn the_owner_in_a_description_is_read_back() {
        for owner in [owner("shop", "web"), owner("", "shop")] {
            let text = description(&"east".into(), &owner);
            assert_eq!(owner_in(&text, &"east".into()), Some(owner.clone()), "{text}");
            assert_eq!(owner_in(&text, &"eas".into()), None);
            assert_eq!(owner_in(&text, &"east-2".into()), None);
        }
        let text = description(&"east".into(), &owner("shop", "web"));
        assert_eq!(text, format!("staffetta:cluster=east staffetta:uid={UID} staffetta:name=shop/web"));
        for text in ["", "mine", "staffetta:cluster=east", "staffetta:cluster=east staffetta:uid=u1"] {
            assert_eq!(owner_in(text, &"east".into()), None, "{text}");
        }
    }

    #[test]
    fn a_resource_is_marked_by_its_description_or_a_tag() {
        let tags = ["other".to_owned(), cluster_tag(&"east".into())];
        assert!(is_marked("mine", &tags) && is_marked("staffetta:cluster=west uid=u1", &[]));
        assert!(!is_marked("mine", &tags[..1]));
    }

    #[test]
    fn tags_fit_into_60_characters_and_descriptions_into_255() {
        let cluster = "c".repeat(32);
        assert!(cluster_tag(&cluster.as_str().into()).len() <= 60 && uid_tag(&UID.into()).len() <= 60);
        assert_eq!(uid_of(&uid_tag(&UID.into())), Some(UID.into()));
        let long = owner(&"n".repeat(63), &"x".repeat(253));
        let resource = ResourceMark {
            cluster: cluster.as_str().into(),
            group: Some(format!("policy-{UID}-{}", "d".repeat(40)).as_str().into()),
            owner: Some(long.clone()),
        };
        let text = resource.to_string();
        assert!(text.len() <= MAX_DESCRIPTION);
        let read = ResourceMark::parse(&text).unwrap();
        assert_eq!((&read.group, read.owner.unwrap().uid), (&resource.group, UID.into()));
        let port = PortMark {
            cluster: cluster.into(),
            purpose: Purpose::Pod(long),
            nesting: Some(trunk(Some(4094))),
        };
        let text = port.to_string();
        assert_eq!(text.len(), MAX_DESCRIPTION);
        let read = PortMark::parse(&text).unwrap();
        assert_eq!((&read.cluster, &read.nesting), (&port.cluster, &port.nesting));
        assert_eq!(read.owner().unwrap().uid, UID.into());
        assert!(
            port.tags().len() == 2 && port.tags().iter().all(|tag| tag.len() <= 60 && !tag.contains(','))
        );
    }

    #[test]
    fn the_mark_of_a_security_group_is_read_back() {
        for owner in [None, Some(owner("shop", "web"))] {
            let mark = ResourceMark { cluster: "east".into(), group: Some("policy-u1".into()), owner };
            let text = mark.to_string();
            assert_eq!(ResourceMark::parse(&text), Some(mark), "{text}");
        }
    }

    #[test]
    fn the_mark_of_a_port_is_read_back() {
        let port = Nesting { host: "10.0.0.7".parse().unwrap(), parent: Parent::Port("p-1".into()) };
        for purpose in [Purpose::Pod(owner("shop", "web-1")), Purpose::Pool("00ff-1".into())] {
            for nesting in [None, Some(trunk(None)), Some(trunk(Some(7))), Some(port.clone())] {
                let mark = PortMark { cluster: "east".into(), purpose: purpose.clone(), nesting };
                assert_eq!(PortMark::parse(&mark.to_string()), Some(mark.clone()), "{mark}");
            }
        }
        for description in
            ["", "staffetta:cluster=east", "my staffetta:cluster=east uid=1", "cluster=a uid=b"]
        {
            assert_eq!(PortMark::parse(description), None, "{description}");
        }
        let vip = description(&"east".into(), &owner("shop", "web"));
        assert_eq!(PortMark::parse(&vip), None, "the port of a virtual address is not one of a pod");
    }
}
