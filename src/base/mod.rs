//! What everything else needs: options, the connection to the API server, metrics, the log, traces and health.

pub mod config;
pub mod connect;
pub(crate) mod connections;
pub(crate) mod health;
pub(crate) mod lock;
pub(crate) mod metrics;
pub(crate) mod retry;
pub(crate) mod telemetry;
pub(crate) mod traces;
pub(crate) mod version;
