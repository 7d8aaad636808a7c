//! The Neutron ports of virtual addresses, if this driver creates them instead of Octavia.

use std::sync::Arc;

use staffetta_driver::{ClusterId, LoadBalancerSpec, Owner, PortId, Uid, VifId};

use super::cache::ResourceIndex;
use crate::cloud::Cloud;
use crate::error::{DriverResult, Result};
use crate::mark;
use crate::neutron::api::NeutronApi;
use crate::neutron::wire::{FixedIpBody, NewPort, PortBody};
use crate::placement::Subnets;

/// The `device_owner` of the ports that this driver creates. They have no `device_id`, because Octavia accepts no port that has one.
const DEVICE_OWNER: &str = "staffetta:vip";
/// The fields of a port that are read.
const FIELDS: &str = "id project_id description fixed_ips";

/// A client that creates, finds and deletes the ports of the virtual addresses of load balancers in Neutron.
#[derive(Debug)]
pub(super) struct VipPorts {
    neutron: NeutronApi,
    subnets: Arc<Subnets>,
    cluster: ClusterId,
    /// The owners for which a port was created or listed, and not deleted since then.
    owners: ResourceIndex<Uid, ()>,
}

impl VipPorts {
    /// Creates the client for the ports of virtual addresses with the ownership mark of `cluster`.
    pub(super) fn new(cloud: &Cloud, subnets: Arc<Subnets>, cluster: ClusterId) -> Self {
        Self { neutron: NeutronApi::new(cloud.network()), subnets, cluster, owners: ResourceIndex::default() }
    }

    /// Returns `true` unless this process knows that no port of a virtual address exists for the owner.
    pub(super) fn may_have(&self, owner: &Owner) -> bool {
        !self.owners.is_complete() || self.owners.get(&owner.uid).is_some()
    }

    /// Creates a port with the virtual address of the spec, or finds the existing port of `owner`, and returns its id. The port has the
    /// security groups of the spec at first. With each change of the load balancer, Octavia replaces them by its own group and those of
    /// `vip_sg_ids`.
    pub(super) async fn ensure(&self, owner: &Owner, spec: &LoadBalancerSpec) -> DriverResult<PortId> {
        const STEP: &str = "create the port of a virtual address";
        let subnet = self.subnets.subnet(&spec.subnet).await?;
        let port = NewPort {
            project_id: spec.project.clone(),
            network_id: subnet.network.id.clone(),
            fixed_ips: vec![FixedIpBody { subnet_id: spec.subnet.clone(), ip_address: Some(spec.vip) }],
            admin_state_up: true,
            device_owner: DEVICE_OWNER,
            device_id: String::new(),
            description: mark::description(&self.cluster, owner),
            name: Some(spec.name.clone()),
            security_groups: spec.security_groups.clone().unwrap_or_default(),
            tags: mark::tags(&self.cluster, Some(owner)),
            host: None,
        };
        self.owners.insert(owner.uid.clone(), ());
        let created = self.neutron.create_port(STEP, &port).await;
        // A list that was started before the creation may lack it.
        self.owners.insert(owner.uid.clone(), ());
        let error = match created {
            Ok(created) => return Ok(port_id(&created)),
            Err(error) if error.is("IpAddressAlreadyAllocated") || error.ambiguous() => error,
            Err(error) => return Err(error.into()),
        };
        let existing = self.marked(Some(owner)).await?.into_iter().find(|(_, port)| {
            let is_vip = |ip: &FixedIpBody| ip.ip_address == Some(spec.vip) && ip.subnet_id == spec.subnet;
            port.fixed_ips.iter().any(is_vip)
        });
        existing.map(|(_, port)| port_id(&port)).ok_or_else(|| error.into())
    }

    /// Lists the ports of virtual addresses with the ownership mark of this cluster, or only those of `owner`. The list is not filtered by
    /// tags, because ports that were created before Neutron accepted tags in creation requests have none.
    pub(super) async fn marked(&self, owner: Option<&Owner>) -> Result<Vec<(Owner, PortBody)>> {
        let list = owner.is_none().then(|| self.owners.start_list());
        let mut filter = vec![("device_owner", DEVICE_OWNER.to_owned())];
        filter.extend(owner.map(|owner| ("description", mark::description(&self.cluster, owner))));
        let ports = self.neutron.ports("list the ports of virtual addresses", &filter, FIELDS).await?;
        let marked = ports.into_iter().filter_map(|port| {
            let ours = Some(&port).filter(|port| self.neutron.service.owns(&port.project_id))?;
            let marked = mark::owner_in(&ours.description, &self.cluster)?;
            owner.is_none_or(|owner| owner.uid == marked.uid).then_some((marked, port))
        });
        let marked: Vec<_> = marked.collect();
        if let Some(list) = list {
            for (owner, _) in &marked {
                self.owners.insert(owner.uid.clone(), ());
            }
            // The listed owners were inserted after the start of the list.
            self.owners.end_list(list, |_| false);
        }
        Ok(marked)
    }

    /// Records that no port of a virtual address exists for the owner.
    pub(super) fn forget(&self, owner: &Owner) {
        self.owners.remove(&owner.uid);
    }

    /// Deletes a port. A port that does not exist is no error.
    pub(super) async fn delete(&self, id: &PortId) -> Result<()> {
        self.neutron
            .delete_port("delete the port of a virtual address", &VifId::from(id.as_str()), None)
            .await
    }
}

/// Returns the id of a port as a [`PortId`], the type for ports that are not VIFs of pods.
pub(super) fn port_id(port: &PortBody) -> PortId {
    port.id.as_str().into()
}
