//! HTTP: from a request to the engine and back. The only part of the server that does I/O.

mod answer;
mod call;
mod dry_run;
mod handle;
mod object;
mod path;
mod query;
mod sent;
mod watch;

pub(crate) use handle::handle;
