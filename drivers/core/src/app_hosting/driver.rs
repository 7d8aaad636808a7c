//! Runs pods on one device.

use async_trait::async_trait;
use tokio::time::Instant;

use super::device::{DeviceInfo, DeviceResources};
use super::hosted::{HostedPod, HostedPods};
use crate::error::{DriverError, Reason};
use crate::owner::Owner;
use crate::virtual_node::{PodProgress, PodRequest, PodUsage};

/// Runs pods on one device.
///
/// Guarantees of every implementation:
///
/// * It is level-triggered. [`deploy_pod`](Self::deploy_pod), [`update_pod`](Self::update_pod) and
///   [`delete_pod`](Self::delete_pod) read the current state, take at most one step for each container, and return the progress at
///   once; each waits for its own requests only. The caller repeats the call until [`PodProgress::Done`]. A process that ends
///   between two calls loses nothing.
/// * A container carries the mark of this cluster and of its owner from its creation. One of another cluster or without an owner
///   is never touched; two pods are the same if their UIDs are.
/// * A device that cannot be reached, or whose answer cannot be understood, is the error [`Reason::Unavailable`], never the
///   absence of a pod.
/// * Wrong credentials are [`Reason::Refused`], with the delay before the next attempt. Until then no request is sent, however
///   often the driver is called, so that no account is locked.
/// * A function that the device lacks is [`Reason::Unsupported`] or [`Reason::Refused`], with the path of the field in the pod,
///   before anything is created.
///
/// Calls may overlap; a device that takes one change at a time gets one at a time.
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
    /// Checks that the device answers and accepts the credentials, with the smallest request that it allows.
    async fn check_connection(&self) -> Result<(), DriverError>;

    /// Reads facts about the device.
    async fn get_device_info(&self) -> Result<DeviceInfo, DriverError>;

    /// Reads the total and the free resources for applications.
    async fn get_device_resources(&self) -> Result<DeviceResources, DriverError>;

    /// Takes a step towards a pod that runs as `request` says. It is done when each container runs, or has ended and is not
    /// restarted by the pod's `restartPolicy`. A container of another form is removed first.
    async fn deploy_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError>;

    /// Takes a step towards the new form of a pod that was deployed before. Unchanged containers go on running; changed ones are
    /// removed and created again. Labels and annotations of the pod are not its form.
    async fn update_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.deploy_pod(request).await
    }

    /// Takes a step towards a device without containers of `owner`. A pod that was never there counts as deleted.
    async fn delete_pod(&self, owner: &Owner) -> Result<PodProgress, DriverError>;

    /// Returns the pod of `owner` as it is on the device; `None` if a complete answer of the device does not contain it.
    async fn get_pod_status(&self, owner: &Owner) -> Result<Option<HostedPod>, DriverError> {
        Ok(self.list_pods().await?.iter().find(|pod| pod.owner.uid == owner.uid).cloned())
    }

    /// Lists the pods on the device that belong to this cluster, or may be adopted: see [`HostedPod::marked`]. The device is read
    /// once, however many there are. A result equal to the last one may be the same `Arc`.
    async fn list_pods(&self) -> Result<HostedPods, DriverError>;

    /// The time of the device's last answer, to any request; `None` if the driver does not track it. A call may wait long behind
    /// others while the device answers all the time.
    fn last_answer(&self) -> Option<Instant> {
        None
    }

    /// Reads the current resource usage of the pods of [`list_pods`](Self::list_pods). It is called on demand only.
    async fn get_usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        Err(DriverError::new(Reason::Unsupported, "read the resource usage of pods")
            .detail("this driver cannot tell"))
    }
}
