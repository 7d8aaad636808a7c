//! The configuration: one TOML file, over it the environment.
//!
//! Each section is a struct whose schema, defaults and doc comments say all there is to know about its options:
//! [`FileSchema`] joins them, the file is held against it before anything is read, and the sample is written from it.

mod check;
mod contradiction;
mod environment;
mod form;
mod format;
mod layer;
mod load;
mod mistake;
mod nearest;
mod node;
mod place;
mod read_schema;
mod sample;
mod schema;
mod sections;
mod show;
mod span;
mod write_schema;

#[cfg(test)]
mod tests;

pub use load::{Configuration, ConfigurationError, DEFAULT_FILE, Mistakes, choose_file};
pub use mistake::Mistake;
pub use place::Place;
pub use schema::{FileSchema, SchemaError};
pub use sections::{Admin, Events, Kubernetes, LeaderElection, Log, LogFormat, Relay, Shutdown, register};
pub use span::{Span, SpanError};
