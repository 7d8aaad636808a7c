//! Runs pods on one device.

use async_trait::async_trait;
use tokio::time::Instant;

use super::device::{DeviceInfo, DeviceResources};
use super::hosted::{HostedPod, HostedPods};
use crate::error::{DriverError, Reason};
use crate::owner::Owner;
use crate::virtual_node::{PodRequest, PodUsage, Progress};

/// Runs pods on one device.
///
/// What every implementation guarantees:
///
/// * It is level-triggered. [`deploy_pod`](Self::deploy_pod), [`update_pod`](Self::update_pod) and
///   [`delete_pod`](Self::delete_pod) look at what is there, go at most one step nearer for each container, and answer at
///   once how far it is; none of them waits for anything but its own requests. Whoever asks, asks again until
///   [`Progress::Done`]. A process that ends between two calls loses nothing.
/// * What it makes carries the mark of this cluster and of its owner from its first moment. What belongs to another cluster
///   or carries no owner is never touched; two pods are the same when their UIDs are.
/// * A device that cannot be reached, or whose answer cannot be understood, is the error
///   [`Reason::Unavailable`]. It is never told as the absence of a pod.
/// * Wrong credentials are [`Reason::Refused`], with the time after which it is worth asking again. Until then no request
///   leaves, however often it is called, so that no account is locked.
/// * What a device cannot do is [`Reason::Unsupported`] or [`Reason::Refused`], with the path of the field in the pod; it is
///   said before anything is made.
///
/// Calls may overlap; a device that takes one change at a time gets one at a time.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use async_trait::async_trait;
/// use staffetta_driver::app_hosting::{AppHostingDriver, DeviceInfo, DeviceResources, HostedPods};
/// use staffetta_driver::virtual_node::{PodRequest, Progress};
/// use staffetta_driver::{DriverError, Owner, Reason};
///
/// /// A device that has room for nothing.
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
///     async fn deploy_pod(&self, _: &PodRequest) -> Result<Progress, DriverError> {
///         Err(DriverError::new(Reason::Quota, "deploy a pod").after(Duration::from_secs(60)))
///     }
///     async fn delete_pod(&self, _: &Owner) -> Result<Progress, DriverError> {
///         Ok(Progress::Done)
///     }
///     async fn list_pods(&self) -> Result<HostedPods, DriverError> {
///         Ok(Arc::new([]))
///     }
/// }
/// ```
#[async_trait]
pub trait AppHostingDriver: Send + Sync {
    /// Whether the device answers, and takes the credentials. It asks for as little as the device allows.
    async fn check_connection(&self) -> Result<(), DriverError>;

    /// What the device is.
    async fn get_device_info(&self) -> Result<DeviceInfo, DriverError>;

    /// What the device has for applications, and what of it is free.
    async fn get_device_resources(&self) -> Result<DeviceResources, DriverError>;

    /// One step nearer to a pod that runs as `request` says. It is done when each container runs, or has ended and is not
    /// to be started again by the pod's `restartPolicy`. A container that is there in another form than the one asked for
    /// is removed first.
    async fn deploy_pod(&self, request: &PodRequest) -> Result<Progress, DriverError>;

    /// One step nearer to a pod that was deployed before and has another form by now. What did not change goes on running;
    /// containers that did are removed and made anew. Labels and annotations of the pod are not its form.
    async fn update_pod(&self, request: &PodRequest) -> Result<Progress, DriverError> {
        self.deploy_pod(request).await
    }

    /// One step nearer to a device on which nothing of `owner` is left. It is done when that is the case; a pod that never
    /// was there is deleted.
    async fn delete_pod(&self, owner: &Owner) -> Result<Progress, DriverError>;

    /// The pod of `owner` as it is on the device; none when a good answer of the device does not have it.
    async fn get_pod_status(&self, owner: &Owner) -> Result<Option<HostedPod>, DriverError> {
        Ok(self.list_pods().await?.iter().find(|pod| pod.owner.uid == owner.uid).cloned())
    }

    /// All pods on the device that are this cluster's, or may become so: see [`HostedPod::marked`]. However many there are,
    /// the device is read once. An answer that is the same as the one before may be the same `Arc`.
    async fn list_pods(&self) -> Result<HostedPods, DriverError>;

    /// When the device answered last, whatever it was asked; none where the driver does not know. A call may wait long behind
    /// others while the device answers all the time.
    fn last_answer(&self) -> Option<Instant> {
        None
    }

    /// What the pods of [`list_pods`](Self::list_pods) use at this moment. Nobody asks for it regularly.
    async fn get_usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        Err(DriverError::new(Reason::Unsupported, "read what pods use").detail("this driver cannot tell"))
    }
}
