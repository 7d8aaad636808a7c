//! Errors of the handler `lb`.

use std::time::Duration;

use staffetta_driver::{DriverError, ListenerPort, Reason};
use staffetta_handler::{Failure, Identity, Pending};

use super::annotation::STATE_ANNOTATION;
use crate::lbaasspec::{LbaasSpecError, SPEC_ANNOTATION};
use crate::step_error::StepError;

/// The interval at which a load balancer that is queued in the external system is reported again.
const QUEUE_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// An error of the handler `lb`: the load balancer of a service could not be reconciled.
#[derive(Debug, thiserror::Error)]
pub enum LbError {
    /// The annotation with the spec does not fit the service yet; the handler `lbaasspec` updates it.
    #[error(
        "the annotation {SPEC_ANNOTATION} differs from the service in address, ports or type; \
         the handler `lbaasspec` updates it"
    )]
    Outdated,
    /// The spec of the load balancer could not be computed, or a field or an annotation of the service is invalid.
    #[error(transparent)]
    Spec(#[from] LbaasSpecError),
    /// The annotation of the service names a load balancer or a public address without the ownership mark (tag or label) of this cluster
    /// for the service, and `load_balancers.adopt_unmarked`, which allows taking over those of Kuryr, is off.
    #[error(
        "the annotation {STATE_ANNOTATION} of the service or of its Endpoints names a load balancer or a public \
         address that was not created for this service by this cluster; nothing is changed: remove the annotation, \
         or set `load_balancers.adopt_unmarked` if Kuryr created them"
    )]
    Unmarked,
    /// The annotation is malformed; the ownership marks (tags or labels) of resources or the
    /// `Endpoints` could not be read; the load balancer could not be created, changed or released;
    /// the service could not be written; or the event of the handler's last write has not arrived yet.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The load balancer is still processing its last change.
    #[error("the load balancer is still applying its last change")]
    Pending {
        /// The delay before the load balancer is reconciled again.
        after: Duration,
        /// The driver's error, if the driver refused a change.
        #[source]
        source: Option<Box<DriverError>>,
    },
    /// The load balancer is in the state ERROR again after it was replaced.
    #[error(
        "the load balancer is in the state ERROR after {times} consecutive creations; it is created again later"
    )]
    Broken {
        /// The number of consecutive failures of the load balancer.
        times: u32,
    },
    /// The public address could not be acquired, changed or released. A load balancer that must be replaced is not replaced yet.
    #[error(transparent)]
    PublicIp(StepError),
    /// Plans were executed the maximum number of times, and the observed state is still not the desired one.
    #[error(
        "the driver was called {rounds} times and its results still differ from the requests; the last step was {step}"
    )]
    Inconsistent {
        /// The number of plans that were executed for the load balancer.
        rounds: u32,
        /// The next step of the last plan, in its `Debug` form.
        step: String,
    },
    /// The driver does not support the protocol of some listeners; all others work as desired.
    #[error(
        "the external system does not support {}; the service works without these ports",
        list(listeners)
    )]
    Unserved {
        /// The unsupported ports; at least one.
        listeners: Vec<ListenerPort>,
        /// The driver's error for the first of these ports.
        #[source]
        source: Box<DriverError>,
    },
    /// The reconciliation for an event of an endpoints object failed.
    #[error("{source}")]
    Service {
        /// The service of the endpoints, on which the error is reported.
        service: Box<Identity>,
        /// The error of the service's reconciliation.
        source: Box<Self>,
    },
}

/// Formats listeners for an error text: `TCP:80, UDP:53`.
fn list(listeners: &[ListenerPort]) -> String {
    listeners.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl LbError {
    /// Ignores an error that an expected event of the service will resolve, and returns any other one.
    /// The expected event is that of the handler's last write, or of an update of the spec; it reconciles
    /// the service with all its endpoints. This is for triggers and deletions, which must not be retried
    /// until that event comes: it may be queued behind them, and does not end the retries of a deletion.
    pub(super) fn unless_awaited(self) -> Result<(), Self> {
        let error = if let Self::Service { source, .. } = &self { &**source } else { &self };
        match error {
            Self::Outdated => Ok(()),
            Self::Step(error) if error.is_stale() => Ok(()),
            _ => Err(self),
        }
    }

    /// Returns the cause, which decides if and when the reconciliation is repeated: a failed step, an
    /// error of the spec, or the error in [`Service`](Self::Service). Returns `None` for all other
    /// variants, such as `Pending`, for which the variant itself decides that.
    fn cause(&self) -> Option<&dyn Failure> {
        match self {
            Self::Step(error) | Self::PublicIp(error) => Some(error),
            Self::Spec(error) => Some(error),
            Self::Service { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

impl Failure for LbError {
    fn transient(&self) -> bool {
        matches!(self, Self::Outdated | Self::Pending { .. }) || self.cause().is_some_and(Failure::transient)
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Pending { after, .. } => Some(*after),
            other => other.cause()?.retry_after(),
        }
    }

    /// Returns the time after which an error that is not a failure is reported; `None` for a failure.
    /// A load balancer may need minutes for a change, so a pending one is reported only when the time
    /// limit of the retries has passed. For a queued load balancer, that time limit has not started, so it is reported every 5
    /// minutes.
    fn pending(&self) -> Option<Pending> {
        match self {
            Self::Outdated => Some(Pending::default()),
            Self::Pending { .. } => Some(Pending { report_after: Duration::MAX, queued: false }),
            Self::Step(error) if error.driver_reason() == Some(Reason::Queued) => {
                Some(Pending { report_after: QUEUE_PATIENCE, queued: true })
            }
            other => other.cause()?.pending(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Outdated => "SpecOutdated",
            Self::Unmarked => "LoadBalancerUnmarked",
            Self::Pending { .. } => "LoadBalancerPending",
            Self::Broken { .. } => "LoadBalancerBroken",
            Self::Inconsistent { .. } => "DriverInconsistent",
            Self::Unserved { .. } => "ProtocolUnsupported",
            other => other.cause().map_or("HandlingFailed", Failure::reason),
        }
    }

    fn concerns(&self) -> Option<&Identity> {
        match self {
            Self::Service { service, .. } => Some(service),
            _ => None,
        }
    }
}
