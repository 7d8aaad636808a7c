//! A device, drivers for it, and pods.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use staffetta_driver::app_hosting::{
    AppHostingDriver, AppHostingDrivers, DeviceSpec, HostedContainerState, HostedPod,
};
use staffetta_driver::virtual_node::{EnvironmentVariable, PodProgress, PodRequest};
use staffetta_driver::{DriverError, Owner};
use staffetta_iosxe::{IosXeDrivers, IosXeOptions};
use staffetta_iosxe_device::{Device, Options, Site, Times, Tls};
use tokio::time::{Instant, sleep};

/// The time limit of a test step. It does not measure speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The time limit of a step on the device, in milliseconds.
const STEP_LIMIT_MS: NonZeroU64 = NonZeroU64::new(2000).unwrap();

/// The cluster of the pods.
pub(crate) const CLUSTER: &str = "east";

pub(crate) struct World {
    pub(crate) site: Site,
    pub(crate) device: Device,
    pub(crate) options: IosXeOptions,
}

impl World {
    /// A device whose changes take 5 ms each.
    pub(crate) fn new(change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options { times: Times::each(Duration::from_millis(5)), ..Options::default() };
        change(&mut options);
        let site = Site::start().unwrap();
        let device = site.device(options).unwrap();
        // A device that starts no app by itself is waited for no longer.
        let options = IosXeOptions { step_limit_ms: STEP_LIMIT_MS, ..IosXeOptions::default() };
        Self { site, device, options }
    }

    /// The device's description.
    pub(crate) fn spec(&self) -> Value {
        spec(&self.device)
    }

    /// A driver that knows nothing yet, as after a restart.
    pub(crate) fn driver(&self) -> Arc<dyn AppHostingDriver> {
        self.driver_by(&self.spec())
    }

    pub(crate) fn driver_by(&self, spec: &Value) -> Arc<dyn AppHostingDriver> {
        driver(self.options.clone(), CLUSTER, spec)
    }

    /// Asserts that nothing is left behind.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.device.apps(), []);
        assert!(self.device.ledger().existing().is_empty(), "{:#?}", self.device.ledger().entries());
        assert_eq!(self.device.files(), [""; 0]);
    }

    /// Each app was installed once, one after the other, and nothing was asked of one that it could not do, unless it had
    /// gone on by itself just then: each step is refused once at most for that, and an install or a stop never.
    pub(crate) fn assert_done_once(&self) {
        let ledger = self.device.ledger();
        let often: Vec<_> = ledger.installs().into_iter().filter(|(_, count)| *count != 1).collect();
        assert_eq!(often, [], "{:#?}", ledger.entries());
        let mut overtaken = BTreeSet::new();
        let is_race = |(app, operation, why): (&str, &str, &str)| {
            let steps = matches!(operation, "activate" | "start" | "deactivate" | "uninstall");
            steps
                && why.ends_with(" by its own start")
                && overtaken.insert((app.to_owned(), operation.to_owned()))
        };
        assert!(ledger.refused().into_iter().all(is_race), "{:#?}", ledger.refused());
        assert!(ledger.most_installs_at_once() <= 1, "{:#?}", ledger.entries());
        assert!(ledger.address_conflicts().is_empty(), "{:#?}", ledger.entries());
    }
}

pub(crate) fn spec(device: &Device) -> Value {
    json!({
        "driver": "XE", "address": device.address().ip(), "port": device.address().port(),
        "username": "admin", "password": "cisco-123", "tls": { "enabled": false },
        "xe": { "networking": { "interface": {
            "type": "VirtualPortGroup", "virtualPortGroup": { "dhcp": true } } } },
    })
}

pub(crate) fn driver(options: IosXeOptions, cluster: &str, spec: &Value) -> Arc<dyn AppHostingDriver> {
    // An error means that somebody installed one before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let spec: DeviceSpec = serde_json::from_value(spec.clone()).unwrap();
    IosXeDrivers::new(options, cluster.into()).driver(&spec).unwrap()
}

/// The UID of the pod of this number.
pub(crate) fn uid(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// A pod with these containers, from a package on the flash.
pub(crate) fn pod(name: &str, number: u32, containers: &[&str]) -> Value {
    let container =
        |name: &&str| json!({ "name": name, "image": "flash:/hello.tar", "imagePullPolicy": "IfNotPresent" });
    json!({
        "metadata": { "name": name, "namespace": "default", "uid": uid(number) },
        "spec": { "containers": containers.iter().map(container).collect::<Vec<_>>() },
    })
}

pub(crate) fn request(pod: &Value) -> PodRequest {
    PodRequest { pod: Arc::new(serde_json::from_value(pod.clone()).unwrap()), environment: BTreeMap::new() }
}

/// With a variable in the environment of a container.
pub(crate) fn with_variable(mut request: PodRequest, container: &str, name: &str, value: &str) -> PodRequest {
    let variables = request.environment.entry(container.to_owned()).or_default();
    variables.push(EnvironmentVariable::new(name, value));
    request
}

pub(crate) fn web() -> PodRequest {
    request(&pod("web", 1, &["app"]))
}

/// Asks again until `progress` says that it is done; failures that pass are waited for.
pub(crate) async fn done(what: &str, mut ask: impl AsyncFnMut() -> Result<PodProgress, DriverError>) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask().await;
        let wait = match &answer {
            Ok(progress) if progress.is_done() => return,
            Ok(progress) => progress.poll_after().unwrap_or_default(),
            Err(error) if error.transient() => error.retry_after().unwrap_or(Duration::from_millis(20)),
            Err(error) => panic!("{what}: {error}"),
        };
        assert!(Instant::now() < deadline, "not in time: {what}: {answer:?}");
        sleep(wait.min(Duration::from_secs(1))).await;
    }
}

/// A new driver reads the device several times before it takes something for absent. What forgets it meanwhile gets nowhere.
pub(crate) fn reads_on(answer: &Result<PodProgress, DriverError>) -> bool {
    matches!(answer, Ok(PodProgress::Working { state, .. }) if state.starts_with("reading"))
}

pub(crate) async fn deploy(driver: &dyn AppHostingDriver, request: &PodRequest) {
    done("deploy", async || driver.deploy_pod(request).await).await;
}

pub(crate) async fn delete(driver: &dyn AppHostingDriver, owner: &Owner) {
    done("delete", async || driver.delete_pod(owner).await).await;
}

/// Asks once more until what is there is as wanted.
pub(crate) async fn until(what: &str, mut wanted: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !wanted().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The pod of that UID as the driver tells it.
pub(crate) async fn reported(driver: &dyn AppHostingDriver, owner: &Owner) -> Option<HostedPod> {
    driver.get_pod_status(owner).await.unwrap()
}

pub(crate) fn runs(pod: &HostedPod) -> bool {
    pod.containers.iter().all(|container| container.state == HostedContainerState::Running)
}

/// A device with TLS.
pub(crate) fn secure() -> World {
    World::new(|options| options.tls = Tls::Server)
}
