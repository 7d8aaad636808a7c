//! What can go wrong between a service and its load balancer.

use std::time::Duration;

use staffetta_driver::{DriverError, ListenerPort, Reason};
use staffetta_handler::{Failure, Identity, Stale, WriteError};

use crate::annotation::AnnotationError;
use crate::lbaasspec::SPEC_ANNOTATION;

/// For so long it is nobody's business that a spec does not describe its service.
const SPEC_WRITTEN: Duration = Duration::from_secs(30);

/// For so long it is nobody's business that a load balancer waits for its turn.
const QUEUED: Duration = Duration::from_secs(5 * 60);

/// The step that failed between a service and its load balancer.
#[derive(Debug, thiserror::Error)]
pub enum LbError {
    /// The annotation with the spec says nothing that can be understood.
    #[error("read what load balancer the service wants")]
    Spec(#[source] AnnotationError),
    /// The annotation with the spec does not say what the service says itself: the service has changed and the spec has not yet, or
    /// somebody else wrote it. Nothing is done by it.
    #[error(
        "the annotation {SPEC_ANNOTATION} does not say what the service says itself of its address, ports and type; \
         the handler `lbaasspec` corrects it"
    )]
    Outdated,
    /// The annotation with the state says nothing that can be understood.
    #[error("read what load balancer the service has")]
    State(#[source] AnnotationError),
    /// The service asks for something that makes no sense.
    #[error("{what} is `{found}`, which is not {expected}; correct or remove it")]
    Asked {
        /// The field or the annotation.
        what: &'static str,
        /// What was found there, shortened.
        found: String,
        /// What was expected.
        expected: &'static str,
    },
    /// The ownership marks could not be read.
    #[error("look for what was made for the service already")]
    Marks(#[source] DriverError),
    /// The annotations that older controllers left on `Endpoints` could not be read.
    #[error("look for what older controllers left on the endpoints")]
    Legacy(#[source] Box<kube::Error>),
    /// The load balancer was not made or changed.
    #[error("bring the load balancer to what the service wants")]
    LoadBalancer(#[source] DriverError),
    /// The load balancer takes no change at this moment; nothing went wrong.
    #[error("the load balancer is busy with its last change")]
    Pending {
        /// When it is worth asking again.
        after: Duration,
        /// What the driver said, where it refused a change.
        #[source]
        source: Option<Box<DriverError>>,
    },
    /// The load balancer broke, was made anew, and broke again.
    #[error("the load balancer is in the state ERROR again, {times} times in a row; it is made anew later")]
    Broken {
        /// How often in a row.
        times: u32,
    },
    /// The public address was not made or changed; the load balancer stands.
    #[error("bring the public address to what the service wants")]
    PublicIp(#[source] DriverError),
    /// The driver does not keep its word: what it answers never becomes what was asked for.
    #[error(
        "the driver was asked {rounds} times and what it answers still is not what was asked for; the last step was {step}"
    )]
    Unsettled {
        /// How often it was asked.
        rounds: u32,
        /// What would have been the next step.
        step: String,
    },
    /// The other side has no such protocol. The load balancer stands, without these ports.
    #[error("serve {}, which the service now lacks", list(listeners))]
    Unserved {
        /// The ports; at least one.
        listeners: Vec<ListenerPort>,
        /// What the other side said of the first.
        #[source]
        source: Box<DriverError>,
    },
    /// A slice of the service changed, and the service failed.
    #[error("{source}")]
    Service {
        /// The service.
        service: Box<Identity>,
        /// What failed.
        source: Box<Self>,
    },
    /// The event is older than our last write.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The service could not be written.
    #[error("write the load balancer down")]
    Write(#[source] WriteError),
}

fn list(listeners: &[ListenerPort]) -> String {
    listeners.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl LbError {
    /// Whether nothing is the matter but that an event is still to come: that of our last write, or that of a spec which
    /// describes the service.
    pub(super) fn awaits_event(&self) -> bool {
        match self {
            Self::Stale(_) | Self::Outdated => true,
            Self::Service { source, .. } => source.awaits_event(),
            _ => false,
        }
    }
}

impl Failure for LbError {
    fn transient(&self) -> bool {
        match self {
            Self::Spec(_)
            | Self::State(_)
            | Self::Asked { .. }
            | Self::Broken { .. }
            | Self::Unsettled { .. }
            | Self::Unserved { .. } => false,
            Self::Outdated | Self::Pending { .. } => true,
            Self::Service { source, .. } => source.transient(),
            Self::Legacy(error) => error.transient(),
            Self::Marks(error) | Self::LoadBalancer(error) | Self::PublicIp(error) => error.transient(),
            Self::Stale(error) => error.transient(),
            Self::Write(error) => error.transient(),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Spec(_)
            | Self::Outdated
            | Self::State(_)
            | Self::Asked { .. }
            | Self::Broken { .. }
            | Self::Unsettled { .. }
            | Self::Unserved { .. } => None,
            Self::Pending { after, .. } => Some(*after),
            Self::Service { source, .. } => source.retry_after(),
            Self::Legacy(error) => error.retry_after(),
            Self::Marks(error) | Self::LoadBalancer(error) | Self::PublicIp(error) => error.retry_after(),
            Self::Stale(error) => error.retry_after(),
            Self::Write(error) => error.retry_after(),
        }
    }

    fn waits(&self) -> bool {
        match self {
            Self::Outdated | Self::Pending { .. } => true,
            Self::Service { source, .. } => source.waits(),
            _ => self.queues(),
        }
    }

    fn queues(&self) -> bool {
        match self {
            Self::LoadBalancer(error) => error.reason() == Reason::Queued,
            Self::Service { source, .. } => source.queues(),
            _ => false,
        }
    }

    /// A load balancer may take minutes for a change. It is told when the time for retries is up, which is never of one that
    /// waits for its turn: that is told every few minutes. A spec takes no longer than the handler that writes it.
    fn patience(&self) -> Duration {
        match self {
            Self::Outdated => SPEC_WRITTEN,
            Self::Service { source, .. } => source.patience(),
            _ if self.queues() => QUEUED,
            _ => Duration::MAX,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Spec(_) | Self::State(_) => "AnnotationMalformed",
            Self::Outdated => "SpecOutdated",
            Self::Asked { .. } => "FieldMalformed",
            Self::Pending { .. } => "LoadBalancerPending",
            Self::Broken { .. } => "LoadBalancerBroken",
            Self::Unsettled { .. } => "DriverInconsistent",
            Self::Unserved { .. } => "ProtocolUnsupported",
            Self::Service { source, .. } => source.reason(),
            Self::Legacy(error) => error.reason(),
            Self::Marks(error) | Self::LoadBalancer(error) | Self::PublicIp(error) => error.reason().name(),
            Self::Stale(error) => error.reason(),
            Self::Write(error) => error.reason(),
        }
    }

    fn concerns(&self) -> Option<&Identity> {
        match self {
            Self::Service { service, .. } => Some(service),
            _ => None,
        }
    }
}
