//! The front of every server: its connections, injected faults, and the record of requests. The embedded server and the proxy
//! differ only in their [`Backend`].

pub(crate) mod answer;
mod asked;
mod audit;
mod connections;
mod fault;
mod faults;
mod gate;
mod handle;
mod hold;
mod inject;
mod path;
mod plan;
mod query;
mod requests;
mod serving;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use axum::extract::Request;
use axum::response::Response;
use tokio::sync::watch;

pub(crate) use asked::{Asked, Question};
use audit::Audit;
pub use audit::RequestRecord;
use connections::Connections;
pub use fault::Fault;
pub use faults::Faults;
use gate::Watches;
use hold::Hold;
pub(crate) use path::Fixed;
use plan::Plan;
pub(crate) use query::Query;
pub use requests::Requests;
pub(crate) use serving::Serving;

use crate::status::Status;

/// Answers the requests that no fault has answered.
pub(crate) trait Backend: Send + Sync + 'static {
    /// The answer, or None where nobody is there to answer: the connection is cut then.
    fn answer(
        &self,
        asked: &Result<Asked, Status>,
        request: Request,
    ) -> impl Future<Output = Option<Response>> + Send;
}

/// The parts of one listener that tests control.
#[derive(Default)]
pub(crate) struct Front {
    plan: Plan,
    audit: Audit,
    connections: Arc<Connections>,
    watches: watch::Sender<Watches>,
    hold: Hold,
    /// The error of the Date headers, in seconds.
    skew: AtomicI64,
}
