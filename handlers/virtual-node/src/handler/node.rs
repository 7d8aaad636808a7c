//! Settles a node: its object and its lease.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use staffetta_handler::{Failure, causes};
use tokio::time::Instant;

use super::{gone, only};
use crate::error::VirtualNodeError;
use crate::machine::{Machine, NodeObject};
use crate::node::{Standing, created, former_place, has_keeper, metadata_patch, standing, status_patch};
use crate::notes::{Told, node_note, rest_of};
use crate::shared::Shared;

impl Shared {
    /// Brings the object of a node to what it is to be, renews its lease, and sees to it that all its pods are known.
    pub(super) async fn settle_node(&self, name: &str) -> Result<(), VirtualNodeError> {
        self.settle_object(name).await?;
        self.read_overlooked(name).await
    }

    async fn settle_object(&self, name: &str) -> Result<(), VirtualNodeError> {
        let Some(machine) = self.fleet.get(name) else { return self.clear_node(name).await };
        self.strays.remove(name);
        let fail = |step| move |source| node_error(step, name, source);
        let missing = |error: VirtualNodeError| {
            machine.has_object(NodeObject::Missing { reason: error.reason(), message: causes(&error) });
            Err(error)
        };
        if self.cluster.is_real(name) {
            return missing(VirtualNodeError::NameTaken(name.to_owned()));
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let Some(node) = self.cluster.node(name) else {
            let node = created(&machine, self.keeper(), Timestamp::now());
            return match nodes.create(&PostParams::default(), &node).await {
                Ok(node) => {
                    machine.has_object(NodeObject::Ours);
                    self.leases.renew(&node).await.map_err(fail("make the lease"))
                }
                // The event that tells of it is on its way.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    machine.has_object(NodeObject::Coming);
                    Ok(())
                }
                Err(error) => missing(fail("make the object")(error)),
            };
        };
        if standing(&node, self.keeper()) != Standing::Ours {
            return missing(VirtualNodeError::NameTaken(name.to_owned()));
        }
        machine.has_object(NodeObject::Ours);
        if node.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        self.leases.renew(&node).await.map_err(fail("renew the lease"))?;
        self.nodes.fresh(&node)?;
        if let Some(patch) = metadata_patch(&node, &machine, self.keeper()) {
            let patch = Patch::Strategic(patch);
            // What it changes comes back as an event, and the status is looked at then.
            return match nodes.patch(name, &PatchParams::default(), &patch).await {
                Ok(_) => {
                    self.tell_of_former_machine(&node, &machine);
                    Ok(())
                }
                Err(error) => Err(fail("write labels and taints")(error)),
            };
        }
        match status_patch(&node, &machine, Timestamp::now()) {
            Some(patch) => self.nodes.status(&node, patch).await.map(drop).map_err(VirtualNodeError::Status),
            None => Ok(()),
        }
    }

    /// Reads the pods of a node that had a kubelet before: as long as it had one, none of them was kept here.
    async fn read_overlooked(&self, name: &str) -> Result<(), VirtualNodeError> {
        let ours = |machine: &Arc<Machine>| machine.object() == NodeObject::Ours;
        let Some(machine) = self.fleet.get(name).filter(ours) else { return Ok(()) };
        let Some(reading) = self.cluster.begins_to_read(name) else { return Ok(()) };
        let pods: Api<Pod> = Api::all(self.client.clone());
        let on_it = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let read = pods.list(&on_it).await.map_err(|error| node_error("read the pods", name, error))?;
        reading.ends(read.items);
        machine.pods_due();
        Ok(())
    }

    /// Another machine stands behind a node from now on. What its pods have on the former stays there, and is made anew.
    fn tell_of_former_machine(&self, node: &Node, machine: &Machine) {
        let spec = machine.spec();
        let Some(former) = former_place(node, &spec) else { return };
        let pods = self.cluster.pods_on(machine.name());
        let there = pods.iter().filter(|pod| was_made(pod)).count();
        if there > 0 {
            let (rest, now) = (rest_of(there), &spec.place);
            let text = format!(
                "the machine behind this node is the one at {now} from now on; on the one at {former} {rest} stays as it is"
            );
            self.notes.tell(node_note(self.handler, machine, Told::Left, text));
        }
    }

    /// A node without a machine: its object goes, if it is ours and nobody comes for it.
    async fn clear_node(&self, name: &str) -> Result<(), VirtualNodeError> {
        let node = self.cluster.node(name).filter(|node| has_keeper(node, self.keeper()));
        let departed = self.fleet.has_departed(name);
        if !departed && self.fleet.is_unread(name) {
            self.strays.remove(name);
            // Without a lease the cluster would evict its pods.
            return match node {
                Some(node) => {
                    self.leases.renew(&node).await.map_err(|error| node_error("renew the lease", name, error))
                }
                None => Ok(()),
            };
        }
        self.leases.forget(name);
        let Some(node) = node.filter(|_| departed || self.fleet.is_complete()) else {
            self.fleet.forget(name);
            return Ok(());
        };
        let since = *self.strays.entry(name.to_owned()).or_insert_with(Instant::now);
        if !departed && since.elapsed() < self.policy.orphan_grace {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let gone = gone(nodes.delete(name, &only(node.metadata.uid.as_ref())).await.map(drop));
        gone.map_err(|error| node_error("delete the object", name, error))?;
        self.strays.remove(name);
        Ok(())
    }
}

/// Whether a machine has had something of a pod.
fn was_made(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.into_iter().any(|container| container.container_id.is_some())
}

fn node_error(step: &'static str, name: &str, source: kube::Error) -> VirtualNodeError {
    VirtualNodeError::Node { step, name: name.to_owned(), source: Box::new(source) }
}
