//! The interface that lists nodes.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::DriverError;
use staffetta_handler::HandlerError;

use crate::back_end::NodeBackEnd;
use crate::node::NodeSpec;
use crate::node_store::NodeStore;

/// Lists nodes, at run time too, and connects to the machine behind each.
#[async_trait]
pub trait NodeSource: Send + Sync + 'static {
    /// Keeps `nodes` up to date, and reports what machines publish by themselves, until it is dropped.
    ///
    /// It must call [`NodeStore::complete`] once all nodes that exist at the start were added: until then no Node object is deleted.
    async fn run(&self, nodes: Arc<NodeStore>) -> Result<(), HandlerError>;

    /// Opens the connection to the machine behind a node. It is kept until the machine refuses it, or the node is removed
    /// or changes; dropping it closes it.
    async fn open(&self, node: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError>;
}
