//! Ownership marks: the descriptions and tags on resources of the cloud by which a cluster recognizes the resources that it created.
//!
//! The description of a resource is its mark, because every release of Neutron and Octavia accepts a description in the request that
//! creates the resource. The mark is a list of words `key=value`, separated by spaces. The first word names the cluster. If the release
//! also accepts tags in that request, two tags repeat the cluster and the UID of the owner, so that lists can be filtered by them. A tag
//! has at most 60 characters, which every release allows.

use std::fmt;
use std::net::IpAddr;

use staffetta_driver::{ClusterId, ExistingMark, GroupName, Owner, PortId, Uid};

use crate::text::{self, is_well_formed};

/// The key of the first word of each mark, which names the cluster.
const CLUSTER: &str = "staffetta:cluster";
/// The key of the word of a mark, or of the tag, that contains the UID of the owner.
const UID: &str = "staffetta:uid";
/// The key of the word of a mark that contains the namespace and name of the owner.
const NAME: &str = "staffetta:name";
/// The key of the word of a mark that contains the name of a security group within the cluster.
const GROUP: &str = "staffetta:group";

/// Returns the tag of all resources of a cluster. A cluster id has at most 32 characters.
pub(crate) fn cluster_tag(cluster: &ClusterId) -> String {
    format!("{CLUSTER}={cluster}")
}

/// Returns the tag of the resources of the owner with this UID.
pub(crate) fn uid_tag(uid: &Uid) -> String {
    format!("{UID}={uid}")
}

/// Returns the tags of the resources of a cluster or, if `owner` is given, of one owner. Joined by commas, the tags are also the value of
/// the filter that lists these resources.
pub(crate) fn tags(cluster: &ClusterId, owner: Option<&Owner>) -> Vec<String> {
    [cluster_tag(cluster)].into_iter().chain(owner.map(|owner| uid_tag(&owner.uid))).collect()
}

/// Parses a tag that [`uid_tag`] made and returns its UID, or `None` for any other tag.
pub(crate) fn uid_of(tag: &str) -> Option<Uid> {
    let uid = tag.strip_prefix(UID)?.strip_prefix('=')?;
    is_uid(uid).then(|| uid.into())
}

/// Returns `true` if `uid` has the form of a UID: 1 to 63 letters, digits, hyphens, underscores and dots. A UID from a mark is checked with
/// this function before it becomes part of a URL, because other users can write descriptions and tags.
pub(crate) fn is_uid(uid: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&uid.len()) && uid.bytes().all(is_allowed)
}

/// Returns `true` if the description or one of the tags is the ownership mark of any cluster.
pub(crate) fn is_marked(description: &str, tags: &[String]) -> bool {
    let is_mark = |text: &str| text.strip_prefix(CLUSTER).is_some_and(|rest| rest.starts_with('='));
    is_mark(description) || tags.iter().any(|tag| is_mark(tag))
}

/// Returns the ownership mark of a resource of `owner`, as the description of the resource.
pub(crate) fn description(cluster: &ClusterId, owner: &Owner) -> String {
    ResourceMark { cluster: cluster.clone(), group: None, owner: Some(owner.clone()) }.to_string()
}

/// Returns the owner that the ownership mark in a description names. Returns `None` if the description is not a mark of `cluster`, or if
/// the mark has no UID or no name.
pub(crate) fn owner_in(description: &str, cluster: &ClusterId) -> Option<Owner> {
    let mark = ResourceMark::parse(description).filter(|mark| mark.cluster == *cluster)?;
    mark.owner.filter(|owner| !owner.name.is_empty())
}

/// Classifies the ownership mark of a resource. `owner` is the owner that the mark names, if it is a mark of this cluster; the result is
/// then `Owned`. Without `owner`, the result is `Foreign` if the description or a tag is a mark of any cluster, and `Unmarked` if not.
pub(crate) fn classify(owner: Option<Owner>, description: &str, tags: &[String]) -> ExistingMark {
    match owner {
        Some(owner) => ExistingMark::Owned(owner),
        None if is_marked(description, tags) => ExistingMark::Foreign,
        None => ExistingMark::Unmarked,
    }
}

/// The parsed words of a description: first the id of the cluster, then the keys and values of all other
/// words, in order.
struct Words<'a>(&'a str, Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    /// Parses a description; `None` if its first word does not name a cluster.
    fn parse(description: &'a str) -> Option<Self> {
        let mut words = description.split_ascii_whitespace();
        let cluster = words.next()?.strip_prefix(CLUSTER)?.strip_prefix('=')?;
        Some(Self(cluster, words.filter_map(|word| word.split_once('=')).collect()))
    }

    /// Returns the value of a key; `None` if the description does not contain it.
    fn get(&self, key: &str) -> Option<&'a str> {
        self.1.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// Returns the owner whose UID is the value of the key `uid` and whose name is the value of the key `name`, or `None` without a valid
    /// UID. The name may be truncated.
    fn owner(&self, uid: &str, name: &str) -> Option<Owner> {
        let uid = self.get(uid).filter(|uid| is_uid(uid))?.into();
        let name = self.get(name).unwrap_or_default();
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        Some(Owner { namespace: namespace.to_owned(), name: name.to_owned(), uid })
    }
}

/// The ownership mark of a network, a load balancer, a floating IP or a security group. `Display` writes it as a description, which may
/// truncate the name of the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceMark {
    /// The id of the cluster that created the resource.
    pub(crate) cluster: ClusterId,
    /// The name of a security group within the cluster; `None` for other resources.
    pub(crate) group: Option<GroupName>,
    /// The Kubernetes object for which the resource was created, if there is one.
    pub(crate) owner: Option<Owner>,
}

impl ResourceMark {
    /// Parses a description, or returns `None` if it is not an ownership mark.
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
        f.write_str(&text::name(&words.join(" ")))
    }
}

/// The ownership mark of a Neutron port for pods: the cluster, the purpose of the port, and the node and parent of a nested port. The mark
/// never changes: a port that was created for a pod is never used by another pod, and the mark of a pooled port never names a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortMark {
    /// The id of the cluster that created the port.
    pub(crate) cluster: ClusterId,
    /// The purpose: the port of a pod, or a port of a pool.
    pub(crate) purpose: Purpose,
    /// The node and the parent of a nested port, otherwise `None`.
    pub(crate) nesting: Option<Nesting>,
}

/// The purpose for which a port was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The port of this pod. The pod's name may be truncated.
    Pod(Owner),
    /// A port of a VIF pool. The value is the name of the bulk request that created the
    /// port.
    Pool(String),
}

/// The node of a nested port, and the node's port or trunk that carries the traffic of the nested port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Nesting {
    /// The address of the node in Kubernetes.
    pub(crate) host: IpAddr,
    /// The trunk or the port of the node.
    pub(crate) parent: Parent,
}

/// The resource of the node that carries the traffic of a nested port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Parent {
    /// A trunk, and the VLAN id that was reserved on it for the port. The VLAN is `None` for a pooled port, which gets its VLAN when it is
    /// added to the trunk.
    Trunk { id: String, vlan: Option<u16> },
    /// The port of the node, whose allowed address pairs include the addresses of the nested port.
    Port(PortId),
}

impl PortMark {
    /// Returns the ownership tags of the port: the tag of the cluster and, for the port of a pod, the tag of the pod's UID.
    pub(crate) fn tags(&self) -> Vec<String> {
        tags(&self.cluster, self.owner())
    }

    /// Returns the pod that owns the port, or `None` for a pooled port.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        match &self.purpose {
            Purpose::Pod(owner) => Some(owner),
            Purpose::Pool(_) => None,
        }
    }

    /// Returns the trunk of a subport, with the VLAN id that was reserved for it (`None` for a pooled port). Returns `None` if the port is
    /// not to be a subport.
    pub(crate) fn trunk(&self) -> Option<(&str, Option<u16>)> {
        match &self.nesting.as_ref()?.parent {
            Parent::Trunk { id, vlan } => Some((id, *vlan)),
            Parent::Port(_) => None,
        }
    }

    /// Returns the port of the node whose allowed address pairs include the addresses of this nested port, or `None` for a subport and for
    /// a port that is not nested.
    pub(crate) fn parent_port(&self) -> Option<&PortId> {
        match &self.nesting.as_ref()?.parent {
            Parent::Trunk { .. } => None,
            Parent::Port(id) => Some(id),
        }
    }

    /// Parses the description of a port. Returns `None` if it is not the ownership mark of a pod's or a pool's port, or if the id of the
    /// trunk or the parent port in it does not have the form of an id.
    pub(crate) fn parse(description: &str) -> Option<Self> {
        let words = Words::parse(description)?;
        let pod = words.owner("uid", "pod").map(Purpose::Pod);
        let purpose = pod.or_else(|| Some(Purpose::Pool(words.get("batch")?.to_owned())))?;
        let vlan = words.get("vlan").and_then(|vlan| vlan.parse().ok());
        if ["trunk", "port"].iter().any(|key| words.get(key).is_some_and(|id| !is_well_formed(id))) {
            return None;
        }
        let trunk = words.get("trunk").map(|id| Parent::Trunk { id: id.to_owned(), vlan });
        let parent = trunk.or_else(|| Some(Parent::Port(words.get("port")?.into())));
        let host = words.get("host").and_then(|host| host.parse().ok());
        let nesting = host.zip(parent).map(|(host, parent)| Nesting { host, parent });
        Some(Self { cluster: words.0.into(), purpose, nesting })
    }
}

/// Writes the mark as a description. The name of the pod comes last, because a description of more than 255 characters is truncated.
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
        f.write_str(&text::name(&words.join(" ")))
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
        assert!(text.len() <= 255);
        let read = ResourceMark::parse(&text).unwrap();
        assert_eq!((&read.group, read.owner.unwrap().uid), (&resource.group, UID.into()));
        let port = PortMark {
            cluster: cluster.into(),
            purpose: Purpose::Pod(long),
            nesting: Some(trunk(Some(4094))),
        };
        let text = port.to_string();
        assert_eq!(text.len(), 255);
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
    fn what_is_no_id_in_a_mark_is_never_taken_for_a_path() {
        let port = |words: &str| PortMark::parse(&format!("staffetta:cluster=east host=10.0.0.7 {words}"));
        assert!(port("trunk=7b vlan=7 uid=u-1 pod=shop/web").is_some());
        for words in [
            "trunk=../networks/7b vlan=7 uid=u-1 pod=shop/web",
            "port=7b/../../networks uid=u-1 pod=shop/web",
            "port=7b?x=y batch=1",
            "trunk=7b uid=../u-1 pod=shop/web",
        ] {
            assert_eq!(port(words), None, "{words}");
        }
        assert_eq!(uid_of("staffetta:uid=../u-1"), None);
        assert_eq!(
            owner_in("staffetta:cluster=east staffetta:uid=a/b staffetta:name=shop/web", &"east".into()),
            None
        );
    }

    #[test]
    fn the_mark_of_a_port_is_read_back() {
        let port = Nesting { host: "10.0.0.7".parse().unwrap(), parent: Parent::Port("b-1".into()) };
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
