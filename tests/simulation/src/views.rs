//! The pods and services at the API server, as far as the worlds look at them.

use serde_json::Value;
use staffetta_driver::LoadBalancerId;
use staffetta_network::lb::{STATE_ANNOTATION, resources_of_annotation};
use staffetta_network::os_vif::{KURYR_VIF, PodState};

/// A pod at the API server.
#[derive(Clone, PartialEq)]
pub(crate) struct PodView {
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) deleting: bool,
    /// The grace period of its deletion, in seconds.
    pub(crate) grace: i64,
    pub(crate) annotation: Option<String>,
    pub(crate) finalizers: usize,
    pub(crate) node: String,
    /// The value of its label `app`.
    pub(crate) app: String,
    /// The name of its only container.
    pub(crate) container: String,
    /// `true` if its condition `Ready` says so.
    pub(crate) ready: bool,
}

impl PodView {
    pub(crate) fn of(pod: &Value) -> Self {
        let metadata = &pod["metadata"];
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        Self {
            name: text(&metadata["name"]),
            phase: text(&pod["status"]["phase"]),
            deleting: metadata["deletionTimestamp"].is_string(),
            grace: metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default(),
            annotation: metadata["annotations"][KURYR_VIF].as_str().map(str::to_owned),
            finalizers: metadata["finalizers"].as_array().map_or(0, Vec::len),
            node: text(&pod["spec"]["nodeName"]),
            app: text(&metadata["labels"]["app"]),
            container: text(&pod["spec"]["containers"][0]["name"]),
            ready: conditions.any(|one| one["type"] == "Ready" && one["status"] == "True"),
        }
    }

    /// Returns `true` if none of its containers runs any more.
    pub(crate) fn is_finished(&self) -> bool {
        ["Succeeded", "Failed"].contains(&self.phase.as_str()) || self.deleting && self.grace == 0
    }

    /// Returns the state that the annotation shows.
    pub(crate) fn vifs(&self) -> Option<PodState> {
        PodState::read(self.annotation.as_deref()?).ok()
    }
}

/// A service at the API server.
#[derive(Clone)]
pub(crate) struct ServiceView {
    pub(crate) name: String,
    pub(crate) deleting: bool,
    /// `true` if the annotation with the state cannot be read.
    pub(crate) malformed: bool,
    /// The load balancer that this annotation names.
    pub(crate) shown: Option<LoadBalancerId>,
    pub(crate) ports: Vec<u16>,
    /// `true` if it wants a public address.
    pub(crate) public: bool,
    /// The public address in its status.
    pub(crate) ingress: Option<String>,
}

impl ServiceView {
    pub(crate) fn of(service: &Value) -> Self {
        let (metadata, spec) = (&service["metadata"], &service["spec"]);
        let state = metadata["annotations"][STATE_ANNOTATION].as_str();
        let state = state.map(resources_of_annotation);
        let ports = spec["ports"].as_array().into_iter().flatten();
        Self {
            name: text(&metadata["name"]),
            deleting: metadata["deletionTimestamp"].is_string(),
            malformed: state.as_ref().is_some_and(Result::is_err),
            shown: state.and_then(|state| Some(state.ok()?.0?.id)),
            ports: ports.filter_map(|port| u16::try_from(port["port"].as_u64()?).ok()).collect(),
            public: spec["type"] == "LoadBalancer",
            ingress: service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned),
        }
    }
}

/// Returns the text of a JSON value; empty if it is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
