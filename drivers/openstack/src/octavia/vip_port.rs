//! The ports of virtual addresses, where they are ours and not Octavia's.

use std::sync::Arc;

use staffetta_driver::{ClusterId, DriverError, LoadBalancerSpec, Owner, PortId, Uid, VifId};

use super::inventory::Inventory;
use crate::cloud::Cloud;
use crate::error::OpenStackError;
use crate::mark::{self, cluster_tag, uid_tag};
use crate::neutron::api::Neutron;
use crate::neutron::wire::{FixedIp, NewPort, Port};
use crate::subnets::Subnets;

/// What a port of ours says of itself. It has no device: Octavia takes none that has.
const DEVICE_OWNER: &str = "staffetta:vip";
const FIELDS: [&str; 4] = ["id", "project_id", "description", "fixed_ips"];

/// Makes, finds and removes the ports of virtual addresses.
#[derive(Debug)]
pub(super) struct VipPorts {
    neutron: Neutron,
    subnets: Arc<Subnets>,
    cluster: ClusterId,
    /// For whom one was made or listed, and not removed since.
    owners: Inventory<Uid, ()>,
}

impl VipPorts {
    pub(super) fn new(cloud: &Cloud, subnets: Arc<Subnets>, cluster: ClusterId) -> Self {
        Self { neutron: Neutron::new(cloud), subnets, cluster, owners: Inventory::default() }
    }

    /// Whether there may be one for that owner, as far as this process knows.
    pub(super) fn may_have(&self, owner: &Owner) -> bool {
        !self.owners.is_complete() || self.owners.contains(&owner.uid)
    }

    /// A port with the address, or the one that was made for `owner` already. The groups that it is made with are there from its
    /// first moment; Octavia puts its own beside those of `vip_sg_ids` in their place with each of its changes.
    pub(super) async fn ensure(&self, owner: &Owner, spec: &LoadBalancerSpec) -> Result<PortId, DriverError> {
        const STEP: &str = "make the port of a virtual address";
        let subnet = self.subnets.subnet(&spec.subnet).await?;
        let tagged = self.neutron.tags_new_ports().await?;
        let tags = [cluster_tag(&self.cluster), uid_tag(&owner.uid)].into_iter().filter(|_| tagged).collect();
        let port = NewPort {
            project_id: spec.project.clone(),
            network_id: subnet.network.id.clone(),
            fixed_ips: vec![FixedIp { subnet_id: spec.subnet.clone(), ip_address: Some(spec.vip) }],
            admin_state_up: true,
            device_owner: DEVICE_OWNER,
            device_id: String::new(),
            description: mark::description(&self.cluster, owner),
            name: Some(spec.name.clone()),
            security_groups: spec.security_groups.clone().unwrap_or_default(),
            tags,
            host: None,
        };
        self.owners.insert(owner.uid.clone(), ());
        let created = self.neutron.create_port(STEP, &port).await;
        // A list that was begun before it was made may lack it.
        self.owners.insert(owner.uid.clone(), ());
        let error = match created {
            Ok(made) => return Ok(port_id(&made)),
            Err(error) if error.is("IpAddressAlreadyAllocated") || error.ambiguous() => error,
            Err(error) => return Err(error.into()),
        };
        let mine = self.marked(Some(owner)).await?.into_iter().find(|(_, port)| {
            port.fixed_ips
                .iter()
                .any(|fixed| fixed.ip_address == Some(spec.vip) && fixed.subnet_id == spec.subnet)
        });
        mine.map(|(_, port)| port_id(&port)).ok_or_else(|| error.into())
    }

    /// The ports that this cluster marked, or those for `owner`, each with its owner.
    pub(super) async fn marked(&self, owner: Option<&Owner>) -> Result<Vec<(Owner, Port)>, OpenStackError> {
        const STEP: &str = "list the ports of virtual addresses";
        let look = owner.is_none().then(|| self.owners.look());
        let mut filter = vec![("device_owner", DEVICE_OWNER.to_owned())];
        if self.neutron.tags_new_ports().await? {
            let uid = owner.map(|owner| format!(",{}", uid_tag(&owner.uid))).unwrap_or_default();
            filter.push(("tags", format!("{}{uid}", cluster_tag(&self.cluster))));
        }
        let ports = self.neutron.ports(STEP, &filter, &FIELDS).await?;
        let marked = ports.into_iter().filter_map(|port| {
            let marked = mark::owner_in(&port.description, &self.cluster)?;
            owner.is_none_or(|owner| owner.uid == marked.uid).then_some((marked, port))
        });
        let marked: Vec<_> = marked.collect();
        if let Some(look) = look {
            for (owner, _) in &marked {
                self.owners.insert(owner.uid.clone(), ());
            }
            // What was just told of was seen since the look began.
            self.owners.listed(look, |_| false);
        }
        Ok(marked)
    }

    /// There is none for that owner any more.
    pub(super) fn forget(&self, owner: &Owner) {
        self.owners.remove(&owner.uid);
    }

    /// Removes a port; one that does not exist is removed.
    pub(super) async fn remove(&self, id: &PortId) -> Result<(), OpenStackError> {
        self.neutron.delete_port("remove the port of a virtual address", &VifId::from(id.as_str())).await
    }
}

/// The id of a port that is of no pod.
pub(super) fn port_id(port: &Port) -> PortId {
    port.id.as_str().into()
}
