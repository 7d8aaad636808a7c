//! The simulated network: subnets, ports, a quota.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use tokio::time::Instant;

use super::security_groups::SecurityGroups;
use super::{AddressPool, MemoryOptions, Port};
use crate::error::{DriverError, Reason};
use crate::id::{ClusterId, SecurityGroupId, SecurityRuleId, SubnetId, VifId};
use crate::network::{Network, Subnet};
use crate::owner::Owner;
use crate::pod_vif::{Activation, VifRequest};
use crate::security_group::SecurityGroup;
use crate::vif::{MacAddress, PortProfile, Vif, VifClass};

const BRIDGE: &str = "br-int";

/// The simulated network. Several drivers, of several clusters even, may share one.
#[derive(Debug)]
pub struct MemoryNetwork {
    options: MemoryOptions,
    state: Mutex<State>,
    groups: Mutex<SecurityGroups>,
}

#[derive(Debug)]
struct State {
    subnets: HashMap<SubnetId, AddressPool>,
    ports: BTreeMap<VifId, Port>,
    port_quota: Option<u32>,
    /// How many ports were ever made: the next port's number.
    made: u32,
}

impl MemoryNetwork {
    /// A network with the subnets of the options and no port.
    pub fn new(options: MemoryOptions) -> Self {
        let cidrs = options.pod_subnets.iter().chain(options.namespace_subnets.values().flatten());
        let pool = |cidr: &IpNet| {
            let addresses = AddressPool::new(*cidr, options.addresses_per_subnet, options.cool_down());
            (subnet_id(*cidr), addresses)
        };
        let state = State {
            subnets: cidrs.map(pool).collect(),
            ports: BTreeMap::new(),
            port_quota: options.port_quota,
            made: 0,
        };
        Self { options, state: Mutex::new(state), groups: Mutex::default() }
    }

    /// The options with which the network began.
    pub fn options(&self) -> &MemoryOptions {
        &self.options
    }

    /// The subnet with these addresses. Only those of the options have any to hand out.
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

    /// The subnet of that id, if the options have it: `subnet-` and its addresses.
    pub fn subnet_named(&self, id: &SubnetId) -> Option<Subnet> {
        let cidrs = self.options.pod_subnets.iter().chain(self.options.namespace_subnets.values().flatten());
        cidrs.copied().find(|cidr| subnet_id(*cidr) == *id).map(|cidr| self.subnet(cidr))
    }

    /// Allows only so many addresses of the subnet to be in use, or all: how a full subnet is mended.
    pub fn set_address_limit(&self, cidr: IpNet, limit: Option<u32>) {
        if let Some(addresses) = self.state().subnets.get_mut(&subnet_id(cidr)) {
            addresses.set_limit(limit);
        }
    }

    /// Allows only so many ports from now on, or any number.
    pub fn set_port_quota(&self, quota: Option<u32>) {
        self.state().port_quota = quota;
    }

    /// The ports that exist, whoever made them.
    pub fn ports(&self) -> Vec<Port> {
        self.state().ports.values().cloned().collect()
    }

    /// The port of that id, whoever made it.
    pub fn port(&self, id: &VifId) -> Option<Port> {
        self.state().ports.get(id).cloned()
    }

    /// The addresses of the subnet that are in use.
    pub fn addresses_in_use(&self, cidr: IpNet) -> Vec<IpAddr> {
        self.state().subnets.get(&subnet_id(cidr)).into_iter().flat_map(AddressPool::held).collect()
    }

    /// Puts a port there that somebody else made. Its addresses are none of the subnets' concern.
    pub fn insert_port(&self, port: Port) {
        self.state().ports.insert(port.vif.id.clone(), port);
    }

    /// The security groups that exist, whoever made them.
    pub fn security_groups(&self) -> Vec<SecurityGroup> {
        self.groups().all(None)
    }

    /// Allows only so many security groups, and rules of all of them together, or any number.
    pub fn set_security_group_quota(&self, groups: Option<usize>, rules: Option<usize>) {
        self.groups().quota = (groups, rules);
    }

    /// Takes a security group away behind everybody's back, even from in front of ports.
    pub fn remove_security_group(&self, id: &SecurityGroupId) -> Result<(), DriverError> {
        for port in self.state().ports.values_mut() {
            port.security_groups.retain(|group| group != id);
        }
        self.groups().remove(id, &std::collections::BTreeSet::new())
    }

    /// Takes a rule of a security group away behind everybody's back.
    pub fn remove_security_rule(&self, id: &SecurityRuleId) {
        self.groups().take_rule(id);
    }

    /// Takes a port away behind everybody's back.
    pub fn remove_port(&self, id: &VifId) -> Option<Port> {
        let mut state = self.state();
        let port = state.ports.remove(id)?;
        state.give_back(&port, Instant::now());
        Some(port)
    }

    /// Makes a port for the owner of the request or, in stock, for nobody.
    pub(super) fn create_port(
        &self,
        cluster: &ClusterId,
        request: &VifRequest,
        owner: Option<&Owner>,
        now: Instant,
    ) -> Result<Vif, DriverError> {
        let mut state = self.state();
        state.within_quota()?;
        let ips = state.addresses(&request.subnets, now)?;
        state.made += 1;
        let vif = vif(state.made, request, &ips)?;
        let port = Port {
            vif: vif.clone(),
            cluster: Some(cluster.clone()),
            owner: owner.cloned(),
            node_name: request.node_name.clone(),
            project: request.project.clone(),
            security_groups: request.security_groups.clone(),
            subnets: request.subnets.iter().map(|subnet| subnet.id.clone()).collect(),
            active_at: now + self.options.activation_delay(),
        };
        let vif = port.vif_at(now);
        state.ports.insert(vif.id.clone(), port);
        Ok(vif)
    }

    pub(super) fn delete_port(&self, cluster: &ClusterId, owner: &Owner, id: &VifId, now: Instant) {
        let mut state = self.state();
        let its_own = |port: &Port| port.owner.as_ref().map(|marked| marked.uid == owner.uid);
        // What is marked for nobody is in stock; what is not marked at all, nobody's.
        let ours = |port: &Port| match &port.cluster {
            Some(marked) => marked == cluster && its_own(port).unwrap_or(false),
            None => its_own(port).unwrap_or(true),
        };
        if state.ports.get(id).is_some_and(ours)
            && let Some(port) = state.ports.remove(id)
        {
            state.give_back(&port, now);
        }
    }

    /// Deletes a port of `cluster` that has no owner.
    pub(super) fn delete_stocked(&self, cluster: &ClusterId, id: &VifId, now: Instant) {
        let mut state = self.state();
        let stocked = |port: &Port| port.cluster.as_ref() == Some(cluster) && port.owner.is_none();
        if state.ports.get(id).is_some_and(stocked)
            && let Some(port) = state.ports.remove(id)
        {
            state.give_back(&port, now);
        }
    }

    /// Gives a port these security groups.
    pub(super) fn guard_port(&self, id: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        let mut state = self.state();
        let port = state.ports.get_mut(id).ok_or_else(|| {
            DriverError::new(Reason::NotFound, "change a port").detail(format!("port {id}"))
        })?;
        port.security_groups = groups.to_vec();
        Ok(())
    }

    pub(super) fn activation(&self, id: &VifId, now: Instant) -> Result<Activation, DriverError> {
        let state = self.state();
        let port = state.ports.get(id).ok_or_else(|| {
            DriverError::new(Reason::NotFound, "read the status of a port").detail(format!("port {id}"))
        })?;
        let vif = port.vif_at(now);
        Ok(if vif.active {
            Activation::Active(vif)
        } else {
            Activation::NotYet { ask_again: port.active_at - now }
        })
    }

    pub(super) fn groups(&self) -> MutexGuard<'_, SecurityGroups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn within_quota(&self) -> Result<(), DriverError> {
        match self.port_quota {
            Some(quota) if self.ports.len() >= quota as usize => {
                Err(DriverError::new(Reason::Quota, "make a port")
                    .detail(format!("{quota} ports are allowed")))
            }
            _ => Ok(()),
        }
    }

    /// One address in each subnet, or none at all.
    fn addresses(&mut self, subnets: &[Subnet], now: Instant) -> Result<Vec<IpAddr>, DriverError> {
        let mut taken = Vec::with_capacity(subnets.len());
        for subnet in subnets {
            match self.address(subnet, now) {
                Ok(address) => taken.push(address),
                Err(error) => {
                    for (subnet, address) in subnets.iter().zip(taken) {
                        if let Some(addresses) = self.subnets.get_mut(&subnet.id) {
                            addresses.put_back(address, now);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(taken)
    }

    fn address(&mut self, subnet: &Subnet, now: Instant) -> Result<IpAddr, DriverError> {
        let failed =
            |reason| DriverError::new(reason, "make a port").detail(format!("subnet {}", subnet.cidr));
        let addresses = self.subnets.get_mut(&subnet.id).ok_or_else(|| failed(Reason::NotFound))?;
        addresses.take(now).ok_or_else(|| match addresses.next_rested(now) {
            Some(delay) => failed(Reason::NoAddress).after(delay),
            None => failed(Reason::NoAddress),
        })
    }

    fn give_back(&mut self, port: &Port, now: Instant) {
        for (subnet, address) in port.subnets.iter().zip(port.vif.ips()) {
            if let Some(addresses) = self.subnets.get_mut(subnet) {
                addresses.give_back(address, now);
            }
        }
    }
}

/// The VIF of the port with this number.
fn vif(number: u32, request: &VifRequest, ips: &[IpAddr]) -> Result<Vif, DriverError> {
    let network = match request.subnets.first() {
        Some(subnet) => subnet.network.clone(),
        None => return Err(DriverError::new(Reason::Refused, "make a port").detail("no subnet is named")),
    };
    let id = format!("{number:08x}-0000-4000-8000-{number:012x}");
    let [_, a, b, c] = number.to_be_bytes();
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

fn subnet_id(cidr: IpNet) -> SubnetId {
    format!("subnet-{}", cidr.trunc()).into()
}
