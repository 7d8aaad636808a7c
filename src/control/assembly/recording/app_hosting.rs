//! Records calls to drivers of devices that run pods as applications (IOx app hosting).

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::app_hosting::{
    AppHostingDriver, AppHostingDrivers, DeviceInfo, DeviceResources, DeviceSpec, HostedPods,
};
use staffetta_driver::virtual_node::{PodProgress, PodRequest, PodUsage};
use staffetta_driver::{DriverError, Owner};
use tokio::time::Instant;

use super::{Recording, list};

impl AppHostingDrivers for Recording<dyn AppHostingDrivers> {
    fn driver(&self, spec: &DeviceSpec) -> Result<Arc<dyn AppHostingDriver>, DriverError> {
        let driver = Recording::new(self.driver.driver(spec)?, self.plan.clone(), self.by, self.kind);
        Ok(Arc::new(RecordingDevice { driver, address: spec.address.clone() }))
    }
}

/// The driver of one device in a dry run: it reads from the real device, and records changes of pods.
struct RecordingDevice {
    driver: Recording<dyn AppHostingDriver>,
    address: String,
}

impl RecordingDevice {
    /// Records the call `name` (such as `deploy a pod`) with the images of the containers of the pod.
    fn record(&self, name: &'static str, request: &PodRequest) {
        let containers = request.pod.spec.iter().flat_map(|spec| &spec.containers);
        let images = list(containers.filter_map(|container| container.image.as_ref()));
        let call = self.driver.call(name).with("device", &self.address).with("images", images);
        self.driver.record(Some(&request.owner()), call);
    }
}

#[async_trait]
impl AppHostingDriver for RecordingDevice {
    async fn check_connection(&self) -> Result<(), DriverError> {
        self.driver.driver.check_connection().await
    }

    async fn get_device_info(&self) -> Result<DeviceInfo, DriverError> {
        self.driver.driver.get_device_info().await
    }

    async fn get_device_resources(&self) -> Result<DeviceResources, DriverError> {
        self.driver.driver.get_device_resources().await
    }

    async fn deploy_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.record("deploy a pod", request);
        Ok(PodProgress::Done)
    }

    async fn update_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.record("update a pod", request);
        Ok(PodProgress::Done)
    }

    async fn delete_pod(&self, owner: &Owner) -> Result<PodProgress, DriverError> {
        let call = self.driver.call("delete a pod").with("device", &self.address);
        self.driver.record(Some(owner), call);
        Ok(PodProgress::Done)
    }

    async fn list_pods(&self) -> Result<HostedPods, DriverError> {
        self.driver.driver.list_pods().await
    }

    fn expect_pods(&self, pods: &[Arc<Pod>]) {
        self.driver.driver.expect_pods(pods);
    }

    fn last_answer(&self) -> Option<Instant> {
        self.driver.driver.last_answer()
    }

    async fn get_usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        self.driver.driver.get_usage().await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use staffetta_memory::MemoryDevices;

    use super::super::testing::Calls;
    use super::*;

    #[tokio::test]
    async fn deployments_updates_and_deletions_are_recorded_and_not_made() {
        let (devices, calls) = (MemoryDevices::default(), Calls::default());
        let spec = DeviceSpec { address: "r1".into(), ..DeviceSpec::default() };
        let real = Arc::new(devices.of_cluster("east".into()));
        let driver = calls.record::<dyn AppHostingDrivers>(real).driver(&spec).unwrap();
        let pod = json!({
            "metadata": { "namespace": "default", "name": "web", "uid": "uid-web" },
            "spec": { "containers": [{ "name": "app", "image": "flash:/a.tar" }] },
        });
        let pod = Arc::new(serde_json::from_value(pod).unwrap());
        let request = PodRequest { pod, environment: [].into() };
        assert!(driver.deploy_pod(&request).await.unwrap().is_done());
        assert!(driver.update_pod(&request).await.unwrap().is_done());
        assert!(driver.delete_pod(&request.owner()).await.unwrap().is_done());
        assert!(driver.list_pods().await.unwrap().is_empty());
        let expected = [
            "default/web: deploy a pod: device r1; images flash:/a.tar",
            "default/web: update a pod: device r1; images flash:/a.tar",
            "default/web: delete a pod: device r1",
        ];
        assert_eq!(calls.take(), expected);
        assert!(devices.device("r1").calls().is_empty());
    }
}
