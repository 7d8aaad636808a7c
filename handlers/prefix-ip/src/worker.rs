//! The task that calls the provider for all nodes: assigns blocks, removes blocks, and reads the interfaces
//! to find differences. A block is a prefix of 28 bits or a single IPv4 address.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::pool::{Action, Shortfall};
use staffetta_driver::prefix::{Assigned, PrefixProvider};
use staffetta_driver::{DriverError, InstanceId, InterfaceId, Reason, RequestLog};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::node_pool::{InterfaceDrift, NodeAction};
use crate::nodes::{MAX_VISIBILITY_DELAY, NodeTable};

/// The maximum number of machines in one read (EC2 API reference, `DescribeInstances`: at most 1000 ids; fewer keep a response small).
const BATCH: usize = 100;
/// The longest time after which the pools are planned again, and due reads are looked for, even if nothing changed.
const IDLE: Duration = Duration::from_secs(3600);

/// The delay before an assignment whose effect is not known is repeated. In this time, a read of the interface usually shows the effect.
const REPEAT_AFTER_READ: Duration = MAX_VISIBILITY_DELAY.saturating_add(Duration::from_secs(5));

/// An occurrence that is reported as a Kubernetes Event on a node.
#[derive(Clone, Debug)]
pub enum NodeReport {
    /// A call of the provider to assign blocks (prefixes or single addresses) to the interface of a node, or to remove them, failed.
    Failed(DriverError),
    /// Another program changed the blocks of the node's network interface.
    Drift(InterfaceDrift),
    /// The provider has no machine for the node.
    Gone,
}

/// The type of a function that receives each [`NodeReport`] with the name of its node.
pub type OnNodeReport = Box<dyn Fn(&str, NodeReport) + Send + Sync>;

/// Calls the provider for the nodes of a table: assigns and removes blocks as the pools of the nodes plan, and
/// reads the interfaces of the nodes.
pub struct Worker {
    /// The provider that assigns and removes blocks, and reads the interfaces.
    pub provider: Arc<dyn PrefixProvider>,
    /// The table of the nodes, which plans the changes and the reads.
    pub nodes: Arc<NodeTable>,
    /// The interval between two reads of the interface of a node.
    pub resync_interval: Duration,
    /// The function that receives the reports about nodes: failed calls, changes by other programs, missing machines. It must not block.
    pub report: OnNodeReport,
}

/// The calls of the provider in progress, by the id of their task.
#[derive(Default)]
struct ProviderCalls {
    /// The tasks of the calls. Each returns the blocks that were assigned (none for a removal), and the error if the call failed.
    tasks: JoinSet<Assigned>,
    calls: HashMap<Id, ProviderCall>,
}

/// A call in progress that changes the interface of a node.
struct ProviderCall {
    node: String,
    interface: InterfaceId,
    action: NodeAction,
    requests: Arc<RequestLog>,
}

impl Worker {
    /// Changes and reads the interfaces of nodes until the future is dropped. Changes of different nodes run
    /// concurrently. Calls in progress are interrupted at the end; the next process finds their effect by a read.
    pub async fn run(&self) -> Infallible {
        tokio::select! {
            never = self.change() => never,
            never = self.compare() => never,
        }
    }

    /// Begins the assignments and removals of blocks that the pools plan, and records their results, for ever.
    async fn change(&self) -> Infallible {
        let mut calls = ProviderCalls::default();
        loop {
            let (actions, next) = self.nodes.plan();
            for (node, interface, action) in actions {
                calls.begin(&self.provider, node, interface, action);
            }
            tokio::select! {
                () = self.nodes.changed() => {}
                () = sleep(next.unwrap_or(IDLE)) => {}
                Some(ended) = calls.tasks.join_next_with_id() => self.end(&mut calls, ended),
            }
        }
    }

    /// Reads the interfaces of nodes when they are due, and compares them with the table of nodes, for ever.
    async fn compare(&self) -> Infallible {
        loop {
            let next = self.nodes.next_read(self.resync_interval);
            tokio::select! {
                () = self.nodes.reads_changed() => {}
                () = sleep(next.unwrap_or(IDLE)) => self.read().await,
            }
        }
    }

    /// Handles the end of a call: records its result in the table of nodes, and reports a failure.
    fn end(&self, calls: &mut ProviderCalls, ended: Result<(Id, Assigned), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(call) = calls.calls.remove(&id) else { return };
        let ProviderCall { node, interface, action, requests } = call;
        let Assigned { blocks, error } = match ended {
            Ok((_, result)) => result,
            Err(error) => Assigned { blocks: Vec::new(), error: Some(panicked(&error)) },
        };
        let is_current = self.nodes.ended(&node, &interface, &action, blocks, error.as_ref().map(shortfall));
        // A node that replaced another one has nothing to do with the calls for that one.
        if !is_current {
            return;
        }
        self.nodes.keep_requests(&node, &requests, error.is_none());
        let Some(error) = error else { return };
        warn!(node, %error, "the addresses of a node cannot be changed");
        if error.ambiguous() {
            self.nodes.schedule_read(&node);
        }
        (self.report)(&node, NodeReport::Failed(error));
    }

    /// Reads the interfaces that are due, compares their blocks with the table of nodes, and records and reports the differences.
    async fn read(&self) {
        let due = self.nodes.take_due_reads(self.resync_interval);
        for batch in due.chunks(BATCH) {
            let instances: Vec<InstanceId> = batch.iter().map(|read| read.instance.clone()).collect();
            let interfaces = match self.provider.interfaces(&instances).await {
                Ok(interfaces) => interfaces,
                Err(error) => {
                    warn!(%error, "the interfaces of nodes cannot be read; they are read again later");
                    for read in batch {
                        self.nodes.schedule_read(&read.node);
                    }
                    continue;
                }
            };
            for read in batch {
                let Some(interface) = interfaces.get(&read.instance) else {
                    (self.report)(&read.node, NodeReport::Gone);
                    continue;
                };
                let drift = self.nodes.resync(read, interface);
                if drift != InterfaceDrift::default() {
                    info!(node = read.node, ?drift, "the blocks of a node's interface were changed");
                    (self.report)(&read.node, NodeReport::Drift(drift));
                }
            }
        }
    }
}

impl ProviderCalls {
    /// Starts the call of the provider that assigns or removes the blocks of `action`, in a task of its own, which collects the requests of
    /// the call. The caller must not start a second call for the same action.
    fn begin(
        &mut self,
        provider: &Arc<dyn PrefixProvider>,
        node: String,
        interface: InterfaceId,
        action: NodeAction,
    ) {
        let (provider, requests) = (Arc::clone(provider), Arc::<RequestLog>::default());
        let (id, change) = (interface.clone(), action.clone());
        let task = self.tasks.spawn(requests.collect(async move {
            match change.action {
                Action::Grow { count, .. } => provider.assign(&id, change.kind, count).await,
                Action::Shrink { groups, .. } => {
                    Assigned { blocks: Vec::new(), error: provider.unassign(&id, &groups).await.err() }
                }
            }
        }));
        self.calls.insert(task.id(), ProviderCall { node, interface, action, requests });
    }
}

/// Converts an error of the provider to the [`Shortfall`] by which a pool backs off. An assignment whose effect is not known is repeated
/// after a delay in which a read usually shows its effect.
fn shortfall(error: &DriverError) -> Shortfall {
    match (error.reason(), error.retry_after()) {
        (Reason::NoAddress, _) => Shortfall::Exhausted,
        (_, wait) if error.ambiguous() => {
            Shortfall::Throttled(REPEAT_AFTER_READ.max(wait.unwrap_or_default()))
        }
        (Reason::Unavailable, Some(wait)) => Shortfall::Throttled(wait),
        _ => Shortfall::Failed,
    }
}

/// Returns the error of a provider call whose task panicked: its effect is not known.
fn panicked(error: &JoinError) -> DriverError {
    let error =
        DriverError::new(Reason::Unavailable, "change the addresses of a node").detail(error.to_string());
    error.maybe_applied()
}

#[cfg(test)]
mod tests;
