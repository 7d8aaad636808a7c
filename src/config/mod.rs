//! The configuration: one TOML file and the environment.
//!
//! Every section is a struct that a [`Registry`](staffetta_handler::Registry) knows by name. [`FileSchema`] joins the sections;
//! [`Configuration::load`] checks the file and the environment against it and lays one over the other with the crate
//! `config`. The sample file is written from the doc comments of the structs.

mod check;
mod environment;
mod file;
mod format;
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

pub use load::{Configuration, DEFAULT_FILE, choose_file};
pub use location::Location;
pub use mistake::{ConfigurationError, Mistake};
pub use schema::{FileSchema, SchemaError};
pub use sections::{
    AdminOptions, EventsOptions, KubernetesOptions, LeaderElectionOptions, LogFormat, LogOptions,
    RelayOptions, ShutdownOptions, register,
};
pub use span::{TimeSpan, TimeSpanError};
