//! Determines the owner of a port. This is needed because an annotation may name the port of another pod, cluster or program.

use std::collections::BTreeSet;

use staffetta_driver::{ClusterId, DriverError, Owner, Reason, Uid, Vif};
use tracing::warn;

use super::ports::{MarkedPort, MarkedPorts};
use super::wire::{KURYR_OWNER, PortBody, SUBPORT_OWNER, VIF_FIELDS};
use crate::error::{DriverResult, StepName};
use crate::mark::{Nesting, PortMark, Purpose, cluster_tag, is_marked, is_uid};
use crate::text::is_well_formed;

/// The operation in errors about the status of a port.
pub(super) const READ_STATUS: StepName = "read the status of a port";

/// The relation between a pod and the port that its annotation names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortOwnership {
    /// The port was created for the pod and may be deleted. The value is the node and the parent of a nested port.
    Owned(Option<Nesting>),
    /// The port belongs to a pool of this cluster. Its ownership mark does not tell which pod uses it.
    Pooled,
    /// The port does not exist.
    Missing,
    /// The port belongs to another pod, another cluster or another program, and must not be changed.
    Foreign,
}

impl MarkedPorts {
    /// Determines if `owner` owns the port of `vif`. The port is read only if its ownership mark is not cached.
    pub(crate) async fn ownership(&self, owner: &Owner, vif: &Vif) -> DriverResult<PortOwnership> {
        if let Some(mark) = self.recorded(&vif.id) {
            return Ok(ownership_by(mark, &self.cluster, &owner.uid));
        }
        // An annotation may contain anything as an id.
        if !is_well_formed(vif.id.as_str()) {
            return Ok(PortOwnership::Missing);
        }
        let Some(port) = self.neutron.port("read the owner of a port", &vif.id).await? else {
            return Ok(PortOwnership::Missing);
        };
        self.record([&port]);
        let is_in_project = self.neutron.service.owns(&port.project_id);
        let ownership =
            if is_in_project { ownership(&self.cluster, &owner.uid, &port) } else { PortOwnership::Foreign };
        if ownership == PortOwnership::Foreign {
            let PortBody { id, device_owner, .. } = &port;
            warn!(port = %id, device_owner, uid = %owner.uid, "the pod does not own the port in its annotation; the port is not changed");
        }
        Ok(ownership)
    }

    /// Returns an error if the port of `vif` belongs neither to `owner` nor to a pool of this cluster: [`Reason::NotFound`] if it does not
    /// exist, otherwise [`Reason::Refused`]. The port is read only if its ownership mark is not cached.
    pub(crate) async fn check_owner(&self, owner: &Owner, vif: &Vif) -> DriverResult<()> {
        match self.ownership(owner, vif).await? {
            PortOwnership::Owned(_) | PortOwnership::Pooled => Ok(()),
            PortOwnership::Missing => Err(missing(vif)),
            PortOwnership::Foreign => {
                let detail = format!("port {} does not belong to the pod; it is not changed", vif.id);
                Err(DriverError::new(Reason::Refused, READ_STATUS).detail(detail))
            }
        }
    }

    /// Lists the ports of Kuryr with this `device_owner` that name a pod, each with a mark that names this pod. A port of Kuryr's pools
    /// names no pod.
    pub(crate) async fn kuryr_ports(&self, device_owner: &'static str) -> DriverResult<Vec<MarkedPort>> {
        let list = |owners: Vec<_>| async move {
            let listed = self.untagged(&owners).await;
            owners.iter().map(|_| listed.clone()).collect()
        };
        let ports = self.kuryr_lists.call(device_owner, list).await?;
        let of_pod = |port: PortBody| {
            let is_kuryrs = port.device_owner == device_owner
                && self.neutron.service.owns(&port.project_id)
                && !is_marked(&port.description, &[]);
            let owner = Owner { uid: port.device_id.as_str().into(), ..Owner::default() };
            let is_of_pod = is_kuryrs && is_uid(&port.device_id);
            is_of_pod.then(|| (self.mark(Purpose::Pod(owner), None), port))
        };
        Ok(ports.into_iter().filter_map(of_pod).collect())
    }

    /// Lists the ports with one of these `device_owner`s that do not have the tag of this cluster. If Neutron does not accept tags for new
    /// ports, lists those with the tag too.
    async fn untagged(&self, device_owners: &[&str]) -> DriverResult<Vec<PortBody>> {
        let owners: BTreeSet<_> = device_owners.iter().copied().collect();
        let mut filter: Vec<_> = owners.into_iter().map(|owner| ("device_owner", owner.to_owned())).collect();
        if self.neutron.tags_new_ports().await? {
            filter.push(("not-tags", cluster_tag(&self.cluster)));
        }
        Ok(self.neutron.ports("list the ports of Kuryr", &filter, VIF_FIELDS).await?)
    }
}

/// Returns the error of a VIF whose port does not exist. The id of the port may come from an annotation, which can contain anything.
pub(super) fn missing(vif: &Vif) -> DriverError {
    let detail = format!("port {} does not exist", vif.id.as_str().escape_debug());
    DriverError::new(Reason::NotFound, READ_STATUS).detail(detail)
}

/// Determines if the pod with this UID owns the port with this ownership mark.
fn ownership_by(mark: PortMark, cluster: &ClusterId, uid: &Uid) -> PortOwnership {
    match mark.owner() {
        _ if mark.cluster != *cluster => PortOwnership::Foreign,
        None => PortOwnership::Pooled,
        Some(owner) if owner.uid == *uid => PortOwnership::Owned(mark.nesting),
        Some(_) => PortOwnership::Foreign,
    }
}

/// Determines if the pod with this UID owns the port that its annotation names.
///
/// A port of Kuryr has no ownership mark. The pod owns it if Kuryr created it for this pod (`device_id`), so that a migration from Kuryr
/// leaves no ports behind. The ports of Kuryr's pools name no pod, and another pod may use them.
fn ownership(cluster: &ClusterId, uid: &Uid, port: &PortBody) -> PortOwnership {
    let is_kuryrs = || [KURYR_OWNER, SUBPORT_OWNER].contains(&port.device_owner.as_str());
    match port.mark() {
        Some(mark) => ownership_by(mark, cluster, uid),
        None if is_kuryrs() && port.device_id == uid.as_str() => PortOwnership::Owned(None),
        None => PortOwnership::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::wire::DEVICE_OWNER;
    use super::*;

    fn of(device_owner: &str, device_id: &str, description: &str) -> PortOwnership {
        let port =
            json!({ "device_owner": device_owner, "device_id": device_id, "description": description });
        ownership(&"east".into(), &"u1".into(), &serde_json::from_value(port).unwrap())
    }

    #[test]
    fn a_port_is_owned_by_the_pod_for_which_it_was_created() {
        let foreign = PortOwnership::Foreign;
        let marked = "staffetta:cluster=east uid=u1 pod=a/b";
        assert_eq!(of(DEVICE_OWNER, "u1", marked), PortOwnership::Owned(None));
        assert_eq!(of(DEVICE_OWNER, "", "staffetta:cluster=east batch=7"), PortOwnership::Pooled);
        assert_eq!(of(DEVICE_OWNER, "", "staffetta:cluster=west batch=7"), foreign);
        assert_eq!(of(DEVICE_OWNER, "u2", "staffetta:cluster=east uid=u2 pod=a/b"), foreign);
        assert_eq!(of(DEVICE_OWNER, "u1", "staffetta:cluster=west uid=u1 pod=a/b"), foreign);
    }

    #[test]
    fn of_the_ports_without_a_mark_only_those_of_kuryr_for_the_pod_are_owned() {
        let (owned, foreign) = (PortOwnership::Owned(None), PortOwnership::Foreign);
        assert_eq!(of(KURYR_OWNER, "u1", ""), owned);
        assert_eq!(of(KURYR_OWNER, "", ""), foreign, "it belongs to a pool of Kuryr");
        assert_eq!(of(SUBPORT_OWNER, "u1", ""), owned);
        assert_eq!(of(SUBPORT_OWNER, "", ""), foreign);
        assert_eq!(of(KURYR_OWNER, "u2", ""), foreign);
        for device_owner in ["compute:nova", "network:router_interface", DEVICE_OWNER, ""] {
            assert_eq!(of(device_owner, "u1", ""), foreign, "{device_owner}");
        }
    }
}
