//! Ownership marks of ports: by what a port says for whom it was made.

use std::fmt;
use std::net::IpAddr;

use staffetta_driver::{ClusterId, Owner, PortId};

use crate::mark::{cluster_tag, uid_tag};

/// What a port's `device_owner` says of all that this program makes. Kuryr looks for `compute:kuryr` and removes what of
/// it lacks its own marks, so ours has a name of its own; the prefix is that of all machines.
pub(crate) const DEVICE_OWNER: &str = "compute:staffetta";
/// What Neutron makes of a port's `device_owner` once it is a subport.
pub(crate) const SUBPORT_OWNER: &str = "trunk:subport";
/// What Kuryr's ports say.
pub(crate) const KURYR_OWNER: &str = "compute:kuryr";

/// The longest description that Neutron takes, in characters.
const LONGEST: usize = 255;

/// For whom a port was made, and of what it is a part. It stands in the port's description from its first moment, for it
/// is the one attribute that every Neutron has and nobody else uses; tags repeat what lists are filtered by.
///
/// The mark of a port never changes: one that was made for a pod is never another's, and one that was made for a pool
/// never names a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The cluster.
    pub(crate) cluster: ClusterId,
    /// For whom.
    pub(crate) purpose: Purpose,
    /// Of what the port is a part, when its pod lives inside of another port.
    pub(crate) nesting: Option<Nesting>,
}

/// For whom a port was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For this pod. The name may be cut off at its end.
    Pod(Owner),
    /// For whoever comes, by the call of this name.
    Stock(String),
}

/// The port of a node, inside of which another one lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nesting {
    /// The address by which the node was asked for.
    pub(crate) host: IpAddr,
    /// The node's trunk for a subport, its port for a pair of addresses.
    pub(crate) parent: Parent,
}

/// Of what a nested port is a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// A trunk, with the VLAN that was meant for the port; one that was made for a pool gets its VLAN later.
    Trunk {
        /// The trunk.
        id: String,
        /// The VLAN.
        vlan: Option<u16>,
    },
    /// A port.
    Port(PortId),
}

impl Mark {
    /// The tags that lists are filtered by. Each has at most 60 characters, which every Neutron takes.
    pub(crate) fn tags(&self) -> Vec<String> {
        let cluster = cluster_tag(&self.cluster);
        match &self.purpose {
            Purpose::Pod(owner) => vec![cluster, uid_tag(&owner.uid)],
            Purpose::Stock(_) => vec![cluster],
        }
    }

    /// The owner; none of a port in stock.
    pub(crate) fn owner(&self) -> Option<&Owner> {
        match &self.purpose {
            Purpose::Pod(owner) => Some(owner),
            Purpose::Stock(_) => None,
        }
    }

    /// Reads a description; none of a port that is not marked.
    pub(crate) fn read(description: &str) -> Option<Self> {
        let mut words = description.split_ascii_whitespace();
        let cluster = words.next()?.strip_prefix(cluster_tag(&ClusterId::default()).as_str())?;
        let words: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
        let value = |wanted| words.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
        let purpose = match (value("uid"), value("batch")) {
            (Some(uid), _) => {
                let (namespace, name) = value("pod").and_then(|pod| pod.split_once('/')).unwrap_or_default();
                Purpose::Pod(Owner { namespace: namespace.into(), name: name.into(), uid: uid.into() })
            }
            (None, batch) => Purpose::Stock(batch?.to_owned()),
        };
        let parent = match (value("trunk"), value("port")) {
            (Some(id), _) => Some(Parent::Trunk {
                id: id.to_owned(),
                vlan: value("vlan").and_then(|vlan| vlan.parse().ok()),
            }),
            (None, port) => port.map(|port| Parent::Port(port.into())),
        };
        let nesting = value("host").and_then(|host| host.parse().ok()).zip(parent);
        let nesting = nesting.map(|(host, parent)| Nesting { host, parent });
        Some(Self { cluster: cluster.into(), purpose, nesting })
    }
}

/// The description. The pod comes last: should all of it be too long, a part of its name is missing.
impl fmt::Display for Mark {
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
            Purpose::Stock(batch) => words.push(format!("batch={batch}")),
        }
        f.write_str(&words.join(" ").chars().take(LONGEST).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Owner {
        let uid = "0f9b2a36-6a5c-4f4e-9a55-2c7f6f0f3a11".into();
        Owner { namespace: "n".repeat(63), name: name.into(), uid }
    }

    fn trunk(vlan: Option<u16>) -> Nesting {
        let parent = Parent::Trunk { id: "7bdb2a36-6a5c-4f4e-9a55-2c7f6f0f3a11".into(), vlan };
        Nesting { host: "fd00:1111:2222:3333:4444:5555:6666:7777".parse().unwrap(), parent }
    }

    #[test]
    fn a_mark_is_read_as_it_is_written() {
        let port = Nesting { host: "10.0.0.7".parse().unwrap(), parent: Parent::Port("p-1".into()) };
        let cluster: ClusterId = "east".into();
        for purpose in [Purpose::Pod(owner("web-1")), Purpose::Stock("00ff-1".into())] {
            for nesting in [None, Some(trunk(None)), Some(trunk(Some(7))), Some(port.clone())] {
                let mark = Mark { cluster: cluster.clone(), purpose: purpose.clone(), nesting };
                assert_eq!(Mark::read(&mark.to_string()), Some(mark.clone()), "{mark}");
            }
        }
    }

    #[test]
    fn of_a_mark_that_is_too_long_a_part_of_the_pods_name_is_missing_and_nothing_else() {
        let purpose = Purpose::Pod(owner(&"x".repeat(253)));
        let mark = Mark { cluster: "c".repeat(32).into(), purpose, nesting: Some(trunk(Some(4094))) };
        let text = mark.to_string();
        assert_eq!(text.len(), LONGEST);
        let read = Mark::read(&text).unwrap();
        assert_eq!((&read.cluster, &read.nesting), (&mark.cluster, &mark.nesting));
        assert_eq!(read.owner().unwrap().uid, mark.owner().unwrap().uid);
    }

    #[test]
    fn every_tag_is_one_that_the_oldest_clouds_take() {
        let mark = Mark { cluster: "c".repeat(32).into(), purpose: Purpose::Pod(owner("a")), nesting: None };
        let tags = mark.tags();
        assert_eq!(tags.len(), 2);
        assert!(tags.iter().all(|tag| tag.len() <= 60 && !tag.contains(',')), "{tags:?}");
    }

    #[test]
    fn what_others_write_is_no_mark() {
        for description in
            ["", "staffetta:cluster=east", "my staffetta:cluster=east uid=1", "cluster=a uid=b"]
        {
            assert_eq!(Mark::read(description), None, "{description}");
        }
    }
}
