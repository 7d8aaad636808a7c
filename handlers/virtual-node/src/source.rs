//! The interface that lists virtual nodes and connects to their machines.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::DriverError;
use staffetta_handler::HandlerError;

use crate::back_end::NodeBackEnd;
use crate::node::NodeSpec;
use crate::node_store::NodeStore;

/// Supplies the virtual nodes, at the start and whenever one is added, changed or removed, and connects to the machine behind each node.
#[async_trait]
pub trait NodeSource: Send + Sync + 'static {
    /// Keeps `nodes` up to date until the returned future is dropped, and reports the data that machines publish
    /// unasked.
    ///
    /// The implementation must call [`NodeStore::complete`] once it has added all nodes that exist at the start: before that, the handler
    /// keeps Node objects whose nodes are not in `nodes`, except those of nodes that were [removed](NodeStore::remove).
    ///
    /// If it returns, the tasks that read the machines end too. After a delay they are started again, and this method is called again.
    async fn run(&self, nodes: Arc<NodeStore>) -> Result<(), HandlerError>;

    /// Returns `true` if several processes share the nodes, and the source itself holds and renews the leases of the nodes. By default,
    /// returns `false`: one process at a time runs the handler, which acts for all nodes and renews their leases.
    fn holds_leases(&self) -> bool {
        false
    }

    /// Returns `true` while this process may act for the node with this name. The handler asks before each step; without the right, it
    /// drops what it is doing for the node. By default, always returns `true`.
    fn may_act(&self, _name: &str) -> bool {
        true
    }

    /// Waits until the machines have ended the operations that this process has requested, and begins no new ones. Called at the end of the
    /// process.
    async fn drain(&self) {}

    /// Gives up the leases of nodes that the source holds, so that another process can take them. Called at the end of the process.
    async fn release(&self) {}

    /// Opens a connection to the machine behind `node`. The caller keeps the connection until a read is refused, or the
    /// node is removed or gets another [`NodeSpec::session`] or address, and closes it by dropping it. An error counts
    /// as a failed read of the machine, and is retried after a delay.
    async fn open(&self, node: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError>;
}
