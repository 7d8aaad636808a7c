//! What a service asks of its load balancer beyond its ports: how connections are treated. No driver, no API.

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use kube::ResourceExt;
use staffetta_driver::SessionPersistence;

use super::error::LbError;

/// The annotation with the time for which a client may be silent, in milliseconds.
pub const CLIENT_TIMEOUT_ANNOTATION: &str = "openstack.org/kuryr-timeout-client-data";

/// The annotation with the time for which a member may be silent, in milliseconds.
pub const MEMBER_TIMEOUT_ANNOTATION: &str = "openstack.org/kuryr-timeout-member-data";

/// For how long a client keeps its member where the service does not say, in seconds: Kubernetes' own default.
const AFFINITY_S: u32 = 10_800;

/// What a service asks of its load balancer beyond its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) client_timeout_ms: Option<u32>,
    pub(super) member_timeout_ms: Option<u32>,
    /// The only addresses that may reach its public address, sorted; empty for any.
    pub(super) source_ranges: Vec<IpNet>,
    pub(super) persistence: Option<SessionPersistence>,
}

impl Asked {
    /// What `service` asks. As with Kuryr, 0 leaves a time-out to the other side.
    pub(super) fn of(service: &Service) -> Result<Self, LbError> {
        let spec = service.spec.as_ref();
        Ok(Self {
            client_timeout_ms: timeout(service, CLIENT_TIMEOUT_ANNOTATION)?,
            member_timeout_ms: timeout(service, MEMBER_TIMEOUT_ANNOTATION)?,
            source_ranges: spec.map(source_ranges).transpose()?.unwrap_or_default(),
            persistence: spec.and_then(persistence),
        })
    }

    /// Whether an annotation is one of those that ask.
    pub(super) fn is_annotation(key: &str) -> bool {
        key == CLIENT_TIMEOUT_ANNOTATION || key == MEMBER_TIMEOUT_ANNOTATION
    }

    /// The fields of the spec that ask, beside `others`.
    pub(super) fn fields(spec: &ServiceSpec, others: ServiceSpec) -> ServiceSpec {
        ServiceSpec {
            load_balancer_source_ranges: spec.load_balancer_source_ranges.clone(),
            session_affinity: spec.session_affinity.clone().filter(|affinity| affinity == "ClientIP"),
            session_affinity_config: spec.session_affinity_config.clone(),
            ..others
        }
    }
}

fn timeout(service: &Service, key: &'static str) -> Result<Option<u32>, LbError> {
    let Some(text) = service.annotations().get(key) else { return Ok(None) };
    match text.trim().parse::<u32>() {
        Ok(0) => Ok(None),
        Ok(milliseconds) => Ok(Some(milliseconds)),
        Err(_) => Err(asked(key, text, "a number of milliseconds")),
    }
}

fn source_ranges(spec: &ServiceSpec) -> Result<Vec<IpNet>, LbError> {
    const FIELD: &str = "spec.loadBalancerSourceRanges";
    let ranges = spec.load_balancer_source_ranges.iter().flatten();
    let range = |text: &String| match text.trim().parse::<IpNet>() {
        Ok(range) => Ok(range.trunc()),
        // A range that is left out would open the service to everybody, were it the only one.
        Err(_) => Err(asked(FIELD, text, "a network such as 192.0.2.0/24")),
    };
    let mut ranges = ranges.map(range).collect::<Result<Vec<_>, _>>()?;
    ranges.sort_unstable();
    ranges.dedup();
    Ok(ranges)
}

fn persistence(spec: &ServiceSpec) -> Option<SessionPersistence> {
    let _ = spec.session_affinity.as_deref().filter(|affinity| *affinity == "ClientIP")?;
    let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
    let seconds = config.and_then(|config| u32::try_from(config.timeout_seconds?).ok());
    Some(SessionPersistence { timeout_s: Some(seconds.unwrap_or(AFFINITY_S).max(1)) })
}

fn asked(what: &'static str, found: &str, expected: &'static str) -> LbError {
    LbError::Asked { what, found: found.chars().take(60).collect(), expected }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use staffetta_handler::Failure;

    use super::*;

    fn ask(annotations: &Value, spec: &Value) -> Result<Asked, LbError> {
        let service = json!({ "metadata": { "annotations": annotations }, "spec": spec });
        Asked::of(&serde_json::from_value(service).unwrap())
    }

    #[test]
    fn a_service_that_asks_for_nothing_gets_what_the_other_side_does_by_itself() {
        let plain = json!({ "clusterIP": "10.0.0.1", "sessionAffinity": "None" });
        assert_eq!(ask(&json!({}), &plain).unwrap(), Asked::default());
        assert_eq!(Asked::of(&Service::default()).unwrap(), Asked::default());
        assert_eq!(ask(&json!({ CLIENT_TIMEOUT_ANNOTATION: "0" }), &plain).unwrap(), Asked::default());
    }

    #[test]
    fn time_outs_ranges_and_affinity_are_read() {
        let annotations = json!({ CLIENT_TIMEOUT_ANNOTATION: "60000", MEMBER_TIMEOUT_ANNOTATION: "1" });
        let spec = json!({ "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } },
            "loadBalancerSourceRanges": ["198.51.100.7/24", "192.0.2.0/24", "192.0.2.0/24"] });
        let expected = Asked {
            client_timeout_ms: Some(60_000),
            member_timeout_ms: Some(1),
            source_ranges: ["192.0.2.0/24", "198.51.100.0/24"].map(|range| range.parse().unwrap()).into(),
            persistence: Some(SessionPersistence { timeout_s: Some(60) }),
        };
        assert_eq!(ask(&annotations, &spec).unwrap(), expected);
        let unsaid = ask(&json!({}), &json!({ "sessionAffinity": "ClientIP" })).unwrap();
        assert_eq!(unsaid.persistence, Some(SessionPersistence { timeout_s: Some(AFFINITY_S) }));
    }

    #[test]
    fn what_makes_no_sense_is_named_and_opens_nothing() {
        for (annotations, spec, named) in [
            (json!({ CLIENT_TIMEOUT_ANNOTATION: "1m" }), json!({}), CLIENT_TIMEOUT_ANNOTATION),
            (json!({ MEMBER_TIMEOUT_ANNOTATION: "-1" }), json!({}), MEMBER_TIMEOUT_ANNOTATION),
            (
                json!({}),
                json!({ "loadBalancerSourceRanges": ["192.0.2.0"] }),
                "spec.loadBalancerSourceRanges",
            ),
        ] {
            let error = ask(&annotations, &spec).unwrap_err();
            assert!(!error.transient() && error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn the_fields_that_are_kept_ask_for_the_same() {
        let spec = json!({ "clusterIP": "10.0.0.1", "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 60 } },
            "loadBalancerSourceRanges": ["192.0.2.0/24"] });
        let spec: ServiceSpec = serde_json::from_value(spec).unwrap();
        let service = |spec| Service { spec: Some(spec), ..Service::default() };
        let kept = Asked::fields(&spec, ServiceSpec::default());
        assert_eq!(kept.cluster_ip, None);
        assert_eq!(Asked::of(&service(kept)).unwrap(), Asked::of(&service(spec)).unwrap());
        let plain = ServiceSpec { session_affinity: Some("None".into()), ..ServiceSpec::default() };
        assert_eq!(Asked::fields(&plain, ServiceSpec::default()), ServiceSpec::default());
    }
}
