//! The handler `app_hosting`: devices as virtual nodes, on which pods become applications.
//!
//! Devices come from the configuration, from files ([`AppHostingOptions::device_files`], in the format of Cisco's
//! provider) and from [`CiscoDevice`] objects, which may change at run time. Each device is a node of [`VirtualNodes`].
//! The driver that the device specification names runs the pods on the device.

mod allowed;
mod back_end;
mod check;
mod cisco_device;
mod connecting;
mod controller;
mod credentials;
mod description;
mod device;
mod devices;
mod entry;
mod error;
mod file;
mod name;
mod options;
mod source;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde::Serialize;
use serde::de::DeserializeOwned;
use staffetta_driver::app_hosting::AppHostingDriverTable;
use staffetta_handler::{Recorder, Registration};

use self::connecting::DriverConnections;
use self::controller::{Controller, StatusRounds};
use self::description::PROVIDER_LABEL;
use self::devices::Devices;
use self::source::DeviceSource;
use crate::handler::VirtualNodes;
use crate::kubelet::{KubeletError, Kubelets};
use crate::metrics::VirtualNodeMetricsRegistry;
use crate::policy::Policy;
use crate::shared::Dependencies;

#[cfg(test)]
pub(crate) use self::back_end::DeviceBackEnd;
pub use self::cisco_device::{CiscoDevice, CiscoDeviceStatus};
pub use self::controller::FINALIZER;
pub use self::device::{CredentialSecretRef, DeviceDescription, LogLevel, TaintEffect, TaintSpec};
pub use self::entry::DeviceEntry;
pub use self::error::DeviceError;
pub use self::file::{FileError, check as check_devices, read as read_devices};
pub use self::name::node_name;
pub use self::options::AppHostingOptions;

/// The name of the handler, as in `kubernetes.enabled_handlers`.
pub const HANDLER: &str = "app_hosting";

/// The dependencies and options of the handler `app_hosting`.
pub struct AppHosting {
    /// The name of this installation (`kubernetes.cluster_id`), which distinguishes its nodes and workloads from those
    /// of other installations.
    pub cluster: String,
    /// The client of the Kubernetes API.
    pub client: Client,
    /// The options of the section `[app_hosting]`.
    pub options: AppHostingOptions,
    /// The devices of the configuration and of files, by the name of their node; see [`read_devices`].
    pub devices: BTreeMap<String, DeviceEntry>,
    /// The app-hosting drivers, by the name that device specifications use (`XE`).
    pub drivers: AppHostingDriverTable,
    /// The recorder that publishes Kubernetes Events.
    pub recorder: Recorder,
    /// `true` if the API server serves `CiscoDevice`.
    pub custom_resources: bool,
    /// The registry to which the handler's metrics are added.
    pub figures: VirtualNodeMetricsRegistry,
}

impl AppHosting {
    /// Builds the registration of the handler, including the reconciler of `CiscoDevice` objects if `custom_resources`
    /// is `true`. `S` is the type of the section of drivers in these objects
    /// ([`DeviceDescription::xe`]).
    ///
    /// # Errors
    ///
    /// Returns an error if the certificates of the kubelet APIs cannot be read or generated.
    pub fn registration<S: DeserializeOwned + Serialize>(
        self,
    ) -> Result<Registration<VirtualNodes>, KubeletError> {
        let Self { cluster, client, options, devices, drivers, recorder, custom_resources, figures } = self;
        let known = Arc::new(Devices::new(devices, options.clone()).with_section::<S>());
        let (devices, connecting) = (Arc::clone(&known), DriverConnections::default());
        let source = DeviceSource { devices, drivers, client: client.clone(), connecting };
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

/// Returns the intervals and time limits of virtual nodes from the options of the handler, which are in milliseconds.
fn policy(options: &AppHostingOptions) -> Policy {
    Policy {
        poll_interval: Duration::from_millis(options.poll_interval_ms.get()),
        health_interval: Duration::from_millis(options.health_interval_ms.get()),
        read_timeout: Duration::from_millis(options.read_timeout_ms.get()),
        unreachable_after: Duration::from_millis(options.unreachable_after_ms),
        orphan_grace: Duration::from_millis(options.orphan_grace_ms),
        secret_namespaces: options.secret_namespaces.clone(),
        ..Policy::default()
    }
}
