//! A Kubernetes API server in one process, for those who have no cluster at hand.
//!
//! It serves what the product, its tests and the everyday verbs of kubectl ask of a cluster, over plain HTTP on
//! loopback, and answers as a real server does: the same API tests run against both. It is no real server: it keeps
//! nothing on disk, knows no users, does not validate unknown fields, and runs no controllers but those without which
//! a DELETE is not complete (content of namespaces, dependents of owners, objects of definitions).
//!
//! A map of the inside, from pure to wet: `table` has a row a resource; `store` keeps the objects and the log of
//! events; `engine` does what requests ask for, with `patch`, `selector`, `defaults`, `validate`,
//! `rules` and `event`; `watch` reads the log; `views`, `discovery` and `openapi` show what there is; `http` is the
//! thin shell. `front` stands before all of that, breaks it on purpose and keeps the record of requests; `proxy` puts the
//! same front before a real API server.

mod catalog;
mod custom;
mod defaults;
mod discovery;
mod engine;
mod event;
mod front;
mod http;
mod object;
mod openapi;
mod patch;
mod protobuf;
mod proxy;
mod random;
mod rules;
mod selector;
mod server;
mod shared;
mod status;
mod store;
mod table;
pub mod testing;
mod validate;
mod version;
mod views;
mod watch;

pub use front::{Fault, Faults, RequestRecord, Requests};
pub use proxy::{Proxy, ProxyError};
pub use server::{ApiServer, Options};
