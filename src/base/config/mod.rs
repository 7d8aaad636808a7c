//! The configuration: one TOML file, and environment variables that override its options.
//!
//! Each section of the file is a struct that is registered by name in a [`Registry`](staffetta_handler::Registry). [`FileSchema`]
//! combines the sections. [`Configuration::load`] checks the file and the environment against that schema, and merges them with the
//! crate `config`. The sample file is generated from the doc comments of the structs.

mod check;
mod environment;
mod file;
mod format;
pub(crate) mod label_selector;
mod limits;
mod load;
mod location;
mod mistake;
mod nearest;
mod normalize;
mod sample;
mod schema;
mod sections;
mod show;
mod span;

#[cfg(test)]
mod tests;

pub(crate) use format::{check_log_filter, http_url};
pub use load::{Configuration, DEFAULT_FILE, choose_file};
pub use location::Location;
pub use mistake::{ConfigurationError, Mistake};
pub use schema::FileSchema;
pub use sections::{
    AdminOptions, EventsOptions, KubernetesOptions, LeaderElectionOptions, LogFormat, LogOptions,
    RelayOptions, ShutdownOptions, TraceOptions, WebhookOptions, register,
};
pub use span::{TimeSpan, TimeSpanError};
