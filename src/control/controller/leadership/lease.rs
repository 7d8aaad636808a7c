//! The state of the lease, updates of the lease, and the requests to the API server.

use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use staffetta_handler::{HandlerError, bounded};

/// The state of the lease as the API server returned it. An invalid field counts as missing. Timestamps are ignored, because they come
/// from the clock of another computer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedLease {
    /// The resourceVersion of the lease.
    pub(super) version: String,
    /// The identity of the holder; empty if there is none.
    pub(super) holder: String,
    /// The time after the last renewal from which other processes may take the lease; `None` if the lease does not state it.
    pub(super) duration: Option<Duration>,
    /// `false` if nobody has taken or renewed the lease since it was created. Holders of a deleted lease may still act then.
    pub(super) renewed: bool,
    /// The number of times that the holder has changed (`leaseTransitions`).
    pub(super) transitions: i32,
}

/// A write that creates, takes, renews or releases the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseUpdate {
    /// The resourceVersion that the update replaces; `None` creates the lease.
    pub(super) version: Option<String>,
    /// The identity of the holder; empty releases the lease.
    pub(super) holder: String,
    /// The lease duration in seconds.
    pub(super) duration_seconds: i32,
    /// `true` if no holder of a deleted lease can act any more. Otherwise the update does not set `renewTime`.
    pub(super) renews: bool,
    /// The number of changes of the holder, including this one; `None` for a renewal, which keeps the stored number.
    pub(super) transitions: Option<i32>,
}

/// The outcome of a write of the lease.
#[derive(Debug)]
pub(super) enum LeaseOutcome {
    /// The write succeeded. The field is the new state of the lease.
    Written(ObservedLease),
    /// The lease has another resourceVersion than expected, exists already, or does not exist any more.
    Conflict,
    /// The write failed, or its outcome is not known.
    Failed,
}

impl ObservedLease {
    /// Reads the fields that the election needs from `lease`.
    pub(super) fn of(lease: Lease) -> Self {
        let spec = lease.spec.unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            version: lease.metadata.resource_version.unwrap_or_default(),
            holder: spec.holder_identity.unwrap_or_default(),
            duration: seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
            renewed: spec.renew_time.is_some(),
            transitions: spec.lease_transitions.unwrap_or_default().max(0),
        }
    }
}

impl LeaseUpdate {
    /// Returns the Lease object to send, with the name `name` and the wall-clock time `now`: the whole object for a creation, otherwise the
    /// body of a merge patch. In a renewal, `acquireTime` and `leaseTransitions` are absent, so the stored values are kept.
    pub(super) fn lease(&self, name: &str, now: Timestamp) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            lease_duration_seconds: Some(self.duration_seconds),
            lease_transitions: self.transitions,
            acquire_time: self.transitions.filter(|_| !self.holder.is_empty()).map(|_| MicroTime(now)),
            renew_time: self.renews.then_some(MicroTime(now)),
            ..LeaseSpec::default()
        };
        let (name, resource_version) = (Some(name.to_owned()), self.version.clone());
        Lease { metadata: ObjectMeta { name, resource_version, ..ObjectMeta::default() }, spec: Some(spec) }
    }
}

/// A client that reads, watches and writes one lease at the API server.
pub(super) struct LeaseClient {
    /// The API of Leases in the namespace of the lease.
    pub(super) api: Api<Lease>,
    /// The name of the lease.
    pub(super) name: String,
    /// The time limit of one request.
    pub(super) timeout: Duration,
}

/// The stream of watch events of one lease.
pub(super) type LeaseChanges = BoxStream<'static, kube::Result<WatchEvent<Lease>>>;

impl LeaseClient {
    /// Reads the lease; `None` if it does not exist.
    pub(super) async fn read(&self) -> Result<Option<ObservedLease>, HandlerError> {
        let read = self.api.get_opt(&self.name).map_err(HandlerError::from);
        Ok(bounded(self.timeout, read).await?.map(ObservedLease::of))
    }

    /// Watches the lease from the resourceVersion `version`. The request is sent when the stream is first polled.
    pub(super) fn watch_from(&self, version: &str) -> LeaseChanges {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let (api, version) = (self.api.clone(), version.to_owned());
        async move { api.watch(&params, &version).await }.into_stream().try_flatten().boxed()
    }

    /// Writes the lease. The time limit is `timeout` or that of this `LeaseClient`, whichever is shorter. If this function returns an
    /// error, it is not known if the write took effect.
    pub(super) async fn write(
        &self,
        update: &LeaseUpdate,
        timeout: Duration,
    ) -> Result<LeaseOutcome, HandlerError> {
        let lease = update.lease(&self.name, Timestamp::now());
        let write = async {
            let written = match update.version {
                Some(_) => self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(lease)).await,
                None => self.api.create(&PostParams::default(), &lease).await,
            };
            match written {
                Ok(lease) => Ok(LeaseOutcome::Written(ObservedLease::of(lease))),
                Err(kube::Error::Api(status))
                    if status.code == 409 || status.code == 404 && update.version.is_some() =>
                {
                    Ok(LeaseOutcome::Conflict)
                }
                Err(error) => Err(error.into()),
            }
        };
        bounded(self.timeout.min(timeout), write).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(spec: &Value) -> ObservedLease {
        let lease = json!({ "metadata": { "resourceVersion": "7" }, "spec": spec });
        ObservedLease::of(serde_json::from_value(lease).unwrap())
    }

    #[test]
    fn a_lease_of_another_tool_is_read_as_far_as_it_makes_sense() {
        let empty = ObservedLease {
            version: "7".into(),
            renewed: false,
            holder: String::new(),
            duration: None,
            transitions: 0,
        };
        let bare = Lease { metadata: ObjectMeta::default(), spec: None };
        assert_eq!(ObservedLease::of(bare), ObservedLease { version: String::new(), ..empty.clone() });
        assert_eq!(seen(&json!({})), empty);
        assert_eq!(seen(&json!({ "leaseDurationSeconds": 0, "leaseTransitions": -1 })), empty);
        assert_eq!(seen(&json!({ "leaseDurationSeconds": -5 })), empty);
        let held = seen(&json!({ "holderIdentity": "a", "leaseDurationSeconds": 15 }));
        assert_eq!(
            held,
            ObservedLease { holder: "a".into(), duration: Some(Duration::from_secs(15)), ..empty }
        );
    }

    #[test]
    fn a_renewal_changes_nothing_but_the_time_and_an_acquisition_counts_one_transition() {
        let now: Timestamp = "2026-01-01T00:00:00.000001Z".parse().unwrap();
        let renewal = LeaseUpdate {
            version: Some("7".into()),
            holder: "a".into(),
            duration_seconds: 15,
            renews: true,
            transitions: None,
        };
        let written = |update: LeaseUpdate| serde_json::to_value(update.lease("staffetta", now)).unwrap();
        let expected = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "staffetta", "resourceVersion": "7" }, "spec": { "holderIdentity": "a",
            "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z" } });
        assert_eq!(written(renewal.clone()), expected);
        let acquired = written(LeaseUpdate { transitions: Some(3), ..renewal });
        assert_eq!(acquired["spec"]["leaseTransitions"], 3);
        assert_eq!(acquired["spec"]["acquireTime"], "2026-01-01T00:00:00.000001Z");
    }
}
