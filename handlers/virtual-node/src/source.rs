//! Which nodes exist.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::DriverError;
use staffetta_handler::HandlerError;

use crate::back_end::NodeBackEnd;
use crate::fleet::Fleet;
use crate::node::{NodeHealth, NodeSpec};
use crate::workload::Workloads;

/// Which nodes exist, and how to reach the machine behind each.
#[async_trait]
pub trait NodeSource: Send + Sync + 'static {
    /// Says which nodes exist and what their machines tell by themselves, until it is dropped.
    ///
    /// It calls [`Intake::complete`] once all nodes were named that exist at the start; no Node object is removed before.
    async fn run(&self, intake: Intake) -> Result<(), HandlerError>;

    /// The way to the machine behind a node. It is kept until the machine refuses it, or the node goes or changes; dropping it
    /// ends it.
    async fn open(&self, node: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError>;
}

/// Where a [`NodeSource`] tells what it knows. A copy is a reference; nothing of it ever waits.
#[derive(Clone)]
pub struct Intake(pub(crate) Arc<Fleet>);

impl Intake {
    /// The node exists, or is to be described otherwise from now on.
    pub fn exists(&self, node: NodeSpec) {
        self.0.insert(node);
    }

    /// The node is no more: its object goes, and its pods with it.
    pub fn gone(&self, name: &str) {
        self.0.remove(name);
    }

    /// These nodes exist, and nobody can say how they are to be: their objects and pods stay as they are. Those that were named
    /// so before and are not now are nodes like others again.
    pub fn unread(&self, names: Vec<String>) {
        self.0.leave_unread(names);
    }

    /// All nodes that exist at the start were named.
    pub fn complete(&self) {
        self.0.complete();
    }

    /// A machine told by itself what it is and has.
    pub fn health(&self, name: &str, health: NodeHealth) {
        if let Some(machine) = self.0.get(name) {
            machine.told_health(health);
        }
    }

    /// A machine told by itself what runs there.
    pub fn inventory(&self, name: &str, workloads: Workloads) {
        if let Some(machine) = self.0.get(name) {
            machine.told_inventory(workloads);
        }
    }

    /// There is something new on a machine: it is read at once.
    pub fn changed(&self, name: &str) {
        if let Some(machine) = self.0.get(name) {
            machine.poke();
        }
    }
}
