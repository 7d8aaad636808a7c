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
use super::mark::Mark;
use super::network::PodNetwork;
use super::refusal::Refusal;
use super::resources::Limits;
use super::run_options::Options;
use crate::model::config::{App, RunOptions};

/// How many digits of a form's digest are kept.
const FORM: usize = 12;

/// How many name servers an application may have.
const NAME_SERVERS: usize = 5;

/// Turns pods into applications of one device.
#[derive(Clone, Debug)]
pub(crate) struct Translator {
    /// The cluster, as marks name it.
    pub(crate) cluster: String,
    pub(crate) limits: Limits,
    pub(crate) network: PodNetwork,
}

/// A pod as the applications that it is to become.
#[derive(Debug)]
pub(crate) struct WantedPod {
    pub(crate) owner: Owner,
    /// Whether a container that ended is started again.
    pub(crate) restarts_ended: bool,
    /// Whether a container that failed is tried again.
    pub(crate) restarts_failed: bool,
    /// In the order of the containers.
    pub(crate) apps: Vec<WantedApp>,
}

/// An application that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct WantedApp {
    pub(crate) id: String,
    pub(crate) container: String,
    /// What `install` is given.
    pub(crate) package: String,
    /// Whether the device fetches the package itself.
    pub(crate) remote: bool,
    /// A digest of what may change of a container.
    pub(crate) form: String,
    /// Its configuration, without an address.
    config: App,
    /// The options of its container where the package comes from a copy on the flash.
    options_of_copied: RunOptions,
    network: PodNetwork,
}

impl Translator {
    /// A translator for the devices of one description.
    pub(crate) fn new(cluster: &ClusterId, limits: Limits, network: PodNetwork) -> Self {
        Self { cluster: Mark::cluster(cluster), limits, network }
    }

    /// What the pod is to become, or why it cannot be.
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
        let mark = Mark {
            owner,
            container: container.name.clone(),
            cluster: Some(self.cluster.clone()),
            form: Some(form.clone()),
            position: Some(position),
            copied: false,
        };
        let run_options = |mark: &Mark| {
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
        let mut config = App {
            application_name: id.clone(),
            application_resource_profile: Some(self.limits.profile(&path, container)?),
            run_optss: run_options(&mark)?,
            start: true,
            ..App::default()
        };
        name_servers(spec, &mut config)?;
        Ok(WantedApp {
            id,
            container: container.name.clone(),
            remote: image::is_url(&package),
            package,
            form,
            config,
            options_of_copied: run_options(&Mark { copied: true, ..mark })?,
            network: self.network.clone(),
        })
    }
}

impl WantedApp {
    /// Its configuration, with the address that it is to have; none where it asks a DHCP server. `copied` where its package
    /// comes from a copy on the flash.
    pub(crate) fn config(&self, address: Option<Ipv4Addr>, copied: bool) -> App {
        let mut config = self.config.clone();
        if copied {
            config.run_optss.clone_from(&self.options_of_copied);
        }
        self.network.apply(&mut config, address);
        config
    }

    /// The body of the request that makes the configuration that of an application whose package is copied: the one line that
    /// is another one.
    pub(crate) fn diversion(&self, id: &str) -> Value {
        let before = &self.config.run_optss.run_opts;
        let other =
            self.options_of_copied.run_opts.iter().zip(before).filter(|(line, before)| line != before);
        let lines: Vec<_> = other.map(|(line, _)| line).collect();
        let app = json!({ "application-name": id, "run-optss": { "run-opts": lines } });
        json!({ "Cisco-IOS-XE-app-hosting-cfg:app": [app] })
    }
}

/// A digest of what Kubernetes lets change in a container that runs: its image and its resources.
fn form(container: &Container) -> String {
    let resources = serde_json::to_string(&container.resources).unwrap_or_default();
    digest(&format!("{}\n{resources}", container.image.as_deref().unwrap_or_default()), FORM)
}

fn name_servers(spec: &PodSpec, app: &mut App) -> Result<(), Refusal> {
    const PATH: &str = "spec.dnsConfig.nameservers";
    let servers = spec.dns_config.as_ref().and_then(|dns| dns.nameservers.as_deref()).unwrap_or_default();
    if servers.len() > NAME_SERVERS {
        return Err(Refusal::unsupported(PATH, format!("the device takes at most {NAME_SERVERS}")));
    }
    let network = &mut app.application_network_resource;
    let places = [
        &mut network.nameserver_0,
        &mut network.nameserver_1,
        &mut network.nameserver_2,
        &mut network.nameserver_3,
        &mut network.nameserver_4,
    ];
    for (place, server) in places.into_iter().zip(servers) {
        let address: Option<IpAddr> = server.parse().ok();
        *place = Some(address.ok_or_else(|| Refusal::invalid(PATH, "one of them is no address"))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
