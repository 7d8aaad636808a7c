//! The nodes of the cluster, as far as pools need them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use parking_lot::{RwLock, RwLockReadGuard};
use staffetta_driver::NodeInfo;

/// The names, addresses and VIF drivers of the nodes of the cluster, kept current by the watch of nodes.
#[derive(Debug, Default)]
pub(crate) struct NodeIndex(RwLock<HashMap<String, NodeInfo>>);

impl NodeIndex {
    /// Records that the node `name` has the properties `facts`, or that it was deleted if `facts` is `None`.
    pub(crate) fn update(&self, name: &str, facts: Option<&NodeInfo>) {
        let mut nodes = self.0.write();
        match facts {
            Some(facts) => {
                let addresses = facts.addresses.iter().map(|address| canonical(address)).collect();
                nodes.insert(name.to_owned(), NodeInfo { addresses, ..facts.clone() })
            }
            None => nodes.remove(name),
        };
    }

    /// Returns the names and addresses of all nodes, addresses in canonical form; `None` if no node is recorded, as before the first event
    /// of the watch.
    pub(crate) fn hosts(&self) -> Option<HashSet<String>> {
        let nodes = self.nodes();
        let hosts = nodes.iter().flat_map(|(name, facts)| facts.addresses.iter().chain([name]).cloned());
        (!nodes.is_empty()).then(|| hosts.collect())
    }

    /// Returns `true` if a recorded node has this name or IP address, or if no node is recorded at all.
    pub(crate) fn may_contain(&self, host: &str) -> bool {
        let (nodes, host) = (self.nodes(), &*canonical(host));
        nodes.is_empty()
            || nodes.contains_key(host)
            || nodes.values().any(|facts| facts.addresses.iter().any(|address| address == host))
    }

    /// Returns the value of the node's label `pod_vif`; `None` if the node is not recorded or has no such label.
    pub(crate) fn pod_vif(&self, name: &str) -> Option<String> {
        self.nodes().get(name)?.pod_vif.clone()
    }

    fn nodes(&self) -> RwLockReadGuard<'_, HashMap<String, NodeInfo>> {
        self.0.read()
    }
}

/// Returns an IP address in canonical form, because an IPv6 address can be written in several ways. Returns any other text, such
/// as a name, unchanged.
fn canonical(host: &str) -> String {
    host.parse::<IpAddr>().map_or_else(|_| host.to_owned(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_of_a_node_that_is_there() {
        let nodes = NodeIndex::default();
        assert!(nodes.hosts().is_none() && nodes.may_contain("n1"), "an empty index excludes nothing");
        let addresses = vec!["192.0.2.1".to_owned()];
        nodes.update("n1", Some(&NodeInfo { addresses, pod_vif: Some("nested-vlan".into()) }));
        nodes.update("n2", Some(&NodeInfo::default()));
        assert!(nodes.may_contain("n1") && nodes.may_contain("192.0.2.1") && !nodes.may_contain("192.0.2.2"));
        assert_eq!((nodes.pod_vif("n1").as_deref(), nodes.pod_vif("n2")), (Some("nested-vlan"), None));
        let addresses = vec!["FD00:0:0::7".to_owned()];
        nodes.update("n3", Some(&NodeInfo { addresses, pod_vif: None }));
        assert!(nodes.may_contain("fd00::7") && nodes.may_contain("fd00:0::0007"));
        assert!(nodes.hosts().unwrap().contains("fd00::7"), "as the driver writes it");
        nodes.update("n3", None);
        nodes.update("n1", None);
        assert_eq!(nodes.hosts(), Some(["n2".to_owned()].into()));
    }
}
