//! A pod as the applications that it is to become.

use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use staffetta_driver::virtual_node::PodRequest;
use staffetta_driver::{ClusterId, Owner};

use super::digest::digest;
use super::fields::{check_pod, container_options, unfit_at};
use super::id::app_id;
use super::image;
use super::mark::AppMark;
use super::network::PodNetwork;
use super::refusal::Refusal;
use super::resources::AppResourceLimits;
use super::run_options::Options;
use crate::model::config::{RunOptions, body};

/// The number of digits kept of a configuration digest.
const FORM: usize = 12;

/// Turns pods into applications of one device.
#[derive(Clone, Debug)]
pub(crate) struct Translator {
    /// The cluster, as marks name it.
    pub(crate) cluster: String,
    pub(crate) limits: AppResourceLimits,
    pub(crate) network: PodNetwork,
}

/// A pod as the applications that it is to become.
#[derive(Debug)]
pub(crate) struct WantedPod {
    pub(crate) owner: Owner,
    /// `true` if a container that exited is restarted.
    pub(crate) restarts_ended: bool,
    /// `true` if a container that failed is restarted.
    pub(crate) restarts_failed: bool,
    /// In the order of the containers.
    pub(crate) apps: Vec<WantedApp>,
}

/// An application that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct WantedApp {
    pub(crate) id: String,
    pub(crate) container: String,
    /// The package argument of `install`.
    pub(crate) package: String,
    /// `true` if the device downloads the package itself.
    pub(crate) remote: bool,
    /// A digest of the mutable fields of a container: image and resources.
    pub(crate) form: String,
    /// Its configuration, without its network and its options.
    config: Value,
    /// The options of its container.
    options: RunOptions,
    /// The same where the package comes from a copy on the flash.
    options_of_copied: RunOptions,
    network: PodNetwork,
}

impl Translator {
    /// A translator for the devices of one description.
    pub(crate) fn new(cluster: &ClusterId, limits: AppResourceLimits, network: PodNetwork) -> Self {
        Self { cluster: AppMark::cluster(cluster), limits, network }
    }

    /// Translates a pod into applications, or returns why it cannot run.
    pub(crate) fn translate(&self, request: &PodRequest) -> Result<WantedPod, Refusal> {
        let none = PodSpec::default();
        let spec = request.pod.spec.as_ref().unwrap_or(&none);
        check_pod(spec)?;
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

    fn app(
        &self,
        request: &PodRequest,
        spec: &PodSpec,
        position: usize,
        container: &Container,
    ) -> Result<WantedApp, Refusal> {
        let path = format!("spec.containers[{position}]");
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
        let run_options = |mark: &AppMark| {
            let mut options = Options::default();
            mark.write(&mut options).map_err(|unfit| unfit_at("metadata", &unfit))?;
            container_options(&path, spec, container, &mut options)?;
            for variable in request.environment_of(&container.name) {
                let value = format!("{}={}", variable.name, variable.value.expose_secret());
                let unfit = |unfit| unfit_at(format!("{path}.env `{}`", variable.name), &unfit);
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
    /// Its configuration, with its address; `None` if it gets one from a DHCP server. `copied` if its package comes from a
    /// copy on the flash.
    pub(crate) fn config(&self, address: Option<Ipv4Addr>, copied: bool) -> Value {
        let mut config = self.config.clone();
        config["run-optss"] = json!(if copied { &self.options_of_copied } else { &self.options });
        self.network.apply(&mut config, address);
        config
    }

    /// The body of the request that makes the configuration that of an application whose package is copied: the one line that
    /// is another one.
    pub(crate) fn diversion(&self, id: &str) -> Value {
        let before = &self.options.run_opts;
        let other =
            self.options_of_copied.run_opts.iter().zip(before).filter(|(line, before)| line != before);
        let lines: Vec<_> = other.map(|(line, _)| line).collect();
        body(&json!({ "application-name": id, "run-optss": { "run-opts": lines } }))
    }
}

/// Returns a digest of the mutable fields of a container: image and resources.
fn form(container: &Container) -> String {
    let resources = serde_json::to_string(&container.resources).unwrap_or_default();
    digest(&format!("{}\n{resources}", container.image.as_deref().unwrap_or_default()), FORM)
}

fn name_servers(spec: &PodSpec) -> Result<Value, Refusal> {
    const PATH: &str = "spec.dnsConfig.nameservers";
    // The names are the module's own.
    let leaves = ["nameserver-0", "nameserver-1", "nameserver2", "nameserver-3", "nameseerver4"];
    let servers = spec.dns_config.as_ref().and_then(|dns| dns.nameservers.as_deref()).unwrap_or_default();
    if servers.len() > leaves.len() {
        return Err(Refusal::unsupported(PATH, format!("the device takes at most {}", leaves.len())));
    }
    let mut network = json!({});
    for (leaf, server) in leaves.into_iter().zip(servers) {
        let address: Option<IpAddr> = server.parse().ok();
        network[leaf] =
            json!(address.ok_or_else(|| Refusal::invalid(PATH, "one of them is not an IP address"))?);
    }
    Ok(network)
}

#[cfg(test)]
mod tests;
