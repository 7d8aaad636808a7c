//! The lease as the election sees it, and as it is sent.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::core::ObjectMeta;
use serde_json::{Value, json};

/// What was seen of a lease. Whatever it lacks or has that makes no sense is as if it were not there. What it says about
/// the time of day is not looked at: that is another machine's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sighting {
    /// Its resourceVersion.
    pub(super) version: String,
    /// Who holds it; empty when nobody does.
    pub(super) holder: String,
    /// How long others wait after a renewal.
    pub(super) duration: Option<Duration>,
    /// How often it went from hand to hand.
    pub(super) transitions: i32,
}

/// A lease to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Draft {
    /// Which version it replaces; none makes a new lease.
    pub(super) version: Option<String>,
    /// Who holds it; empty for nobody.
    pub(super) holder: String,
    /// How long others wait after it, in seconds.
    pub(super) duration_seconds: i32,
    /// How often it went from hand to hand, where this is one more time; none for a renewal.
    pub(super) transitions: Option<i32>,
}

impl Sighting {
    /// What `lease` shows.
    pub(super) fn of(lease: Lease) -> Self {
        let spec = lease.spec.unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            version: lease.metadata.resource_version.unwrap_or_default(),
            holder: spec.holder_identity.unwrap_or_default(),
            duration: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            transitions: spec.lease_transitions.unwrap_or_default().max(0),
        }
    }
}

impl Draft {
    /// The merge patch that replaces `version`, at this time of day. What others keep on the lease stays.
    pub(super) fn patch(&self, version: &str, now: Timestamp) -> Value {
        let mut spec = json!({
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.duration_seconds,
            "renewTime": MicroTime(now),
        });
        if let Some(transitions) = self.transitions {
            spec["acquireTime"] = json!(MicroTime(now));
            spec["leaseTransitions"] = json!(transitions);
        }
        json!({ "metadata": { "resourceVersion": version }, "spec": spec })
    }

    /// The new lease of this name, at this time of day.
    pub(super) fn lease(&self, name: &str, now: Timestamp) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(self.duration_seconds),
            lease_transitions: self.transitions,
            acquire_time: Some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Lease { metadata, spec: Some(spec) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(spec: &Value) -> Sighting {
        let lease = json!({ "metadata": { "resourceVersion": "7" }, "spec": spec });
        Sighting::of(serde_json::from_value(lease).unwrap())
    }

    #[test]
    fn a_lease_of_another_tool_is_read_as_far_as_it_makes_sense() {
        let empty = Sighting { version: "7".into(), holder: String::new(), duration: None, transitions: 0 };
        let bare = Lease { metadata: ObjectMeta::default(), spec: None };
        assert_eq!(Sighting::of(bare), Sighting { version: String::new(), ..empty.clone() });
        assert_eq!(seen(&json!({})), empty);
        assert_eq!(seen(&json!({ "leaseDurationSeconds": 0, "leaseTransitions": -1 })), empty);
        assert_eq!(seen(&json!({ "leaseDurationSeconds": -5 })), empty);
        let held = seen(&json!({ "holderIdentity": "a", "leaseDurationSeconds": 15 }));
        assert_eq!(held, Sighting { holder: "a".into(), duration: Some(Duration::from_secs(15)), ..empty });
    }

    #[test]
    fn a_renewal_changes_nothing_but_the_time_and_an_acquisition_counts_one_transition() {
        let now: Timestamp = "2026-01-01T00:00:00.000001Z".parse().unwrap();
        let renewal =
            Draft { version: Some("7".into()), holder: "a".into(), duration_seconds: 15, transitions: None };
        let expected = json!({ "metadata": { "resourceVersion": "7" }, "spec": { "holderIdentity": "a",
            "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z" } });
        assert_eq!(renewal.patch("7", now), expected);
        let acquired = Draft { transitions: Some(3), ..renewal }.patch("7", now);
        assert_eq!(acquired["spec"]["leaseTransitions"], 3);
        assert_eq!(acquired["spec"]["acquireTime"], "2026-01-01T00:00:00.000001Z");
    }
}
