//! HTTP: from a request to the engine and back. With the front the only part of the server that does I/O.

mod call;
mod dry_run;
mod handle;
mod object;
mod query;
mod sent;
mod watch;

pub(crate) use handle::Embedded;
