//! The parts that all others use: options, the connection to the API server, metrics, the log, traces and health.

pub mod config;
pub mod connect;
pub(crate) mod connections;
pub(crate) mod health;
pub(crate) mod metrics;
#[cfg(not(feature = "traces"))]
pub(crate) mod no_traces;
pub(crate) mod retry;
pub(crate) mod telemetry;
#[cfg(feature = "traces")]
pub(crate) mod traces;
pub(crate) mod version;

#[cfg(not(feature = "traces"))]
pub(crate) use no_traces as traces;
