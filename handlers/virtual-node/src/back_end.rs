//! The interface to the machine behind a node.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::app_hosting::{HostedPod, HostedPods};
use staffetta_driver::virtual_node::{PodProgress, PodRequest, PodUsage};
use staffetta_driver::{DriverError, Owner, Reason};
use tokio::time::Instant;

use crate::node::NodeHealth;

/// The result of a request to a back end: available now, or reported later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T> {
    /// The machine has answered the request with this result.
    Now(T),
    /// The request was sent. The [`NodeSource`](crate::NodeSource) reports the result to the
    /// [`NodeStore`](crate::NodeStore) when it arrives. Only that report shows that the machine can be reached, not this reply.
    Later,
}

/// A pod whose workload is to be removed, with everything that is known of it. After a restart of this process, nothing else
/// tells a back end what the workload consists of.
#[derive(Clone, Debug)]
pub struct PodRemoval {
    /// The namespace, name and UID of the pod.
    pub owner: Owner,
    /// The last known state of the pod object; `None` if it was deleted before this process started.
    pub pod: Option<Arc<Pod>>,
    /// The workload of the pod; `None` if neither of the last two successful reads of the machine contained it.
    pub workload: Option<Arc<HostedPod>>,
}

/// A connection to the machine behind a node: reads its state and runs pods on it.
///
/// The interface is level-triggered. [`apply`](Self::apply), [`update`](Self::update) and [`remove`](Self::remove) take
/// one step and return the progress. The handler calls them again until they return [`PodProgress::Done`], and may call
/// them after that too. No method waits for anything but its own requests. If the machine cannot be reached, a method
/// returns an error with [`Reason::Unavailable`], never an empty result.
#[async_trait]
pub trait NodeBackEnd: Send + Sync + 'static {
    /// Reads the capacity, the free resources and the properties of the machine.
    async fn health(&self) -> Result<Reply<NodeHealth>, DriverError>;

    /// Reads all workloads on the machine that belong to this cluster or may be adopted
    /// ([`HostedPod::marked`](staffetta_driver::app_hosting::HostedPod::marked)).
    async fn inventory(&self) -> Result<Reply<HostedPods>, DriverError>;

    /// Tells the machine's driver which pods the cluster has bound to the node, with their status. Called before each
    /// [`inventory`](Self::inventory). What the status shows may be on the machine, even if a response does not contain it. The default
    /// implementation does nothing.
    fn expect(&self, _pods: &[Arc<Pod>]) {}

    /// Returns a digest of the credentials of the connection; `None` if there are none. After the machine has accepted them once, a refusal
    /// of the same credentials is probably temporary.
    fn credentials(&self) -> Option<u64> {
        None
    }

    /// Takes one step to create and start the workload of the pod in `request`, or to continue a deployment that has begun.
    async fn apply(&self, request: &PodRequest) -> Result<PodProgress, DriverError>;

    /// Takes one step towards the new specification of a pod that was deployed before: the workload of the old
    /// specification is removed, and the new one is created. The default implementation calls [`apply`](Self::apply).
    async fn update(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.apply(request).await
    }

    /// Takes one step to remove the workload of the pod in `removal` from the machine.
    async fn remove(&self, removal: &PodRemoval) -> Result<PodProgress, DriverError>;

    /// Returns the time of the last response of the machine to any request; `None` if the back end does not track it. A
    /// read whose time limit passes is not a failure while this time is recent: the read may be queued behind other
    /// requests.
    fn last_answer(&self) -> Option<Instant> {
        None
    }

    /// Returns `false` while reports of the machine cannot arrive, for example because a message broker is not connected. The machine is
    /// then not considered gone, however long it is silent. By default, always returns `true`.
    fn receives_reports(&self) -> bool {
        true
    }

    /// Reads the current resource usage of the pods on the machine. Called only for requests to the kubelet API. The
    /// default implementation returns an error with [`Reason::Unsupported`].
    async fn usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        Err(DriverError::new(Reason::Unsupported, "read the resource usage of pods")
            .detail("this machine does not report it"))
    }
}
