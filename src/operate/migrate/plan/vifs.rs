//! The comparison of a pod's VIFs with the ports of the cloud.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{
    Adoption, ExistingAttachment, ExistingMark, ExistingPort, Owner, PodLifecycle, Vif, VifClass,
};

use super::super::read::ClusterState;
use super::{Obstacle, StepList, refused};

/// A pod with the properties on which the ownership of a port depends.
pub(super) struct VifOwner<'a> {
    /// The pod itself.
    pub(super) pod: &'a Pod,
    /// The owner in the ownership mark of the pod's ports.
    pub(super) owner: Owner,
    /// `true` if a `KuryrPort` names the VIFs, which only Kuryr writes; `false` if an annotation does, which every user of the pod can
    /// change.
    pub(super) is_from_kuryr_port: bool,
    /// `true` if our controller has published VIFs for the pod, which may have replaced those of Kuryr.
    pub(super) is_published: bool,
}

impl VifOwner<'_> {
    /// Returns the IP address of the pod's node, from the status of the pod; `None` if it contains none.
    fn host_ip(&self) -> Option<IpAddr> {
        self.pod.status.as_ref()?.host_ip.as_deref()?.parse().ok()
    }

    /// Adds the adoption of the port of a VIF, unless the port has the mark of the pod already. `is_default` is `true` for the VIF whose
    /// address is that of the pod. A port that does not exist is skipped if the pod has ended, or has VIFs that our controller published;
    /// otherwise it is an error. Fails also if the port has the mark of another owner, or if it has no mark and does not belong to the pod,
    /// or the configuration does not use its VIF driver.
    pub(super) fn adopt(
        &self,
        state: &ClusterState,
        vif: &Vif,
        is_default: bool,
        steps: &mut StepList,
    ) -> Result<(), Obstacle> {
        let Some(port) = state.ports.iter().find(|port| port.id == vif.id) else {
            return match PodLifecycle::of(self.pod) {
                _ if self.is_published => Ok(()),
                PodLifecycle::Finished { .. } => Ok(()),
                _ => Err(refused(format!(
                    "port {} does not exist in the projects of the configuration",
                    vif.id
                ))),
            };
        };
        if port.mark == ExistingMark::Unmarked {
            self.check(port, vif, is_default)?;
            check_driver(state, port)?;
        }
        let adoption =
            Adoption::Port { port: Box::new(port.clone()), host: self.host_ip(), owner: self.owner.clone() };
        steps.adopt(&port.mark, &self.owner, format!("port {}", port.id), adoption)
    }

    /// Fails unless the port belongs to the pod according to Neutron: compares its MAC address, IP addresses, pod and node.
    fn check(&self, port: &ExistingPort, vif: &Vif, is_default: bool) -> Result<(), Obstacle> {
        let differs = |what: &str| refused(format!("port {} {what}", port.id));
        let has_ip = self.pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
        let ips: BTreeSet<IpAddr> = vif.ips().collect();
        if port.mac_address != vif.address.to_string() {
            return Err(differs(&format!(
                "has the MAC address {}, the VIF {}",
                port.mac_address, vif.address
            )));
        }
        if ips != port.ips.iter().copied().collect() {
            return Err(differs(&format!("has the addresses {:?}, the VIF {ips:?}", port.ips)));
        }
        match &port.pod {
            Some(pod) if *pod != self.owner.uid => {
                return Err(differs(&format!("is that of the pod with the UID {pod}")));
            }
            Some(_) => {}
            // A port of a pool names no pod. The kubelet has reported the address of a running one.
            None if is_default && vif.has_address_of(self.pod) => {}
            None if self.is_from_kuryr_port && !(is_default && has_ip) => {}
            None => {
                return Err(differs("names no pod, and its address is not that in the status of the pod"));
            }
        }
        self.check_node(port, &vif.class).map_err(|what| differs(&what))
    }

    /// Checks that the port is attached to the node of the pod in the way that the class of its VIF requires. If not, returns the
    /// difference as an error: the rest of a sentence whose subject is the port.
    fn check_node(&self, port: &ExistingPort, class: &VifClass) -> Result<(), String> {
        let is_node = |ips: &[IpAddr]| self.host_ip().is_some_and(|ip| ips.contains(&ip));
        match (&port.attachment, class) {
            (ExistingAttachment::Trunk { vlan, node_ips, .. }, VifClass::VlanNested { vlan_id, .. }) => {
                if vlan != vlan_id {
                    return Err(format!("has the VLAN {vlan}, the VIF {vlan_id}"));
                }
                is_node(node_ips).then_some(()).ok_or_else(|| "is on the trunk of another node".to_owned())
            }
            (ExistingAttachment::AllowedPair { node_ips, .. }, VifClass::MacvlanNested { .. }) => {
                is_node(node_ips).then_some(()).ok_or_else(|| "is allowed on another node".to_owned())
            }
            (
                ExistingAttachment::Host(host),
                VifClass::OpenVSwitch { .. } | VifClass::Bridge { .. } | VifClass::VHostUser { .. },
            ) => {
                let node = self.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
                let node = node.unwrap_or_default();
                (host == node)
                    .then_some(())
                    .ok_or_else(|| format!("is bound on `{host}`, the pod is on `{node}`"))
            }
            (ExistingAttachment::Nothing, VifClass::VlanNested { .. } | VifClass::MacvlanNested { .. }) => {
                Err("is attached to no node in `pod_vif_nested.worker_nodes_subnets`".to_owned())
            }
            (ExistingAttachment::Nothing, _) => {
                Err("is bound on no node, or the user may not see its binding".to_owned())
            }
            _ => Err("is attached in another way than the class of the VIF says".to_owned()),
        }
    }
}

/// Fails unless the configuration uses the VIF driver for this type of port, because that driver will have to release the port.
fn check_driver(state: &ClusterState, port: &ExistingPort) -> Result<(), Obstacle> {
    let driver = match &port.attachment {
        ExistingAttachment::Trunk { .. } => "nested-vlan",
        ExistingAttachment::AllowedPair { .. } => "nested-macvlan",
        ExistingAttachment::Host(_) | ExistingAttachment::Nothing => "neutron-vif",
    };
    if [driver, "memory"].iter().any(|driver| state.vif_drivers.contains(*driver)) {
        return Ok(());
    }
    let configured = state.vif_drivers.iter().cloned().collect::<Vec<_>>().join(", ");
    Err(refused(format!(
        "port {} is one of the VIF driver `{driver}`; the configuration has {configured}",
        port.id
    )))
}
