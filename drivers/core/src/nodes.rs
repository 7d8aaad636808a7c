//! The nodes of the cluster, as far as pools need to know them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The nodes of the cluster, as far as pools need to know them: written by who watches them, read by pools.
#[derive(Debug, Default)]
pub struct Nodes(RwLock<HashMap<String, NodeFacts>>);

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// The VIF driver of its pods, as its label `pod_vif` names it.
    pub pod_vif: Option<String>,
}

impl Nodes {
    /// The node is there, and so; or it is gone.
    pub fn note(&self, name: &str, facts: Option<&NodeFacts>) {
        let mut nodes = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match facts {
            Some(facts) => {
                let addresses = facts.addresses.iter().map(|address| canonical(address)).collect();
                nodes.insert(name.to_owned(), NodeFacts { addresses, ..facts.clone() })
            }
            None => nodes.remove(name),
        };
    }

    /// The names and addresses of all nodes, each in the one way in which Rust writes it; none when nobody tells of nodes.
    pub fn hosts(&self) -> Option<HashSet<String>> {
        let nodes = self.nodes();
        let hosts = nodes.iter().flat_map(|(name, facts)| facts.addresses.iter().chain([name]).cloned());
        (!nodes.is_empty()).then(|| hosts.collect())
    }

    /// Whether a node has this name or address, or may have: an empty book says nothing.
    pub fn may_have(&self, host: &str) -> bool {
        let (nodes, host) = (self.nodes(), &*canonical(host));
        nodes.is_empty()
            || nodes.contains_key(host)
            || nodes.values().any(|facts| facts.addresses.iter().any(|address| address == host))
    }

    /// The VIF driver of the node's pods, where its label names one.
    pub fn pod_vif(&self, name: &str) -> Option<String> {
        self.nodes().get(name)?.pod_vif.clone()
    }

    fn nodes(&self) -> RwLockReadGuard<'_, HashMap<String, NodeFacts>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address as it is written however it came, since one of IPv6 may be written in many ways; a name as it is.
fn canonical(host: &str) -> String {
    host.parse::<IpAddr>().map_or_else(|_| host.to_owned(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_of_a_node_that_is_there() {
        let nodes = Nodes::default();
        assert!(nodes.hosts().is_none() && nodes.may_have("n1"), "an empty book says nothing");
        let addresses = vec!["192.0.2.1".to_owned()];
        nodes.note("n1", Some(&NodeFacts { addresses, pod_vif: Some("nested-vlan".into()) }));
        nodes.note("n2", Some(&NodeFacts::default()));
        assert!(nodes.may_have("n1") && nodes.may_have("192.0.2.1") && !nodes.may_have("192.0.2.2"));
        assert_eq!((nodes.pod_vif("n1").as_deref(), nodes.pod_vif("n2")), (Some("nested-vlan"), None));
        let addresses = vec!["FD00:0:0::7".to_owned()];
        nodes.note("n3", Some(&NodeFacts { addresses, pod_vif: None }));
        assert!(nodes.may_have("fd00::7") && nodes.may_have("fd00:0::0007"));
        assert!(nodes.hosts().unwrap().contains("fd00::7"), "as the stock writes it");
        nodes.note("n3", None);
        nodes.note("n1", None);
        assert_eq!(nodes.hosts(), Some(["n2".to_owned()].into()));
    }
}
