//! Errors of the handler `lb`.

use std::time::Duration;

use staffetta_driver::{DriverError, ListenerPort, Reason};
use staffetta_handler::{Failure, Identity, Pending};

use crate::lbaasspec::SPEC_ANNOTATION;
use crate::step_error::StepError;

/// The delay before an outdated spec is reported.
const SPEC_PATIENCE: Duration = Duration::from_secs(30);

/// The delay before a load balancer that is queued behind others is reported.
const QUEUE_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// A step between a service and its load balancer failed.
#[derive(Debug, thiserror::Error)]
pub enum LbError {
    /// The annotation with the spec contradicts the service: the service has changed and the
    /// annotation has not yet, or another program wrote it. It is ignored.
    #[error(
        "the annotation {SPEC_ANNOTATION} does not say what the service says itself of its address, ports and type; \
         the handler `lbaasspec` corrects it"
    )]
    Outdated,
    /// A field or an annotation of the service is invalid.
    #[error("{field} is `{found}`, which is not {expected}; correct or remove it")]
    Field {
        /// The field or the annotation.
        field: &'static str,
        /// The value found, shortened.
        found: String,
        /// The kind of value expected.
        expected: &'static str,
    },
    /// An annotation, the ownership marks or `Endpoints` could not be read, the load balancer could
    /// not be created, changed or released, or the service could not be written.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The load balancer is processing its last change.
    #[error("the load balancer is busy with its last change")]
    Pending {
        /// The delay before the next attempt.
        after: Duration,
        /// The driver's answer, if it refused a change.
        #[source]
        source: Option<Box<DriverError>>,
    },
    /// The load balancer broke, was replaced, and broke again.
    #[error("the load balancer is in the state ERROR again, {times} times in a row; it is made anew later")]
    Broken {
        /// The number of failures in a row.
        times: u32,
    },
    /// The public address could not be created, changed or released; the load balancer itself is
    /// complete.
    #[error(transparent)]
    PublicIp(StepError),
    /// The driver is inconsistent: its answers never match the requests.
    #[error(
        "the driver was called {rounds} times and its answers still differ from the requests; the last step was {step}"
    )]
    Inconsistent {
        /// The number of rounds.
        rounds: u32,
        /// The next step of the plan.
        step: String,
    },
    /// The protocol is not supported. The load balancer is complete but for these ports.
    #[error("serve {}, which the service now lacks", list(listeners))]
    Unserved {
        /// The ports; at least one.
        listeners: Vec<ListenerPort>,
        /// The driver's answer for the first of them.
        #[source]
        source: Box<DriverError>,
    },
    /// The event of an endpoints object failed because of its service.
    #[error("{source}")]
    Service {
        /// The service.
        service: Box<Identity>,
        /// The error.
        source: Box<Self>,
    },
}

/// Joins listeners for the error text: `TCP:80, UDP:53`.
fn list(listeners: &[ListenerPort]) -> String {
    listeners.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl LbError {
    /// Returns `true` if an event that is still to come will resolve the error: that of the
    /// handler's last write or of a new spec.
    pub(super) fn awaits_event(&self) -> bool {
        match self {
            Self::Outdated => true,
            Self::Step(error) => error.is_stale(),
            Self::Service { source, .. } => source.awaits_event(),
            _ => false,
        }
    }

    /// The failed call; none where the service, the load balancer or the driver is at fault.
    fn call(&self) -> Option<&dyn Failure> {
        match self {
            Self::Step(error) | Self::PublicIp(error) => Some(error),
            Self::Service { source, .. } => Some(&**source),
            Self::Outdated
            | Self::Field { .. }
            | Self::Pending { .. }
            | Self::Broken { .. }
            | Self::Inconsistent { .. }
            | Self::Unserved { .. } => None,
        }
    }
}

impl Failure for LbError {
    fn transient(&self) -> bool {
        matches!(self, Self::Outdated | Self::Pending { .. }) || self.call().is_some_and(Failure::transient)
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Pending { after, .. } => Some(*after),
            other => other.call()?.retry_after(),
        }
    }

    /// A load balancer may need minutes for a change, so a pending one is reported only when the
    /// time for retries is up. For a queued one that time has not begun; it is reported every few
    /// minutes.
    fn pending(&self) -> Option<Pending> {
        let (report_after, queued) = match self {
            Self::Outdated => (SPEC_PATIENCE, false),
            Self::Pending { .. } => (Duration::MAX, false),
            Self::Step(error) if error.driver_reason() == Some(Reason::Queued) => (QUEUE_PATIENCE, true),
            Self::Service { source, .. } => return source.pending(),
            _ => return None,
        };
        Some(Pending { report_after, queued })
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Outdated => "SpecOutdated",
            Self::Field { .. } => "FieldMalformed",
            Self::Pending { .. } => "LoadBalancerPending",
            Self::Broken { .. } => "LoadBalancerBroken",
            Self::Inconsistent { .. } => "DriverInconsistent",
            Self::Unserved { .. } => "ProtocolUnsupported",
            other => other.call().map_or("HandlingFailed", Failure::reason),
        }
    }

    fn concerns(&self) -> Option<&Identity> {
        match self {
            Self::Service { service, .. } => Some(service),
            _ => None,
        }
    }
}
