//! The HTTP layer, which passes requests to the engine and returns responses. Only this layer and the front do I/O.

mod call;
mod dry_run;
mod handle;
mod object;
mod query;
mod review;
mod sent;
mod watch;

pub(crate) use handle::Embedded;
