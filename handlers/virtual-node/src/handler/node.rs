//! Reconciles a node: its Node object, its lease, and the completeness of its pods in the index.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use staffetta_handler::{Failure, causes};
use tokio::time::Instant;

use super::{gone, only};
use crate::error::VirtualNodeError;
use crate::node::{
    MachineView, NodeObject, Ownership, created, former_address, metadata_patch, names_owner, ownership,
    status_patch,
};
use crate::recorder::{EventReason, workload_count};
use crate::shared::Shared;

impl Shared {
    /// Creates, corrects or deletes the Node object with this name, renews its lease, and reads its pods into the index if the node had a
    /// kubelet before.
    pub(super) async fn reconcile_node(&self, name: &str) -> Result<(), VirtualNodeError> {
        self.reconcile_object(name).await?;
        self.read_overlooked(name).await
    }

    /// Creates or corrects the Node object of a machine, or deletes that of a machine that exists no more, and renews its Lease. A
    /// Node object of the same name that this handler does not own is left alone, and an error is returned.
    async fn reconcile_object(&self, name: &str) -> Result<(), VirtualNodeError> {
        let Some(machine) = self.node_store.get(name) else { return self.clear_node(name).await };
        self.orphaned_since.remove(name);
        let fail = |step| move |source| node_error(step, name, source);
        let missing = |error: VirtualNodeError| {
            machine.set_object(NodeObject::Missing { reason: error.reason(), message: causes(&error) });
            Err(error)
        };
        if self.cluster.is_real(name) {
            return missing(VirtualNodeError::NameTaken(name.to_owned()));
        }
        let nodes: Api<Node> = Api::all(self.config.client.clone());
        let Some(node) = self.cluster.node(name) else {
            let node = created(&machine.view(), self.node_owner(), Timestamp::now());
            return match nodes.create(&PostParams::default(), &node).await {
                Ok(node) => {
                    machine.set_object(NodeObject::Ours);
                    self.renew_lease(&node).await.map_err(fail("create the lease"))
                }
                // The event of its creation is still to come.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    machine.set_object(NodeObject::Coming);
                    Ok(())
                }
                Err(error) => missing(fail("create the object")(error)),
            };
        };
        if ownership(&node, self.node_owner()) != Ownership::Ours {
            return missing(VirtualNodeError::NameTaken(name.to_owned()));
        }
        machine.set_object(NodeObject::Ours);
        if node.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        self.renew_lease(&node).await.map_err(fail("renew the lease"))?;
        self.nodes.fresh(&node)?;
        let mut view = machine.view();
        if let Some(kubelets) = &self.config.kubelets {
            // After a restart, the port of before stays until another one is open.
            view.kubelet = view.kubelet.or_else(|| kubelets.known(&node));
        }
        if let Some(patch) = metadata_patch(&node, &view, self.node_owner()) {
            let patch = Patch::Strategic(patch);
            // What it changes comes back as an event, and the status is looked at then.
            return match nodes.patch(name, &PatchParams::default(), &patch).await {
                Ok(_) => {
                    self.report_former_machine(&node, &view);
                    Ok(())
                }
                Err(error) => Err(fail("write labels and taints")(error)),
            };
        }
        match status_patch(&node, &view, Timestamp::now()) {
            Some(patch) => self.nodes.status(&node, patch).await.map(drop).map_err(VirtualNodeError::Status),
            None => Ok(()),
        }
    }

    /// Renews the lease of a node, unless the node source holds and renews the leases itself.
    async fn renew_lease(&self, node: &Node) -> Result<(), kube::Error> {
        if self.config.source.holds_leases() { Ok(()) } else { self.leases.renew(node).await }
    }

    /// Reads the pods of a node that had a kubelet before, because the index does not contain pods of nodes with a
    /// kubelet.
    async fn read_overlooked(&self, name: &str) -> Result<(), VirtualNodeError> {
        let Some(machine) = self.node_store.get(name) else { return Ok(()) };
        if machine.view().object != NodeObject::Ours {
            return Ok(());
        }
        let Some(reading) = self.cluster.begins_to_read(name) else { return Ok(()) };
        let pods: Api<Pod> = Api::all(self.config.client.clone());
        let on_it = ListParams::default().fields(&format!("spec.nodeName={name}"));
        let read = pods.list(&on_it).await.map_err(|error| node_error("read the pods", name, error))?;
        reading.ends(read.items);
        machine.pods_due();
        Ok(())
    }

    /// Publishes an Event if the node now has another machine and workloads of its pods remain on the former one.
    fn report_former_machine(&self, node: &Node, machine: &MachineView) {
        let (name, now) = (&machine.spec.name, &machine.spec.address);
        let Some(former) = former_address(node, &machine.spec) else { return };
        let there = self.cluster.pods_on(name).iter().filter(|pod| was_made(pod)).count();
        if there > 0 {
            let rest = workload_count(there);
            let text = format!(
                "this node is now backed by the machine at {now}; {rest} remain on the machine at {former}"
            );
            self.note_node(name, EventReason::Left, text);
        }
    }

    /// Handles a node that the node source does not list. If this handler owns the Node object, the object is deleted if the node
    /// was removed, or, once all nodes are listed, has had no machine for `Policy::orphan_grace`. While the specification of the
    /// node cannot be read, the object stays and its lease is renewed.
    async fn clear_node(&self, name: &str) -> Result<(), VirtualNodeError> {
        let node = self.cluster.node(name).filter(|node| names_owner(node, self.node_owner()));
        let departed = self.node_store.has_departed(name);
        if !departed && self.node_store.is_unreadable(name) {
            self.orphaned_since.remove(name);
            // Without a lease the cluster would evict its pods.
            return match node {
                Some(node) => {
                    self.renew_lease(&node).await.map_err(|error| node_error("renew the lease", name, error))
                }
                None => Ok(()),
            };
        }
        self.leases.forget(name);
        let Some(node) = node.filter(|_| departed || self.node_store.is_complete()) else {
            self.node_store.forget(name);
            self.orphaned_since.remove(name);
            return Ok(());
        };
        let since = *self.orphaned_since.entry(name.to_owned()).or_insert_with(Instant::now);
        if !departed && since.elapsed() < self.config.policy.orphan_grace {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.config.client.clone());
        let gone = gone(nodes.delete(name, &only(node.metadata.uid.as_ref())).await.map(drop));
        gone.map_err(|error| node_error("delete the object", name, error))?;
        self.orphaned_since.remove(name);
        Ok(())
    }
}

/// Returns `true` if the status of the pod has a container with an id: the machine has had a workload of the pod.
pub(super) fn was_made(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.into_iter().any(|container| container.container_id.is_some())
}

/// Builds the error of the failed `step`: a request for the Node object, the lease or the pods of a node.
fn node_error(step: &'static str, name: &str, source: kube::Error) -> VirtualNodeError {
    VirtualNodeError::Node { step, name: name.to_owned(), source: Box::new(source) }
}
