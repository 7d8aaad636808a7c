//! The driver that runs pods on a device.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::device::{DeviceInfo, DeviceResources};
use super::hosted::{HostedPod, HostedPods};
use crate::error::{DriverError, Reason};
use crate::id::Owner;
use crate::virtual_node::{PodProgress, PodRequest, PodUsage};

/// Runs pods on one device.
///
/// Guarantees of every implementation:
///
/// * The driver is level-triggered. [`deploy_pod`](Self::deploy_pod), [`update_pod`](Self::update_pod) and
///   [`delete_pod`](Self::delete_pod) read the current state of the device, make at most one step for each container, and return
///   the progress at once. Each waits only for its own requests. The caller repeats the call until it returns
///   [`PodProgress::Done`]. Nothing is lost if the process ends between two calls.
/// * A container carries an ownership mark from its creation: the id of this cluster, and the owner. A container of another
///   cluster or without an owner is never changed. Two pods with the same UID are the same pod.
/// * If the device cannot be reached, or its response cannot be parsed, the error is [`Reason::Unavailable`]. This never counts
///   as the absence of a pod.
/// * Rejected credentials are the error [`Reason::Refused`], with the delay before the next attempt. Until then no request is
///   sent, however often the driver is called, so that the device does not lock the account.
/// * If the device lacks a function that a pod needs, the error is [`Reason::Unsupported`] or [`Reason::Refused`], with the path
///   of the field in the pod, before anything is created.
///
/// Calls may overlap, and one that hangs holds up no other one. A change that the device does not answer in time is a failure of
/// its container ([`PodProgress::Failing`]), not of the device.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use async_trait::async_trait;
/// use staffetta_driver::app_hosting::{AppHostingDriver, DeviceInfo, DeviceResources, HostedPods};
/// use staffetta_driver::virtual_node::{PodRequest, PodProgress};
/// use staffetta_driver::{DriverError, Owner, Reason};
///
/// /// A device without room for a pod.
/// struct Full;
///
/// #[async_trait]
/// impl AppHostingDriver for Full {
///     async fn check_connection(&self) -> Result<(), DriverError> {
///         Ok(())
///     }
///     async fn get_device_info(&self) -> Result<DeviceInfo, DriverError> {
///         Ok(DeviceInfo::default())
///     }
///     async fn get_device_resources(&self) -> Result<DeviceResources, DriverError> {
///         Ok(DeviceResources::default())
///     }
///     async fn deploy_pod(&self, _: &PodRequest) -> Result<PodProgress, DriverError> {
///         Err(DriverError::new(Reason::Quota, "deploy a pod").after(Duration::from_secs(60)))
///     }
///     async fn delete_pod(&self, _: &Owner) -> Result<PodProgress, DriverError> {
///         Ok(PodProgress::Done)
///     }
///     async fn list_pods(&self) -> Result<HostedPods, DriverError> {
///         Ok(Arc::new([]))
///     }
/// }
/// ```
#[async_trait]
pub trait AppHostingDriver: Send + Sync {
    /// Checks that the device is reachable and accepts the credentials, by a small request. A recent response to another request
    /// may serve as the proof.
    async fn check_connection(&self) -> Result<(), DriverError>;

    /// Returns the properties of the device, such as its serial number and software version.
    async fn get_device_info(&self) -> Result<DeviceInfo, DriverError>;

    /// Returns the total and the free CPU, memory and storage of the device for applications.
    async fn get_device_resources(&self) -> Result<DeviceResources, DriverError>;

    /// Makes the next step to deploy a pod as `request` specifies. The result is [`PodProgress::Done`] when each container runs,
    /// or has ended and is not restarted according to the pod's `restartPolicy`. A container that was created from another
    /// specification is removed first.
    async fn deploy_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError>;

    /// Makes the next step to change a deployed pod to a new specification. Unchanged containers continue to run; changed ones
    /// are removed and created again. Labels and annotations of the pod do not count as changes.
    async fn update_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.deploy_pod(request).await
    }

    /// Makes the next step to remove all containers of `owner` from the device. A pod that does not exist counts as deleted.
    async fn delete_pod(&self, owner: &Owner) -> Result<PodProgress, DriverError>;

    /// Returns the current state of the pod `owner` on the device. `None` means that a complete response of the device does not
    /// contain it.
    async fn get_pod_status(&self, owner: &Owner) -> Result<Option<HostedPod>, DriverError> {
        Ok(self.list_pods().await?.iter().find(|pod| pod.owner.uid == owner.uid).cloned())
    }

    /// Lists the pods on the device that belong to this cluster or can be adopted (see [`HostedPod::marked`]). It reads the state
    /// of the device once for all pods. If nothing has changed since the last call, the result may be the same `Arc`.
    async fn list_pods(&self) -> Result<HostedPods, DriverError>;

    /// Tells the driver which pods the cluster has bound to the device. Called before each [`list_pods`](Self::list_pods), and so before the
    /// first step for a pod whose status shows that an earlier process deployed it. What a status shows (a container, an address) counts as
    /// present on the device until several responses without it have proven the contrary. The default does nothing.
    fn expect_pods(&self, _pods: &[Arc<Pod>]) {}

    /// Returns the time of the last response of the device to any request; `None` if there was none, or the driver does not
    /// record it. A caller whose own call waits for earlier ones can thus see that the device is reachable.
    fn last_answer(&self) -> Option<Instant> {
        None
    }

    /// Returns the current resource usage of the pods that [`list_pods`](Self::list_pods) returns. It is called only on demand.
    /// The default fails with [`Reason::Unsupported`].
    async fn get_usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        Err(DriverError::new(Reason::Unsupported, "read the resource usage of pods")
            .detail("this driver cannot tell"))
    }
}
