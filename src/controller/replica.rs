//! The handlers that run in every replica, whoever leads.

use crate::client;
use crate::pipeline::HandlerScope;
use crate::term::Term;

use super::running::HandlerTasks;
use super::session::cluster_info;
use super::{ControllerContext, ControllerError};

/// Runs the handlers that run in every replica until the controller is stopped. Their client and chains are not bound to the
/// leadership. Fails if the handlers cannot be created, or do not finish within the drain time.
pub(super) async fn run(context: &ControllerContext) -> Result<(), ControllerError> {
    let scope = HandlerScope::EveryReplica;
    let enabled = &context.configuration.kubernetes.enabled_handlers;
    if scope.handlers(&context.registry, enabled).is_empty() {
        context.stop.cancelled().await;
        return Ok(());
    }
    let term = Term::unlimited();
    let client = client::wrap(context.client.clone(), &context.state.metrics.api_requests, &term);
    let cluster = context.stop.run_until_cancelled(cluster_info(context, &client)).await;
    let Some(cluster) = cluster else { return Ok(()) };
    let running = HandlerTasks::start(context, scope, &cluster, &client, &term)?;
    context.stop.cancelled().await;
    let drained = running.stop(context.configuration.shutdown.drain.into()).await;
    if drained { Ok(()) } else { Err(ControllerError::Undrained) }
}
