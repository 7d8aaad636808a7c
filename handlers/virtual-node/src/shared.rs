//! What the handler and its readers share.

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use staffetta_driver::Uid;
use staffetta_handler::{Notes, Writer};
use tokio::time::Instant;

use crate::agenda::Agenda;
use crate::environment::Environments;
use crate::figures::Counts;
use crate::fleet::Fleet;
use crate::kubelet::Kubelets;
use crate::node::{Keeper, Label, Leases};
use crate::notes::Told;
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::source::NodeSource;

/// What is known and done of all nodes of one handler, and by which means.
pub(crate) struct Shared {
    pub(crate) handler: &'static str,
    pub(crate) installation: String,
    pub(crate) predecessor: Option<Label>,
    pub(crate) client: Client,
    pub(crate) source: Arc<dyn NodeSource>,
    pub(crate) notes: Notes,
    pub(crate) policy: Policy,
    pub(crate) cluster: Arc<ClusterIndex>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) agenda: Agenda,
    pub(crate) kubelets: Option<Kubelets>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) pods: Writer<Pod>,
    pub(crate) nodes: Writer<Node>,
    pub(crate) leases: Leases,
    pub(crate) environments: Environments,
    pub(crate) records: DashMap<Uid, Record>,
    /// Since when a Node object of ours has had no machine, by name.
    pub(crate) strays: DashMap<String, Instant>,
}

/// What this process did for a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The form in which it was brought to its machine, once that was done.
    pub(crate) applied: Option<u64>,
    /// Whether the machine has had it.
    pub(crate) was_there: bool,
    /// What is under way, and was told.
    pub(crate) told: Option<Told>,
    /// Whether the pod is gone, and its machine is being rid of it.
    pub(crate) clearing: bool,
    /// Whether nothing of it is left and it was deleted, and only the event that says so is still to come.
    pub(crate) finished: bool,
    /// How often in a row its machine left a step unanswered.
    pub(crate) unanswered: u8,
    /// How many ephemeral containers it had when it was looked at last.
    pub(crate) ephemeral: usize,
}

impl Shared {
    /// Who keeps these nodes.
    pub(crate) fn keeper(&self) -> Keeper<'_> {
        Keeper { handler: self.handler, cluster: &self.installation, predecessor: self.predecessor }
    }
}
