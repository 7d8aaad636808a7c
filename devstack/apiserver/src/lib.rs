//! A Kubernetes API server in one process, for use without a cluster.
//!
//! It serves the requests that the product, its tests and everyday kubectl commands send, over plain HTTP on loopback, and
//! responds as a real server does: the same API tests run against both. It is not a real server: it stores nothing on disk, has
//! no users, does not validate unknown fields, and runs no controllers except those that complete a deletion (of the content of
//! namespaces, the dependents of owners, and the objects of definitions).
//!
//! The modules: `table` describes the resources; `store` holds the objects and the log of events; `engine` executes requests,
//! with `patch`, `selector`, `defaults`, `validate`, `rules` and `event`; `watch` reads the log; `views`, `discovery` and
//! `openapi` show the contents; `http` connects them to the network. `front` comes before all of these: it injects faults and
//! records requests. `proxy` puts the same front before a real API server.

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
pub use server::{ApiServer, InProcess, Options};
