//! The handler `app_hosting`: devices as virtual nodes, on which pods become applications.
//!
//! Devices come from the configuration, from files ([`AppHostingOptions::device_files`], in the form that users of Cisco's provider
//! have) and from [`CiscoDevice`]s at run time. Each is a node of a [`VirtualNodes`]; the driver that its description names does the work.

mod back_end;
mod cisco_device;
mod connecting;
mod controller;
mod credentials;
mod description;
mod devices;
mod entry;
mod error;
mod file;
mod label;
mod name;
mod options;
mod source;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_driver::app_hosting::AppHostingDriverTable;
use staffetta_handler::{Recorder, Registration};

use self::connecting::DriverConnections;
use self::controller::{Controller, StatusRounds};
use self::description::PROVIDER_LABEL;
use self::devices::Devices;
use self::source::Description;
use crate::handler::VirtualNodes;
use crate::kubelet::{KubeletError, Kubelets};
use crate::metrics::VirtualNodeMetricsRegistry;
use crate::policy::Policy;
use crate::shared::Dependencies;

#[cfg(test)]
pub(crate) use self::back_end::DeviceBackEnd;
pub use self::cisco_device::{CiscoDevice, CiscoDeviceStatus};
pub use self::entry::DeviceEntry;
pub use self::error::DeviceError;
pub use self::file::{FileError, read as read_devices};
pub use self::name::node_name;
pub use self::options::AppHostingOptions;

/// The name of the handler.
pub const HANDLER: &str = "app_hosting";

/// The dependencies and options of the handler.
pub struct AppHosting {
    /// The name of the cluster (`kubernetes.cluster_id`), by which the nodes of several installations are told apart.
    pub cluster: String,
    /// The client of the Kubernetes API.
    pub client: Client,
    /// The options of the section `[app_hosting]`.
    pub options: AppHostingOptions,
    /// The devices of its configuration and files, by the names of their nodes.
    pub devices: BTreeMap<String, DeviceEntry>,
    /// The kinds of devices.
    pub drivers: AppHostingDriverTable,
    /// Publishes Kubernetes Events.
    pub recorder: Recorder,
    /// `true` if the API server serves `CiscoDevice`.
    pub custom_resources: bool,
    /// Receives the handler's metrics.
    pub figures: VirtualNodeMetricsRegistry,
}

impl AppHosting {
    /// Builds the registration.
    ///
    /// # Errors
    ///
    /// When the certificates of the kubelet APIs cannot be used.
    pub fn registration(self) -> Result<Registration<VirtualNodes>, KubeletError> {
        let Self { cluster, client, options, devices, drivers, recorder, custom_resources, figures } = self;
        let known = Arc::new(Devices::new(devices));
        let (devices, connecting) = (Arc::clone(&known), DriverConnections::default());
        let source = Description { devices, drivers, client: client.clone(), connecting };
        let kubelets = options.kubelets().map(Kubelets::new).transpose()?;
        let policy = policy(&options);
        let dependencies = Dependencies {
            handler: HANDLER,
            cluster,
            client: client.clone(),
            source: Arc::new(source),
            recorder,
            policy,
            kubelets,
            predecessor: Some(PROVIDER_LABEL),
            metrics: figures,
        };
        let nodes = VirtualNodes::new(dependencies);
        let controller = Controller::new(client, Arc::clone(&known), nodes.shared());
        let registration = nodes.registration();
        if !custom_resources {
            return Ok(registration);
        }
        let resources = Registration::new(controller.clone())
            .index::<CiscoDevice>(known)
            .on::<CiscoDevice>()
            .on_trigger::<controller::DeviceDue>()
            .source(StatusRounds(controller));
        Ok(registration.join(resources.erase()))
    }
}

fn policy(options: &AppHostingOptions) -> Policy {
    Policy {
        poll_interval: Duration::from_millis(options.poll_interval_ms.get()),
        health_interval: Duration::from_millis(options.health_interval_ms.get()),
        read_timeout: Duration::from_millis(options.read_timeout_ms.get()),
        unreachable_after: Duration::from_millis(options.unreachable_after_ms),
        orphan_grace: Duration::from_millis(options.orphan_grace_ms),
        ..Policy::default()
    }
}
