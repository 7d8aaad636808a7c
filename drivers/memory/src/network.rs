//! The simulated network: subnets, ports, security groups and quotas.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::addresses::AddressPool;
use super::ids::IdSequence;
use super::security_groups::SecurityGroups;
use super::{MemoryNamespaceNetwork, MemoryOptions, MemoryPort};
use staffetta_driver::{
    Activation, ClusterId, DriverError, MacAddress, Network, NetworkId, Owner, PortProfile, Reason,
    SecurityGroup, SecurityGroupId, SecurityRuleId, Subnet, SubnetId, Vif, VifClass, VifId, VifRequest,
};

/// The name of the Open vSwitch bridge to which all VIFs are plugged.
const BRIDGE: &str = "br-int";

/// The simulated network: subnets, ports and security groups. It may be shared by several drivers, even by those of several clusters.
#[derive(Debug)]
pub struct MemoryNetwork {
    options: MemoryOptions,
    state: Mutex<NetworkState>,
    groups: Mutex<SecurityGroups>,
    namespaces: Mutex<BTreeMap<NetworkId, MemoryNamespaceNetwork>>,
}

/// The subnets and ports of a [`MemoryNetwork`].
#[derive(Debug)]
struct NetworkState {
    subnets: HashMap<SubnetId, AddressPool>,
    ports: BTreeMap<VifId, MemoryPort>,
    /// The existing ports that pods returned to a pool, which tests inspect.
    returned: BTreeSet<VifId>,
    port_quota: Option<u32>,
    ids: IdSequence,
}

impl MemoryNetwork {
    /// Creates a network with the subnets in the options and without ports.
    pub fn new(options: MemoryOptions) -> Self {
        let pool = |cidr| {
            (subnet_id(cidr), AddressPool::new(cidr, options.addresses_per_subnet, options.cool_down()))
        };
        let state = NetworkState {
            subnets: options.subnets().map(pool).collect(),
            ports: BTreeMap::new(),
            returned: BTreeSet::new(),
            port_quota: options.port_quota,
            ids: IdSequence::default(),
        };
        Self { options, state: Mutex::new(state), groups: Mutex::default(), namespaces: Mutex::default() }
    }

    /// Returns the options with which the network was created.
    pub fn options(&self) -> &MemoryOptions {
        &self.options
    }

    /// Returns the subnet with the addresses `cidr`. Only the subnets in the options allocate addresses.
    pub fn subnet(&self, cidr: IpNet) -> Subnet {
        Subnet {
            id: subnet_id(cidr),
            network: Network {
                label: Some("memory".into()),
                bridge: Some(BRIDGE.into()),
                mtu: Some(self.options.mtu),
                ..Network::new("00000000-0000-4000-8000-000000000001".into())
            },
            cidr: cidr.trunc(),
            gateway: Some(AddressPool::gateway(cidr)),
            dns: Vec::new(),
            routes: Vec::new(),
        }
    }

    /// Limits the number of addresses of the subnet `cidr` that may be in use, or removes the limit (`None`). Does nothing if the options
    /// do not contain the subnet.
    pub fn set_address_limit(&self, cidr: IpNet, limit: Option<u32>) {
        if let Some(addresses) = self.state().subnets.get_mut(&subnet_id(cidr)) {
            addresses.set_limit(limit);
        }
    }

    /// Limits the number of ports from now on, or removes the limit (`None`). Existing ports stay.
    pub fn set_port_quota(&self, quota: Option<u32>) {
        self.state().port_quota = quota;
    }

    /// Returns the existing ports of all clusters.
    pub fn ports(&self) -> Vec<MemoryPort> {
        self.state().ports.values().cloned().collect()
    }

    /// Returns the port with this id, of any cluster, or `None` if it does not exist.
    pub fn port(&self, id: &VifId) -> Option<MemoryPort> {
        self.state().ports.get(id).cloned()
    }

    /// Inserts a port that another controller may have created. Its addresses are not allocated from the subnets.
    pub fn insert_port(&self, port: MemoryPort) {
        self.state().ports.insert(port.vif.id.clone(), port);
    }

    /// Returns the existing security groups of all clusters.
    pub fn security_groups(&self) -> Vec<SecurityGroup> {
        self.groups().all(None)
    }

    /// Inserts a security group that another controller created, with this description.
    pub fn insert_security_group(&self, id: &SecurityGroupId, description: &str) {
        self.groups().insert_unmarked(id, description);
    }

    /// Deletes a security group that Kuryr created for this network policy. A group that does not exist counts as deleted. For any other
    /// group, the error is [`Reason::Refused`], and while a port has the group, it is [`Reason::Conflict`].
    pub(super) fn delete_kuryrs_group(&self, id: &SecurityGroupId, policy: &str) -> Result<(), DriverError> {
        let used = self.state().ports.values().flat_map(|port| port.security_groups.clone()).collect();
        let mut groups = self.groups();
        if !groups.is_kuryrs(id, policy) {
            return Err(DriverError::new(Reason::Refused, "delete a security group").detail(id.to_string()));
        }
        groups.remove(id, &used)
    }

    /// Returns the existing networks of namespaces, of all clusters.
    pub fn namespace_networks(&self) -> Vec<MemoryNamespaceNetwork> {
        self.namespaces().values().cloned().collect()
    }

    /// Inserts a network that another controller may have created for a namespace. No subnet of it allocates addresses.
    pub fn insert_namespace_network(&self, network: MemoryNamespaceNetwork) {
        self.namespaces().insert(network.network.network.clone(), network);
    }

    /// Locks the networks of namespaces.
    pub(super) fn namespaces(&self) -> MutexGuard<'_, BTreeMap<NetworkId, MemoryNamespaceNetwork>> {
        self.namespaces.lock()
    }

    /// Limits the number of security groups, and the total number of their rules, or removes a limit (`None`).
    pub fn set_security_group_quota(&self, groups: Option<usize>, rules: Option<usize>) {
        self.groups().quota = (groups, rules);
    }

    /// Removes a security group, also from the ports that have it, as an administrator could. No driver is called. Never fails: a group
    /// that does not exist is no error.
    pub fn remove_security_group(&self, id: &SecurityGroupId) -> Result<(), DriverError> {
        for port in self.state().ports.values_mut() {
            port.security_groups.retain(|group| group != id);
        }
        self.groups().remove(id, &BTreeSet::new())
    }

    /// Removes a rule of a security group, as an administrator could. No driver is called.
    pub fn remove_security_rule(&self, id: &SecurityRuleId) {
        self.groups().remove_rule(id);
    }

    /// Removes a port, as an administrator could, and returns it, or `None` if it does not exist. No driver is called.
    pub fn remove_port(&self, id: &VifId) -> Option<MemoryPort> {
        self.state().remove_port(id, |_| true, Instant::now())
    }

    /// Records that a pod returned the VIF to a pool, so that a test can check it with
    /// [`returned`](Self::returned).
    pub(super) fn record_return(&self, id: &VifId) {
        self.state().returned.insert(id.clone());
    }

    /// Returns the ids of the existing VIFs that pods have returned to a pool.
    pub fn returned(&self) -> Vec<VifId> {
        self.state().returned.iter().cloned().collect()
    }

    /// Creates a port with the ownership mark of `cluster` and `owner`, or a pooled one without an owner. If the quota of ports is used up,
    /// the error is [`Reason::Quota`]; if a subnet has no free address, it is [`Reason::NoAddress`]; if a subnet does not exist, it is
    /// [`Reason::NotFound`]; if the request names no subnet, it is [`Reason::Refused`].
    pub(super) fn create_port(
        &self,
        cluster: &ClusterId,
        request: &VifRequest,
        owner: Option<&Owner>,
        now: Instant,
    ) -> Result<Vif, DriverError> {
        let mut state = self.state();
        if let Some(quota) = state.port_quota.filter(|quota| state.ports.len() >= *quota as usize) {
            let error = DriverError::new(Reason::Quota, "make a port");
            return Err(error.detail(format!("{quota} ports are allowed")));
        }
        let ips = state.addresses(&request.subnets, now)?;
        let vif = vif(&mut state.ids, request, &ips)?;
        let port = MemoryPort {
            vif: vif.clone(),
            cluster: Some(cluster.clone()),
            owner: owner.cloned(),
            node_name: request.node_name.clone(),
            project: request.project.clone(),
            security_groups: request.security_groups.clone(),
            subnets: request.subnets.iter().map(|subnet| subnet.id.clone()).collect(),
            active_at: now + Duration::from_millis(self.options.activation_delay_ms),
        };
        let vif = port.vif_at(now);
        state.ports.insert(vif.id.clone(), port);
        Ok(vif)
    }

    /// Deletes a port that belongs to `owner`: by its ownership mark, or as a port of Kuryr, which names its pod and no cluster. Any
    /// other port stays.
    pub(super) fn delete_port(&self, cluster: &ClusterId, owner: &Owner, id: &VifId, now: Instant) {
        self.state().remove_port(id, |port| port.belongs_to(cluster, owner), now);
    }

    /// Deletes a port whose ownership mark names `cluster` and no owner. Any other port stays.
    pub(super) fn delete_pooled(&self, cluster: &ClusterId, id: &VifId, now: Instant) {
        self.state().remove_port(id, |port| port.is_pooled(cluster), now);
    }

    /// Replaces the security groups of a port. If it does not exist, the error is [`Reason::NotFound`].
    pub(super) fn set_vif_groups(&self, id: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        let mut state = self.state();
        let port = state.ports.get_mut(id).ok_or_else(|| {
            DriverError::new(Reason::NotFound, "change a port").detail(format!("port {id}"))
        })?;
        port.security_groups = groups.to_vec();
        Ok(())
    }

    /// Returns the active VIF of a port, or the time until the port becomes active. If it does not exist, the error is
    /// [`Reason::NotFound`]; if it belongs neither to `owner` nor to a pool, [`Reason::Refused`].
    pub(super) fn activation(
        &self,
        cluster: &ClusterId,
        owner: &Owner,
        id: &VifId,
        now: Instant,
    ) -> Result<Activation, DriverError> {
        let failed = |reason, text: &str| {
            Err(DriverError::new(reason, "read the status of a port").detail(format!("port {id}{text}")))
        };
        let state = self.state();
        let Some(port) = state.ports.get(id) else { return failed(Reason::NotFound, "") };
        if !port.belongs_to(cluster, owner) && !port.is_pooled(cluster) {
            return failed(Reason::Refused, " does not belong to the pod");
        }
        let vif = port.vif_at(now);
        Ok(if vif.active {
            Activation::Active(vif)
        } else {
            Activation::NotYet { poll_after: port.active_at - now }
        })
    }

    /// Locks the security groups.
    pub(super) fn groups(&self) -> MutexGuard<'_, SecurityGroups> {
        self.groups.lock()
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock()
    }
}

impl NetworkState {
    /// Allocates one address in each subnet, or none in any. If none is free in a subnet, the error is [`Reason::NoAddress`], with the time
    /// until one becomes free if that is known; if a subnet does not exist, it is [`Reason::NotFound`].
    fn addresses(&mut self, subnets: &[Subnet], now: Instant) -> Result<Vec<IpAddr>, DriverError> {
        for subnet in subnets {
            let failed =
                |reason| DriverError::new(reason, "make a port").detail(format!("subnet {}", subnet.cidr));
            let addresses = self.subnets.get(&subnet.id).ok_or_else(|| failed(Reason::NotFound))?;
            match addresses.next_free(now) {
                Some(Duration::ZERO) => {}
                Some(delay) => return Err(failed(Reason::NoAddress).after(delay)),
                None => return Err(failed(Reason::NoAddress)),
            }
        }
        let take = |subnet: &Subnet| self.subnets.get_mut(&subnet.id)?.take(now);
        Ok(subnets.iter().filter_map(take).collect())
    }

    /// Removes the port with this id, if `check` returns `true` for it, and returns it. Its addresses cool down.
    fn remove_port(
        &mut self,
        id: &VifId,
        check: impl FnOnce(&MemoryPort) -> bool,
        now: Instant,
    ) -> Option<MemoryPort> {
        self.ports.get(id).filter(|port| check(port))?;
        let port = self.ports.remove(id)?;
        self.returned.remove(id);
        for (subnet, address) in port.subnets.iter().zip(port.vif.ips()) {
            if let Some(addresses) = self.subnets.get_mut(subnet) {
                addresses.give_back(address, now);
            }
        }
        Some(port)
    }
}

/// Returns the VIF of a new port, with the next id of `ids`, whose number determines its MAC address. Fails with [`Reason::Refused`] if the
/// request names no subnet.
fn vif(ids: &mut IdSequence, request: &VifRequest, ips: &[IpAddr]) -> Result<Vif, DriverError> {
    let network = match request.subnets.first() {
        Some(subnet) => subnet.network.clone(),
        None => return Err(DriverError::new(Reason::Refused, "make a port").detail("no subnet is named")),
    };
    let id = ids.next(0);
    let [_, a, b, c] = ids.count.to_be_bytes();
    Ok(Vif {
        // The name of an interface has at most 15 characters; Neutron's own names have 14.
        class: VifClass::OpenVSwitch { vif_name: format!("tap{}", &id[..11]), bridge_name: BRIDGE.into() },
        address: MacAddress([0xfa, 0x16, 0x3e, a, b, c]),
        active: false,
        plugin: "ovs".into(),
        network,
        subnets: request.subnets.iter().zip(ips).map(|(subnet, ip)| subnet.with_ips(vec![*ip])).collect(),
        has_traffic_filtering: true,
        preserve_on_delete: false,
        port_profile: Some(PortProfile::OpenVSwitch { interface_id: id.clone() }),
        id: id.into(),
    })
}

/// Returns the id of the subnet with the addresses `cidr`: `subnet-` and the CIDR.
pub(super) fn subnet_id(cidr: IpNet) -> SubnetId {
    format!("subnet-{}", cidr.trunc()).into()
}
