//! Pods on devices that are planned.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;

use super::{PlannedCall, Planner, listed, planned};
use crate::app_hosting::{
    AppHostingDriver, AppHostingDrivers, DeviceInfo, DeviceResources, DeviceSpec, HostedContainer, HostedPod,
    HostedPods, HostedState,
};
use crate::error::DriverError;
use crate::owner::Owner;
use crate::virtual_node::{PodRequest, PodUsage, Progress};

/// Makes drivers of devices that read and plan.
pub struct RehearsedAppHostingDrivers {
    inner: Arc<dyn AppHostingDrivers>,
    planner: Planner,
}

impl RehearsedAppHostingDrivers {
    /// Reads through the drivers of `inner`, and tells `planner` of the rest.
    pub fn new(inner: Arc<dyn AppHostingDrivers>, planner: Planner) -> Self {
        Self { inner, planner }
    }
}

impl AppHostingDrivers for RehearsedAppHostingDrivers {
    fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError> {
        let inner = self.inner.driver(spec)?;
        let (planner, device) = (Arc::clone(&self.planner), spec.address.clone());
        Ok(Arc::new(RehearsedAppHostingDriver { inner, planner, device, changes: Mutex::default() }))
    }
}

/// A driver that reads and plans. A planned pod counts as running at once, and one that would be deleted as gone.
struct RehearsedAppHostingDriver {
    inner: Arc<dyn AppHostingDriver>,
    planner: Planner,
    device: String,
    /// The pods that would be there by now, or would be gone.
    changes: Mutex<Vec<(Owner, Option<HostedPod>)>>,
}

impl RehearsedAppHostingDriver {
    /// Tells of a call once, until another one for the same owner takes its place.
    fn plan(&self, what: &'static str, owner: &Owner, images: String, after: Option<HostedPod>) -> Progress {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let known = changes.iter().position(|(changed, _)| changed.uid == owner.uid);
        let change = (owner.clone(), after);
        if known.is_some_and(|known| changes[known] == change) {
            return Progress::Done;
        }
        if let Some(known) = known {
            changes.swap_remove(known);
        }
        changes.push(change);
        let call = PlannedCall::new(what).of(owner).with("device", &self.device).with("images", images);
        (self.planner)(call);
        Progress::Done
    }
}

#[async_trait]
impl AppHostingDriver for RehearsedAppHostingDriver {
    async fn check_connection(&self) -> Result<(), DriverError> {
        self.inner.check_connection().await
    }

    async fn get_device_info(&self) -> Result<DeviceInfo, DriverError> {
        self.inner.get_device_info().await
    }

    async fn get_device_resources(&self) -> Result<DeviceResources, DriverError> {
        self.inner.get_device_resources().await
    }

    async fn deploy_pod(&self, request: &PodRequest) -> Result<Progress, DriverError> {
        let owner = request.owner();
        let containers = request.pod.spec.iter().flat_map(|spec| &spec.containers);
        let images = listed(containers.clone().filter_map(|container| container.image.as_ref()));
        let hosted = containers.map(|container| HostedContainer {
            name: container.name.clone(),
            id: planned(&container.name),
            state: HostedState::Running,
        });
        let pod = HostedPod { owner: owner.clone(), marked: true, containers: hosted.collect(), ip: None };
        let there = self.list_pods().await?.contains(&pod);
        Ok(if there { Progress::Done } else { self.plan("deploy a pod", &owner, images, Some(pod)) })
    }

    async fn delete_pod(&self, owner: &Owner) -> Result<Progress, DriverError> {
        let there = self.list_pods().await?.iter().any(|pod| pod.owner.uid == owner.uid);
        Ok(if there { self.plan("delete a pod", owner, String::new(), None) } else { Progress::Done })
    }

    async fn list_pods(&self) -> Result<HostedPods, DriverError> {
        let read = self.inner.list_pods().await?;
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = |pod: &&HostedPod| changes.iter().any(|(owner, _)| owner.uid == pod.owner.uid);
        let kept = read.iter().filter(|pod| !changed(pod)).cloned();
        Ok(kept.chain(changes.iter().filter_map(|(_, pod)| pod.clone())).collect())
    }

    fn last_answer(&self) -> Option<Instant> {
        self.inner.last_answer()
    }

    async fn get_usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        self.inner.get_usage().await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::Notes;
    use super::*;
    use crate::memory::MemoryDevices;

    #[tokio::test]
    async fn what_would_change_is_written_down_once_and_shown_by_later_reads() {
        let (devices, notes) = (MemoryDevices::default(), Notes::default());
        let spec = DeviceSpec { address: "r1".into(), ..DeviceSpec::default() };
        let real = Arc::new(devices.of_cluster("east".into()));
        let driver = RehearsedAppHostingDrivers::new(real, notes.planner()).driver(&spec).unwrap();
        let pod = json!({
            "metadata": { "namespace": "default", "name": "web", "uid": "uid-web" },
            "spec": { "containers": [{ "name": "app", "image": "flash:/a.tar" }] },
        });
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        let request = PodRequest { pod, environment: [].into() };
        for _ in 0..2 {
            assert!(driver.deploy_pod(&request).await.unwrap().is_done());
        }
        let pods = driver.list_pods().await.unwrap();
        assert_eq!(pods[0].containers[0].state, HostedState::Running);
        for _ in 0..2 {
            assert!(driver.delete_pod(&request.owner()).await.unwrap().is_done());
        }
        assert!(driver.list_pods().await.unwrap().is_empty());
        let expected = [
            "default/web: deploy a pod: device r1; images flash:/a.tar",
            "default/web: delete a pod: device r1",
        ];
        assert_eq!(notes.taken(), expected);
        assert!(devices.device("r1").calls().is_empty());
    }
}
