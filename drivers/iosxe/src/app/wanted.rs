//! Translates a pod into the applications that should exist on the device.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use staffetta_driver::virtual_node::PodRequest;
use staffetta_driver::{ClusterId, DriverError, Owner};

use super::digest::digest;
use super::fields::{check_pod, container_options};
use super::id::app_id;
use super::image;
use super::mark::AppMark;
use super::network::PodNetwork;
use super::refusal::{invalid, unsupported};
use super::resources::AppResourceLimits;
use super::run_options::Options;
use crate::model::config::{RunOptions, body};

/// The number of hexadecimal digits of the digest of a container's mutable fields.
const DIGEST_DIGITS: usize = 12;

/// The translator of pods into applications of one device, with the limits and the network of the device and the cluster's id.
#[derive(Clone, Debug)]
pub(crate) struct Translator {
    /// The cluster, as ownership labels name it.
    pub(crate) cluster: String,
    /// The defaults and maxima of the resources of an application.
    pub(crate) limits: AppResourceLimits,
    /// The network attachment of the applications.
    pub(crate) network: PodNetwork,
}

/// The applications that should exist on the device for a pod.
#[derive(Debug)]
pub(crate) struct WantedPod {
    /// The namespace, name and UID of the pod.
    pub(crate) owner: Owner,
    /// `true` if a container that exited is restarted (restart policy `Always`).
    pub(crate) restarts_ended: bool,
    /// `true` if a container that failed is restarted (every restart policy except `Never`).
    pub(crate) restarts_failed: bool,
    /// The applications, in the order of the containers.
    pub(crate) apps: Vec<WantedApp>,
}

/// An application that should exist on the device for a container.
#[derive(Clone, Debug)]
pub(crate) struct WantedApp {
    /// The name of the application on the device.
    pub(crate) id: String,
    /// The name of the container.
    pub(crate) container: String,
    /// The file or URL of the package, the argument `package` of an install.
    pub(crate) package: String,
    /// `true` if `package` is a URL, from which the device downloads the package.
    pub(crate) remote: bool,
    /// `true` if the status of the pod says that the container runs or has ended.
    pub(crate) has_run: bool,
    /// A digest of the mutable fields of a container: image and resources. If the application on the device has another one, it is replaced.
    pub(crate) form: String,
    /// The configuration of the application, without the network and the run options.
    config: Value,
    /// The run options for an installation from `package`.
    options: RunOptions,
    /// The run options for an installation from a copy on the flash.
    options_of_copied: RunOptions,
    network: PodNetwork,
}

impl Translator {
    /// Creates a translator for the device with these limits and this network.
    pub(crate) fn new(cluster: &ClusterId, limits: AppResourceLimits, network: PodNetwork) -> Self {
        Self { cluster: AppMark::cluster(cluster), limits, network }
    }

    /// Translates a pod into applications. Returns a refusal with the path of the field if the device does not support
    /// the pod.
    pub(crate) fn translate(&self, request: &PodRequest) -> Result<WantedPod, DriverError> {
        let none = PodSpec::default();
        let spec = request.pod.spec.as_ref().unwrap_or(&none);
        check_pod(spec)?;
        check_names(spec)?;
        let policy = spec.restart_policy.as_deref().unwrap_or("Always");
        let apps = spec.containers.iter().enumerate();
        let apps = apps.map(|(position, container)| self.app(request, spec, position, container));
        Ok(WantedPod {
            owner: request.owner(),
            restarts_ended: policy == "Always",
            restarts_failed: policy != "Never",
            apps: apps.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the application of the container at `position` in the pod: its package, resources, network and run options, with the ownership
    /// mark among them. The error names the field of the pod that a device cannot provide.
    fn app(
        &self,
        request: &PodRequest,
        spec: &PodSpec,
        position: usize,
        container: &Container,
    ) -> Result<WantedApp, DriverError> {
        // As kubelets name a container in Events.
        let path = format!("spec.containers{{{}}}", container.name);
        let package = container.image.clone().unwrap_or_default();
        image::check(&path, &package, container.image_pull_policy.as_deref())?;
        let owner = request.owner();
        let id = app_id(owner.uid.as_str(), &container.name);
        let form = form(container);
        let mark = AppMark {
            owner,
            container: container.name.clone(),
            cluster: Some(self.cluster.clone()),
            form: Some(form.clone()),
            position: Some(position),
            copied: false,
        };
        let run_options = |mark: &AppMark| -> Result<RunOptions, DriverError> {
            let mut options = Options::default();
            mark.write(&mut options).map_err(|why| unsupported("metadata", why))?;
            container_options(&path, spec, container, &mut options)?;
            for variable in request.environment_of(&container.name) {
                let value = format!("{}={}", variable.name, variable.value.expose_secret());
                let unfit = |why| unsupported(format!("{path}.env `{}`", variable.name), why);
                options.packed("-e", &value).map_err(unfit)?;
            }
            Ok(options.finish())
        };
        let config = json!({
            "application-name": id,
            "application-network-resource": name_servers(spec)?,
            "application-resource-profile": self.limits.profile(&path, container)?,
            "start": true,
        });
        Ok(WantedApp {
            id,
            container: container.name.clone(),
            remote: image::is_url(&package),
            has_run: has_run(&request.pod, &container.name),
            package,
            form,
            config,
            options: run_options(&mark)?,
            options_of_copied: run_options(&AppMark { copied: true, ..mark })?,
            network: self.network.clone(),
        })
    }
}

impl WantedApp {
    /// Returns the configuration of the application. `address` is its static IP address; `None` with DHCP. `copied` is
    /// `true` if the package is installed from a copy on the flash.
    pub(crate) fn config(&self, address: Option<Ipv4Addr>, copied: bool) -> Value {
        let mut config = self.config.clone();
        config["run-optss"] = json!(if copied { &self.options_of_copied } else { &self.options });
        self.network.apply(&mut config, address);
        config
    }

    /// Returns the body of the request that changes an existing configuration to an installation from a copy on the
    /// flash. It contains only the line of run options that changes.
    pub(crate) fn diversion(&self, id: &str) -> Value {
        let before = &self.options.run_opts;
        let other =
            self.options_of_copied.run_opts.iter().zip(before).filter(|(line, before)| line != before);
        let lines: Vec<_> = other.map(|(line, _)| line).collect();
        body(&json!({ "application-name": id, "run-optss": { "run-opts": lines } }))
    }
}

/// Refuses containers whose applications would have the same name.
fn check_names(spec: &PodSpec) -> Result<(), DriverError> {
    let mut ids = HashMap::new();
    for Container { name, .. } in &spec.containers {
        if let Some(other) = ids.insert(app_id("", name), name) {
            let why = format!(
                "`{other}` and `{name}` have the same digest in names of applications: rename one of them"
            );
            return Err(invalid("spec.containers", why));
        }
    }
    Ok(())
}

/// Returns `true` if the status of the pod says that the container runs or has ended.
fn has_run(pod: &Pod, container: &str) -> bool {
    let known = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let state =
        known.into_iter().find(|known| known.name == container).and_then(|known| known.state.as_ref());
    state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

/// Returns a digest of the mutable fields of a container (image and resources), by which a later change of
/// the pod is recognized.
fn form(container: &Container) -> String {
    let resources = serde_json::to_string(&container.resources).unwrap_or_default();
    digest(&format!("{}\n{resources}", container.image.as_deref().unwrap_or_default()), DIGEST_DIGITS)
}

/// Returns the name servers of the pod as leaves of the YANG container `application-network-resource`. Refuses more than the
/// YANG module has leaves for, and one that is not an IP address.
fn name_servers(spec: &PodSpec) -> Result<Value, DriverError> {
    const PATH: &str = "spec.dnsConfig.nameservers";
    // The names are the module's own.
    let leaves = ["nameserver-0", "nameserver-1", "nameserver2", "nameserver-3", "nameseerver4"];
    let servers = spec.dns_config.as_ref().and_then(|dns| dns.nameservers.as_deref()).unwrap_or_default();
    if servers.len() > leaves.len() {
        return Err(unsupported(PATH, format!("the device takes at most {}", leaves.len())));
    }
    let mut network = json!({});
    for (leaf, server) in leaves.into_iter().zip(servers) {
        let address: Option<IpAddr> = server.parse().ok();
        network[leaf] = json!(address.ok_or_else(|| invalid(PATH, "one of them is not an IP address"))?);
    }
    Ok(network)
}

#[cfg(test)]
mod tests;
