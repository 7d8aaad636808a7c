//! The reasons why a replica of the controller cannot be found or reached.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use tower::BoxError;

use crate::base::connect::ConnectError;
use crate::observe::state::duration;

/// The label of the pods of all replicas, which the manifests set.
pub(super) const PODS: &str = "app.kubernetes.io/name=staffetta";

/// The `ClusterRole` in the manifests with the rights to read the Lease, list the pods and open a port-forward.
const ROLE: &str = "staffetta-operator";

/// The time limit for finding the leader and opening the port-forward.
pub(super) const FIND_TIMEOUT: Duration = Duration::from_secs(15);

/// The reason why a replica of the controller, usually the leader, cannot be found or reached.
#[derive(Debug, thiserror::Error)]
pub(in crate::operate::cli) enum LeaderError {
    /// The kubeconfig cannot be used.
    #[error("cannot connect to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// The API server does not respond.
    #[error("the API server did not respond within {} s", FIND_TIMEOUT.as_secs())]
    Timeout,
    /// The namespace has no Lease with the given name.
    #[error(
        "the namespace `{namespace}` has no Lease `{lease}`, so no controller has run there; pass --controller-namespace or --lease-name \
         if it runs elsewhere"
    )]
    NoLease { namespace: String, lease: String },
    /// The Lease has no holder: no replica leads.
    #[error(
        "no replica leads: the Lease {namespace}/{lease} has no holder; `kubectl -n {namespace} get pods -l {PODS}` shows whether the \
         replicas run"
    )]
    NoHolder { namespace: String, lease: String },
    /// The name of the holder of the Lease is neither that of a pod in the namespace nor that of the node of a replica.
    #[error("the leader's pod {namespace}/{pod} does not exist; its Lease was {renewal}")]
    NoPod { namespace: String, pod: String, renewal: Renewal },
    /// The user lacks a right that is needed to reach the leader.
    #[error(
        "you may not {action} in the namespace `{namespace}`; ask for a RoleBinding there to the ClusterRole `{ROLE}`"
    )]
    Forbidden { action: &'static str, namespace: String, source: Box<kube::Error> },
    /// A request to the API server failed.
    #[error("cannot {action} in the namespace `{namespace}`")]
    Api { action: &'static str, namespace: String, source: Box<kube::Error> },
    /// The node of the pod cannot connect to the port of the admin server in the pod.
    #[error(
        "the pod {namespace}/{pod} does not listen at port {port} of its loopback address ({message}); pass --admin-port if \
         `admin.listen` has another port; {note}"
    )]
    Port { namespace: String, pod: String, port: u16, message: String, note: String },
    /// The connection or the time limit ended before the whole response was received.
    #[error("the pod {namespace}/{pod} does not respond; {note}")]
    NoResponse { namespace: String, pod: String, note: String, source: BoxError },
}

impl LeaderError {
    /// Returns `true` if the same request will fail again until somebody changes something.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::NoLease { .. } | Self::Forbidden { .. })
    }
}

/// The last renewal of a Lease, by the clock of this machine.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::operate::cli) struct Renewal {
    /// The seconds since the renewal; `None` if the Lease does not contain its time.
    age: Option<f64>,
    /// The duration of the Lease in seconds.
    duration: i32,
}

impl Renewal {
    /// Returns `true` if the Lease has expired or was never renewed, so that another replica may lead by now.
    pub(in crate::operate::cli) fn is_expired(&self) -> bool {
        self.age.is_none_or(|age| age > f64::from(self.duration))
    }

    pub(super) fn of(lease: &LeaseSpec, now: Timestamp) -> Self {
        let age = lease.renew_time.as_ref().map(|time| now.duration_since(time.0).as_secs_f64());
        Self { age, duration: lease.lease_duration_seconds.unwrap_or_default() }
    }
}

impl fmt::Display for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { age, duration: limit } = *self;
        match age {
            None => f.write_str("never renewed"),
            Some(age) if self.is_expired() => write!(
                f,
                "last renewed {} ago and has expired after {limit} s: no replica leads",
                duration(age)
            ),
            Some(age) => write!(
                f,
                "last renewed {} ago; another replica takes over within {limit} s, so try again",
                duration(age)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expired_lease_is_distinguished_from_one_that_is_held() {
        let reported = |age| Renewal { age, duration: 15 }.to_string();
        assert!(reported(Some(3.0)).starts_with("last renewed 3s ago; another replica takes over"));
        assert!(reported(Some(300.0)).ends_with("has expired after 15 s: no replica leads"));
        assert_eq!(reported(None), "never renewed");
    }
}
