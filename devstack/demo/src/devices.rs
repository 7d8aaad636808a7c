//! Two simulated routers that host pods, as the devices of virtual nodes.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use staffetta_iosxe_device::{Device, Options, Site, Times};

/// The routers, which are nodes of the cluster by these names.
const NAMES: [&str; 2] = ["router-1", "router-2"];

/// The duration of each state change of an app.
const CHANGE: Duration = Duration::from_millis(50);

/// The running routers. They end when it is dropped.
pub(crate) struct Devices {
    _site: Site,
    routers: Vec<Device>,
    file: PathBuf,
}

/// Errors of starting the simulated routers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DevicesError {
    #[error("a router cannot listen")]
    Listen(#[source] io::Error),
    #[error("{} cannot be written", path.display())]
    Describe { path: PathBuf, source: io::Error },
}

impl Devices {
    /// Starts them. `folder` gets their description for the controller.
    pub(crate) fn start(folder: &Path) -> Result<Self, DevicesError> {
        let site = Site::start().map_err(DevicesError::Listen)?;
        let device = |name: &str| {
            let options = Options { name: name.into(), times: Times::each(CHANGE), ..Options::default() };
            site.device(options)
        };
        let routers = NAMES.into_iter().map(device).collect::<io::Result<Vec<_>>>();
        let routers = routers.map_err(DevicesError::Listen)?;
        let described: Vec<_> = routers.iter().map(describe).collect();
        let path = folder.join("devices.yaml");
        // JSON is YAML.
        let text = format!("{:#}\n", json!({ "devices": described }));
        std::fs::write(&path, text)
            .map_err(|source| DevicesError::Describe { path: path.clone(), source })?;
        Ok(Self { _site: site, routers, file: path })
    }

    /// The file that describes them.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The pods that have apps, each as namespace and name, and how many of the apps run.
    pub(crate) fn pods(&self) -> (BTreeSet<String>, usize) {
        let apps: Vec<_> = self.routers.iter().flat_map(Device::apps).collect();
        let pods = apps.iter().map(|app| {
            let label = |key| app.label(key).unwrap_or("?");
            format!("{}/{}", label("cisco.vk/pod-namespace"), label("cisco.vk/pod-name"))
        });
        (pods.collect(), apps.iter().filter(|app| app.runs()).count())
    }
}

fn describe(device: &Device) -> serde_json::Value {
    json!({ "name": device.name(), "device": {
        "driver": "XE", "address": device.address().ip(), "port": device.address().port(),
        "username": "admin", "password": "cisco-123", "tls": { "enabled": false }, "xe": {},
    } })
}
