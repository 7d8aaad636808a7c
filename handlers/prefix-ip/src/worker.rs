//! The task that calls the provider for all nodes: assigns blocks, removes blocks, and reads the interfaces
//! to find differences. It also reads the annotations of pods, to confirm that addresses are free. A block is a prefix of 28 bits or a
//! single IPv4 address.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::prefix::{Assigned, PrefixProvider};
use staffetta_driver::{DriverError, InstanceId, InterfaceId, Reason, RequestLog};
use staffetta_handler::{HandlerError, causes};
use staffetta_pool::Action;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::node_pool::{InterfaceDrift, NodeAction};
use crate::nodes::{NodeTable, Recorded};
use crate::published::PublishedAddresses;

/// The maximum number of machines in one read (EC2 API reference, `DescribeInstances`: at most 1000 ids; fewer keep a response small).
const BATCH: usize = 100;
/// The longest time after which the pools are planned again, and due reads are looked for, even if nothing changed.
const IDLE: Duration = Duration::from_secs(3600);

/// The minimum time between two reads of the annotations of pods, since nodes are added one after the other.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(10);

/// An occurrence that is reported as a Kubernetes Event on a node.
#[derive(Clone, Debug)]
pub enum NodeReport {
    /// A call of the provider to assign blocks (prefixes or single addresses) to the interface of a node, or to remove them, failed.
    Failed(DriverError),
    /// Another program changed the blocks of the node's network interface.
    Drift(InterfaceDrift),
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
    /// The reader of the addresses in the annotations of pods.
    pub published: Arc<dyn PublishedAddresses>,
    /// The interval between two reads of the interface of a node.
    pub resync_interval: Duration,
    /// The function that receives the reports about nodes: failed calls, changes by other programs. It must not block.
    pub report: OnNodeReport,
}

/// The calls of the provider in progress, by the id of their task.
#[derive(Default)]
struct ProviderCalls {
    /// The tasks of the calls. Each returns the blocks that were assigned (none for a removal), and the error if the call failed.
    tasks: JoinSet<Assigned>,
    calls: HashMap<Id, ProviderCall>,
}

/// A call in progress that changes the interface of a machine.
struct ProviderCall {
    instance: InstanceId,
    interface: InterfaceId,
    action: NodeAction,
    requests: Arc<RequestLog>,
}

impl Worker {
    /// Changes and reads the interfaces of nodes, and reads the annotations of pods, until the future is dropped. Changes of different nodes run
    /// concurrently. Calls in progress are interrupted at the end; the next process finds their effect by a read.
    pub async fn run(&self) -> Infallible {
        tokio::select! {
            never = self.change() => never,
            never = self.compare() => never,
            never = self.confirm() => never,
        }
    }

    /// Begins the assignments and removals of blocks that the pools plan, and records their results, for ever.
    async fn change(&self) -> Infallible {
        let mut calls = ProviderCalls::default();
        loop {
            let (actions, next) = self.nodes.plan();
            for (instance, interface, action) in actions {
                calls.begin(&self.provider, instance, interface, action);
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

    /// Reads which addresses the annotations of pods contain when that is due, and makes others free, for ever.
    async fn confirm(&self) -> Infallible {
        loop {
            let next = self.nodes.next_confirmation().unwrap_or(CONFIRM_INTERVAL);
            sleep(next.min(CONFIRM_INTERVAL)).await;
            let Some(since) = self.nodes.due_confirmation() else { continue };
            let published = self.published.published_addresses().await;
            let failed = |error: &HandlerError| {
                warn!(
                    error = causes(&**error),
                    "the annotations of pods cannot be read; they are read again later"
                );
            };
            self.nodes.confirm_free(since, published.inspect_err(failed).ok().as_ref());
            sleep(CONFIRM_INTERVAL).await;
        }
    }

    /// Handles the end of a call: records its result in the table of nodes, and reports a failure.
    fn end(&self, calls: &mut ProviderCalls, ended: Result<(Id, Assigned), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(call) = calls.calls.remove(&id) else { return };
        let ProviderCall { instance, interface, action, requests } = call;
        let Assigned { blocks, error } = match ended {
            Ok((_, result)) => result,
            Err(error) => Assigned { blocks: Vec::new(), error: Some(panicked(&error)) },
        };
        let recorded = self.nodes.ended(&instance, &interface, &action, blocks, error.as_ref());
        // A machine that replaced another one has nothing to do with the calls for that one.
        if recorded == Recorded::Stale {
            return;
        }
        self.nodes.keep_requests(&instance, &requests, error.is_none());
        let Some(error) = error else { return };
        warn!(%instance, %error, "the addresses of a node cannot be changed");
        if error.ambiguous() || matches!(error.reason(), Reason::NotFound | Reason::Quota) {
            self.nodes.schedule_read(&instance);
        }
        if recorded == Recorded::Done {
            self.report(&instance, &NodeReport::Failed(error));
        }
    }

    /// Reports an occurrence on all nodes of a machine.
    fn report(&self, instance: &InstanceId, report: &NodeReport) {
        for node in self.nodes.nodes_of(instance) {
            (self.report)(&node, report.clone());
        }
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
                        self.nodes.schedule_read(&read.instance);
                    }
                    continue;
                }
            };
            for read in batch {
                let Some(interface) = interfaces.get(&read.instance) else {
                    self.nodes.record_missing(&read.instance);
                    continue;
                };
                let drift = self.nodes.resync(read, interface);
                if drift != InterfaceDrift::default() {
                    info!(instance = %read.instance, ?drift, "the blocks of a node's interface were changed");
                    self.report(&read.instance, &NodeReport::Drift(drift));
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
        instance: InstanceId,
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
        self.calls.insert(task.id(), ProviderCall { instance, interface, action, requests });
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
