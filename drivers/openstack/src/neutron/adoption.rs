//! Lists the ports of pods, whichever controller created them, and adopts those of Kuryr.

use std::collections::HashMap;
use std::net::IpAddr;

use serde_json::json;
use staffetta_driver::{
    ClusterId, DriverError, ExistingAttachment, ExistingMark, ExistingPort, Owner, Reason, SubnetId, VifId,
};

use super::ports::MarkedPorts;
use super::wire::{DEVICE_OWNER, KURYR_OWNER, PortBody, SUBPORT_OWNER, VIF_FIELDS};
use crate::error::{DriverResult, StepName};
use crate::mark::{self, Nesting, Parent, Purpose, is_uid};
use crate::text::is_well_formed;

const LIST: StepName = "list the ports of pods";
const ADOPT: StepName = "adopt a port";
const DELETE: StepName = "delete an unused port";

impl MarkedPorts {
    /// Lists the ports of pods in the projects of the configuration, whichever controller created them. The ports of nodes in
    /// `node_subnets` are the possible parents of nested ports.
    pub(crate) async fn existing(&self, node_subnets: &[SubnetId]) -> DriverResult<Vec<ExistingPort>> {
        let owners = [KURYR_OWNER, SUBPORT_OWNER, DEVICE_OWNER];
        let filter = owners.map(|owner| ("device_owner", owner.to_owned()));
        let ports = self.neutron.ports(LIST, &filter, VIF_FIELDS).await?;
        let nodes = self.nodes(node_subnets).await?;
        let in_projects = ports.into_iter().filter(|port| self.neutron.service.owns(&port.project_id));
        Ok(in_projects.map(|port| existing(port, &nodes, &self.cluster)).collect())
    }

    /// Lists the ports of nodes in `subnets`, and collects the subports of their trunks and their allowed address pairs.
    async fn nodes(&self, subnets: &[SubnetId]) -> DriverResult<NodeAttachments> {
        let mut attachments = NodeAttachments::default();
        if subnets.is_empty() {
            return Ok(attachments);
        }
        let fields = "id fixed_ips trunk_details allowed_address_pairs";
        let filter: Vec<_> =
            subnets.iter().map(|subnet| ("fixed_ips", format!("subnet_id={subnet}"))).collect();
        for node in self.neutron.ports("list the ports of nodes", &filter, fields).await? {
            let node_ips = node.ips();
            if let Some(trunk) = &node.trunk_details {
                attachments.subports.extend(trunk.sub_ports.iter().map(|subport| {
                    let (id, vlan, node_ips) = (trunk.id.clone(), subport.segmentation_id, node_ips.clone());
                    (subport.port_id.clone(), ExistingAttachment::Trunk { id, vlan, node_ips })
                }));
            }
            for pair in node.allowed_address_pairs {
                let mac = pair.mac_address.unwrap_or_default().to_lowercase();
                let (port, node_ips) = (node.id.as_str().into(), node_ips.clone());
                let attachment = ExistingAttachment::AllowedPair { port, node_ips };
                attachments.pairs.insert((mac, pair.ip_address), attachment);
            }
        }
        Ok(attachments)
    }

    /// Gives a port of Kuryr the ownership mark of `owner`: first in the description, then in the tags. `host` is the address of the node,
    /// which a nested port needs. Fails with [`Reason::NotFound`] if the port does not exist, and with [`Reason::Refused`] if it has
    /// another mark, has changed since it was listed, or is attached to no node.
    pub(crate) async fn adopt(
        &self,
        listed: &ExistingPort,
        host: Option<IpAddr>,
        owner: &Owner,
    ) -> DriverResult<()> {
        let refused =
            |why: &str| DriverError::new(Reason::Refused, ADOPT).detail(format!("port {} {why}", listed.id));
        let port = self.read(ADOPT, &listed.id).await?;
        let port =
            port.ok_or_else(|| DriverError::new(Reason::NotFound, ADOPT).detail(listed.id.as_str()))?;
        let mark = self.mark(Purpose::Pod(owner.clone()), nesting(&listed.attachment, host)?);
        match mark_of(&port, &self.cluster) {
            ExistingMark::Owned(marked) if marked.uid == owner.uid => {}
            ExistingMark::Unmarked if is_unchanged(&port, listed) => {
                let mut change = json!({ "description": mark.to_string() });
                if port.device_owner == KURYR_OWNER {
                    change["device_owner"] = DEVICE_OWNER.into();
                }
                // Neutron adds no port with a device to a trunk again.
                if mark.trunk().is_none() {
                    change["device_id"] = owner.uid.as_str().into();
                }
                self.neutron.update_port(ADOPT, &port.id, &change, port.revision_number).await?;
            }
            ExistingMark::Unmarked => return Err(refused("has changed since it was listed")),
            ExistingMark::Owned(_) | ExistingMark::Foreign => {
                return Err(refused("has the mark of another owner"));
            }
        }
        if self.neutron.tags_new_ports().await? {
            self.neutron.add_tags(ADOPT, &port.id, &mark).await?;
        }
        Ok(())
    }

    /// Deletes a port of Kuryr's VIF pools that no pod uses. The error is [`Reason::Refused`] if the port is neither one of Kuryr nor a
    /// subport of any program, names a pod, has an ownership mark, or is ACTIVE and not a subport, and [`Reason::Conflict`] if the port changes
    /// meanwhile. A port that does not exist is no error.
    pub(crate) async fn delete_unused(&self, id: &VifId) -> DriverResult<()> {
        let Some(port) = self.read(DELETE, id).await? else { return Ok(()) };
        let is_kuryrs = match port.device_owner.as_str() {
            KURYR_OWNER => !port.is_active(),
            owner => owner == SUBPORT_OWNER,
        };
        if !is_kuryrs || !port.device_id.is_empty() || mark_of(&port, &self.cluster) != ExistingMark::Unmarked
        {
            let detail = format!("port {id} is in use, or not a port of Kuryr's pools");
            return Err(DriverError::new(Reason::Refused, DELETE).detail(detail));
        }
        Ok(self.neutron.delete_pod_port(DELETE, id, None, port.revision_number).await?)
    }

    /// Reads a port. Returns `None` if it does not exist or is not in the projects of the configuration, or if `id` does not have the form
    /// of an id.
    async fn read(&self, step: StepName, id: &VifId) -> DriverResult<Option<PortBody>> {
        if !is_well_formed(id.as_str()) {
            return Ok(None);
        }
        let port = self.neutron.port(step, id).await?;
        Ok(port.filter(|port| self.neutron.service.owns(&port.project_id)))
    }
}

/// Converts a port to an [`ExistingPort`], an entry of the list from which a migration is planned.
fn existing(port: PortBody, nodes: &NodeAttachments, cluster: &ClusterId) -> ExistingPort {
    ExistingPort {
        mac_address: port.mac_address.to_lowercase(),
        ips: port.ips(),
        active: port.is_active(),
        subnets: port.fixed_ips.iter().map(|fixed| fixed.subnet_id.clone()).collect(),
        pod: is_uid(&port.device_id).then(|| port.device_id.as_str().into()),
        attachment: nodes.attachment(&port),
        mark: mark_of(&port, cluster),
        security_groups: port.security_groups,
        id: port.id,
    }
}

/// Classifies the ownership mark in the description of a port: of a pod in this cluster, another one, or none.
fn mark_of(port: &PortBody, cluster: &ClusterId) -> ExistingMark {
    let owner = port.mark_of(cluster).and_then(|mark| mark.owner().cloned());
    mark::classify(owner, &port.description, &[])
}

/// Returns `true` if the port has the addresses and the pod that it had when it was listed.
fn is_unchanged(port: &PortBody, listed: &ExistingPort) -> bool {
    let pod = listed.pod.as_ref().map_or("", |pod| pod.as_str());
    port.device_id == pod
        && port.mac_address.eq_ignore_ascii_case(&listed.mac_address)
        && port.ips() == listed.ips
}

/// The attachments of nested ports to the ports of nodes.
#[derive(Default)]
struct NodeAttachments {
    /// The trunk and VLAN id of each subport.
    subports: HashMap<VifId, ExistingAttachment>,
    /// The node's port that has each allowed address pair. The key is the MAC address, in lower case, and the IP address of the pair.
    pairs: HashMap<(String, String), ExistingAttachment>,
}

impl NodeAttachments {
    /// Returns the attachment of a port to its node. Subports are looked up in the trunks first: Neutron binds them like other ports, and
    /// changes their `device_owner` only when the agent of the node has seen them.
    fn attachment(&self, port: &PortBody) -> ExistingAttachment {
        let mac = port.mac_address.to_lowercase();
        let pair = || port.ips().into_iter().find_map(|ip| self.pairs.get(&(mac.clone(), ip.to_string())));
        match self.subports.get(&port.id) {
            Some(attachment) => attachment.clone(),
            None if port.device_owner == SUBPORT_OWNER => ExistingAttachment::Nothing,
            None if !port.host.is_empty() => ExistingAttachment::Host(port.host.clone()),
            None => pair().cloned().unwrap_or(ExistingAttachment::Nothing),
        }
    }
}

/// Returns the node and the parent that the ownership mark of a nested port is to name, or `None` for a port that is bound on a node. Fails
/// with [`Reason::Refused`] if the port is attached to no node, or if it is nested and `host` is missing.
fn nesting(attachment: &ExistingAttachment, host: Option<IpAddr>) -> DriverResult<Option<Nesting>> {
    let parent = match attachment {
        ExistingAttachment::Host(_) => return Ok(None),
        ExistingAttachment::Trunk { id, vlan, .. } => Parent::Trunk { id: id.clone(), vlan: Some(*vlan) },
        ExistingAttachment::AllowedPair { port, .. } => Parent::Port(port.clone()),
        ExistingAttachment::Nothing => {
            return Err(DriverError::new(Reason::Refused, ADOPT).detail("the port is attached to no node"));
        }
    };
    let missing = || DriverError::new(Reason::Refused, ADOPT).detail("the address of the node is missing");
    Ok(Some(Nesting { host: host.ok_or_else(missing)?, parent }))
}
