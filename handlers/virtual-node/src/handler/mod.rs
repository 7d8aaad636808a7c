//! Settles nodes and pods: the thin shell around what is decided elsewhere.

mod events;
mod node;
mod pod;
mod rid;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{DeleteParams, Preconditions};
use staffetta_handler::{Notes, Registration, Writer};

use crate::agenda::Agenda;
use crate::board::FigureBoard;
use crate::environment::Environments;
use crate::fleet::Fleet;
use crate::kubelet::Kubelets;
use crate::node::Leases;
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::reader::Readers;
use crate::shared::Shared;
use crate::signals::{NodeDue, PodDue};
use crate::source::NodeSource;

/// What virtual nodes are made of.
pub struct Wiring {
    /// The name of the handler, which its nodes carry as a label.
    pub handler: &'static str,
    /// The name by which this installation marks what it makes, a value of a label: no two that keep nodes in one cluster share it.
    pub cluster: String,
    /// The client of the Kubernetes API.
    pub client: Client,
    /// Which nodes exist.
    pub source: Arc<dyn NodeSource>,
    /// Where it is told what happens.
    pub notes: Notes,
    /// How often, how long, how many.
    pub policy: Policy,
    /// Who answers the kubelet APIs of the nodes, if anybody.
    pub kubelets: Option<Kubelets>,
    /// A label, as key and value, by which the nodes of the agent are known that kept such machines before, if there is one: they
    /// are taken over.
    pub predecessor: Option<(&'static str, &'static str)>,
}

/// Keeps the nodes of a [`NodeSource`] and their pods.
pub struct VirtualNodes(Arc<Shared>);

impl VirtualNodes {
    /// Nodes as `wiring` says.
    pub fn new(wiring: Wiring) -> Self {
        let Wiring { handler, cluster: installation, client, source, notes, policy, kubelets, predecessor } =
            wiring;
        let cluster = Arc::new(ClusterIndex::after(predecessor));
        let fleet = Arc::new(Fleet::new(Arc::clone(&cluster), policy.clone()));
        Self(Arc::new(Shared {
            handler,
            installation,
            predecessor,
            source,
            notes,
            cluster,
            fleet,
            agenda: Agenda::default(),
            kubelets,
            counts: Arc::default(),
            pods: Writer::new(client.clone()),
            nodes: Writer::new(client.clone()),
            leases: Leases::new(client.clone(), policy.lease_interval),
            environments: Environments::new(client.clone()),
            records: DashMap::new(),
            strays: DashMap::new(),
            client,
            policy,
        }))
    }

    /// Shows on `board` how many nodes and pods there are, and what is done for them.
    #[must_use]
    pub fn shown_on(self, board: &FigureBoard) -> Self {
        board.show(&self.0);
        self
    }

    /// The handler as it is registered: for pods and nodes, with the readers of the machines as its source.
    pub fn registration(self) -> Registration<Self> {
        let shared = Arc::clone(&self.0);
        Registration::new(self)
            .index::<Pod>(Arc::clone(&shared.cluster))
            .index::<Node>(Arc::clone(&shared.cluster))
            .on::<Pod>()
            .on::<Node>()
            .on_signal::<PodDue>()
            .on_signal::<NodeDue>()
            .source(Readers(shared))
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }

    /// The nodes that exist.
    pub fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(&self.0.fleet)
    }

    /// The pods on a node, as the watch showed them last.
    pub fn pods(&self) -> impl Fn(&str) -> Vec<Arc<Pod>> + Send + Sync + use<> {
        let cluster = Arc::clone(&self.0.cluster);
        move |node| cluster.pods_on(node)
    }
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Deletes this object and no other of its name.
fn only(uid: Option<&String>) -> DeleteParams {
    let preconditions = Preconditions { uid: uid.cloned(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// An object that is gone, or another one by now, is deleted.
fn gone(deleted: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match deleted {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}
