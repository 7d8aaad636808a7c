//! The ports of virtual addresses, where they are ours and not Octavia's.

use std::sync::Arc;

use staffetta_driver::{ClusterId, DriverError, LoadBalancerSpec, Owner, PortId, SecurityGroupId, VifId};

use crate::cloud::Cloud;
use crate::error::OpenStackError;
use crate::mark::{self, cluster_tag, uid_tag};
use crate::neutron::api::Neutron;
use crate::neutron::wire::{FixedIp, NewPort, Port, PortChange};
use crate::subnets::Subnets;

/// What a port of ours says of itself. It has no device: Octavia takes none that has.
const DEVICE_OWNER: &str = "staffetta:vip";
const FIELDS: [&str; 5] = ["id", "project_id", "description", "fixed_ips", "security_groups"];

/// Makes, finds and removes the ports of virtual addresses.
#[derive(Debug)]
pub(super) struct VipPorts {
    neutron: Neutron,
    subnets: Arc<Subnets>,
    cluster: ClusterId,
}

impl VipPorts {
    pub(super) fn new(cloud: &Cloud, subnets: Arc<Subnets>, cluster: ClusterId) -> Self {
        Self { neutron: Neutron::new(cloud), subnets, cluster }
    }

    /// A port with the address, or the one that was made for `owner` already; and what guards it, sorted.
    pub(super) async fn ensure(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<(PortId, Vec<SecurityGroupId>), DriverError> {
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
        let error = match self.neutron.create_port(STEP, &port).await {
            Ok(made) => return Ok((port_id(&made), sorted(made.security_groups))),
            Err(error) if error.is("IpAddressAlreadyAllocated") || error.ambiguous() => error,
            Err(error) => return Err(error.into()),
        };
        let mine = self.marked(Some(owner)).await?.into_iter().find(|(_, port)| {
            port.fixed_ips
                .iter()
                .any(|fixed| fixed.ip_address == Some(spec.vip) && fixed.subnet_id == spec.subnet)
        });
        match mine {
            Some((_, port)) => {
                let (id, mut groups) = (port_id(&port), sorted(port.security_groups));
                if let Some(wanted) = spec.security_groups.as_ref().filter(|wanted| groups != **wanted) {
                    self.guard(&id, wanted).await?;
                    groups.clone_from(wanted);
                }
                Ok((id, groups))
            }
            None => Err(error.into()),
        }
    }

    /// The ports that this cluster marked, or those for `owner`, each with its owner.
    pub(super) async fn marked(&self, owner: Option<&Owner>) -> Result<Vec<(Owner, Port)>, OpenStackError> {
        const STEP: &str = "list the ports of virtual addresses";
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
        Ok(marked.collect())
    }

    /// Gives a port these security groups.
    pub(super) async fn guard(&self, id: &PortId, wanted: &[SecurityGroupId]) -> Result<(), OpenStackError> {
        let change = PortChange { security_groups: Some(wanted.to_vec()), ..PortChange::default() };
        let step = "change the security groups of a virtual address";
        self.neutron.change_port(step, &as_vif(id), &change, None).await.map(drop)
    }

    /// Removes a port; one that does not exist is removed.
    pub(super) async fn remove(&self, id: &PortId) -> Result<(), OpenStackError> {
        self.neutron.delete_port("remove the port of a virtual address", &as_vif(id)).await
    }
}

/// The id of a port that is of no pod.
pub(super) fn port_id(port: &Port) -> PortId {
    port.id.as_str().into()
}

fn sorted(mut groups: Vec<SecurityGroupId>) -> Vec<SecurityGroupId> {
    groups.sort_unstable();
    groups
}

fn as_vif(id: &PortId) -> VifId {
    id.as_str().into()
}
