//! The connection settings that a service requests in addition to its ports.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use kube::ResourceExt;
use staffetta_driver::SessionPersistence;

use crate::lbaasspec::{LbaasSpecError, invalid};

/// The key of Kuryr's annotation with the idle timeout of clients, in milliseconds. 0 stands for
/// the default of the load balancer's provider.
pub const CLIENT_TIMEOUT_ANNOTATION: &str = "openstack.org/kuryr-timeout-client-data";

/// The key of Kuryr's annotation with the idle timeout of pool members, in milliseconds. 0 stands
/// for the default of the load balancer's provider.
pub const MEMBER_TIMEOUT_ANNOTATION: &str = "openstack.org/kuryr-timeout-member-data";

/// The default duration of `sessionAffinity: ClientIP`, in seconds (Kubernetes API,
/// `ClientIPConfig`).
const AFFINITY_S: u32 = 10_800;

/// The connection settings that a service requests in addition to its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServiceSettings {
    /// The idle timeout of clients in milliseconds; `None` for the provider's default.
    pub(super) client_timeout_ms: Option<u32>,
    /// The idle timeout of members in milliseconds; `None` for the provider's default.
    pub(super) member_timeout_ms: Option<u32>,
    /// The networks that may reach the public address, sorted. An empty list allows all networks.
    pub(super) source_ranges: Vec<IpNet>,
    /// The session persistence; `None` if the service requests no session affinity.
    pub(super) persistence: Option<SessionPersistence>,
}

impl ServiceSettings {
    /// Parses the settings of `service`. As with Kuryr, a timeout of 0 means the provider's
    /// default. Returns an error if a value is invalid.
    pub(super) fn of(service: &Service) -> Result<Self, LbaasSpecError> {
        let spec = service.spec.as_ref();
        Ok(Self {
            client_timeout_ms: timeout(service, CLIENT_TIMEOUT_ANNOTATION)?,
            member_timeout_ms: timeout(service, MEMBER_TIMEOUT_ANNOTATION)?,
            source_ranges: spec.map(source_ranges).transpose()?.unwrap_or_default(),
            persistence: spec.and_then(persistence),
        })
    }
}

/// Parses the timeout annotation `key`. Returns `None` if the annotation is missing or 0.
fn timeout(service: &Service, key: &'static str) -> Result<Option<u32>, LbaasSpecError> {
    let Some(text) = service.annotations().get(key) else { return Ok(None) };
    match text.trim().parse::<u32>() {
        Ok(0) => Ok(None),
        Ok(milliseconds) => Ok(Some(milliseconds)),
        Err(_) => Err(invalid(key, text, "a number of milliseconds")),
    }
}

/// Parses `spec.loadBalancerSourceRanges`. The result is sorted and free of duplicates.
fn source_ranges(spec: &ServiceSpec) -> Result<Vec<IpNet>, LbaasSpecError> {
    const FIELD: &str = "spec.loadBalancerSourceRanges";
    let ranges = spec.load_balancer_source_ranges.iter().flatten();
    let range = |text: &String| match text.trim().parse::<IpNet>() {
        Ok(range) => Ok(range.trunc()),
        // Ignoring an invalid range could leave the list empty, which opens the service to
        // everybody.
        Err(_) => Err(invalid(FIELD, text, "a network such as 192.0.2.0/24")),
    };
    let mut ranges = ranges.map(range).collect::<Result<Vec<_>, _>>()?;
    ranges.sort_unstable();
    ranges.dedup();
    Ok(ranges)
}

/// Returns the session persistence for the session affinity `ClientIP`, and `None` for any other.
fn persistence(spec: &ServiceSpec) -> Option<SessionPersistence> {
    let _ = spec.session_affinity.as_deref().filter(|affinity| *affinity == "ClientIP")?;
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| u32::try_from(config.timeout_seconds?).ok());
    Some(SessionPersistence { timeout_s: Some(seconds.unwrap_or(AFFINITY_S).max(1)) })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use staffetta_handler::Failure;

    use super::*;

    fn settings(annotations: &Value, spec: &Value) -> Result<ServiceSettings, LbaasSpecError> {
        let service = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        ServiceSettings::of(&serde_json::from_value(service).unwrap())
    }

    #[test]
    fn a_service_without_settings_gets_the_defaults() {
        let plain = json!({ "clusterIP": "10.0.0.1", "sessionAffinity": "None" });
        assert_eq!(settings(&json!({}), &plain).unwrap(), ServiceSettings::default());
        assert_eq!(ServiceSettings::of(&Service::default()).unwrap(), ServiceSettings::default());
        assert_eq!(
            settings(&json!({ CLIENT_TIMEOUT_ANNOTATION: "0" }), &plain).unwrap(),
            ServiceSettings::default()
        );
    }

    #[test]
    fn time_outs_ranges_and_affinity_are_parsed() {
        let annotations = json!({ CLIENT_TIMEOUT_ANNOTATION: "60000", MEMBER_TIMEOUT_ANNOTATION: "1" });
        let spec = json!({ "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } },
            "loadBalancerSourceRanges": ["198.51.100.7/24", "192.0.2.0/24", "192.0.2.0/24"] });
        let expected = ServiceSettings {
            client_timeout_ms: Some(60_000),
            member_timeout_ms: Some(1),
            source_ranges: ["192.0.2.0/24", "198.51.100.0/24"].map(|range| range.parse().unwrap()).into(),
            persistence: Some(SessionPersistence { timeout_s: Some(60) }),
        };
        assert_eq!(settings(&annotations, &spec).unwrap(), expected);
        let default = settings(&json!({}), &json!({ "sessionAffinity": "ClientIP" })).unwrap();
        assert_eq!(default.persistence, Some(SessionPersistence { timeout_s: Some(AFFINITY_S) }));
    }

    #[test]
    fn an_invalid_value_is_an_error_that_names_the_field() {
        for (annotations, spec, named) in [
            (json!({ CLIENT_TIMEOUT_ANNOTATION: "1m" }), json!({}), CLIENT_TIMEOUT_ANNOTATION),
            (json!({ MEMBER_TIMEOUT_ANNOTATION: "-1" }), json!({}), MEMBER_TIMEOUT_ANNOTATION),
            (
                json!({}),
                json!({ "loadBalancerSourceRanges": ["192.0.2.0"] }),
                "spec.loadBalancerSourceRanges",
            ),
        ] {
            let error = settings(&annotations, &spec).unwrap_err();
            assert!(!error.transient() && error.to_string().contains(named), "{error}");
        }
    }
}
