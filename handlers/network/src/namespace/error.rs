//! What can go wrong between a namespace and its network.

use std::time::Duration;

use staffetta_driver::DriverError;
use staffetta_handler::{Failure, Stale, WriteError};

use crate::annotation::AnnotationError;

/// The step that failed between a namespace and its network.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The namespace's annotation says nothing that can be understood.
    #[error("read the network of the namespace")]
    Annotation(#[source] AnnotationError),
    /// The project is not known.
    #[error("find the project of the namespace")]
    Project(#[source] DriverError),
    /// There is no network, or only a part of it.
    #[error("make the network of the namespace")]
    Make(#[source] DriverError),
    /// The network was not given back.
    #[error("release the network of the namespace")]
    Release(#[source] DriverError),
    /// The ownership marks could not be read.
    #[error("look for networks that were made already")]
    Marks(#[source] DriverError),
    /// The event is older than our last write.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The namespace could not be written.
    #[error("write the network down")]
    Write(#[source] WriteError),
}

impl NamespaceError {
    fn driver(&self) -> Option<&DriverError> {
        match self {
            Self::Project(error) | Self::Make(error) | Self::Release(error) | Self::Marks(error) => {
                Some(error)
            }
            Self::Annotation(_) | Self::Stale(_) | Self::Write(_) => None,
        }
    }
}

impl Failure for NamespaceError {
    fn transient(&self) -> bool {
        match self {
            Self::Annotation(_) => false,
            Self::Stale(error) => error.transient(),
            Self::Write(error) => error.transient(),
            other => other.driver().is_some_and(DriverError::transient),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Stale(error) => error.retry_after(),
            Self::Write(error) => error.retry_after(),
            other => other.driver().and_then(DriverError::retry_after),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Annotation(_) => "AnnotationMalformed",
            Self::Stale(error) => error.reason(),
            Self::Write(error) => error.reason(),
            Self::Project(error) | Self::Make(error) | Self::Release(error) | Self::Marks(error) => {
                error.reason().name()
            }
        }
    }
}
