//! Executes the plan of a migration: the steps of several objects at a time.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube::Client;
use staffetta_driver::AdoptionDriver;
use staffetta_handler::{BackoffPolicy, causes};
use tracing::{info, warn};

use super::plan::{MigrationStep, PlannedTakeover};
use super::{MigrateError, show};
use crate::operate::cleanup::ObjectResult;

/// The back-off of a migration step in the cloud. Transient failures are retried for two minutes, because a load balancer that is being
/// changed accepts no ownership mark. A write to the API server is repeated only after a conflict.
const BACKOFF: BackoffPolicy = BackoffPolicy {
    initial: Duration::from_millis(500),
    max: Duration::from_secs(10),
    limit: Some(Duration::from_secs(120)),
};

/// The number of objects that are taken over at a time.
const CONCURRENCY: usize = 8;

/// Executes the steps of each object in order, up to the first that fails. Returns the results in the order of the plan.
pub(super) async fn apply(
    client: &Client,
    cloud: &dyn AdoptionDriver,
    planned: Vec<PlannedTakeover>,
) -> Vec<ObjectResult> {
    let objects = planned.into_iter().map(|planned| apply_object(client, cloud, planned));
    stream::iter(objects).buffered(CONCURRENCY).collect().await
}

/// Executes the steps that are planned for one object, in order, up to the first one that fails. Each step can be repeated: the next run of
/// the command plans the rest.
async fn apply_object(client: &Client, cloud: &dyn AdoptionDriver, planned: PlannedTakeover) -> ObjectResult {
    let Ok(steps) = &planned.steps else { return show(planned) };
    let (kind, (namespace, name)) = (planned.kind, planned.key.clone());
    for step in steps {
        if let Err(error) = execute(client, cloud, step).await {
            let text = format!("{} failed: {}", step.describe(), causes(&error));
            warn!(kind, namespace, name, error = text, "the object was not taken over");
            return planned.finish(text, false);
        }
    }
    info!(kind, namespace, name, "the object was taken over");
    planned.finish("done".to_owned(), true)
}

/// Executes one step. A step in the cloud is retried with back-off while the driver reports a transient failure, others are not.
pub(super) async fn execute(
    client: &Client,
    cloud: &dyn AdoptionDriver,
    step: &MigrationStep,
) -> Result<(), MigrateError> {
    let mut backoff = BACKOFF.start();
    loop {
        let error = match step {
            MigrationStep::Write(write) => return write.apply(client).await,
            MigrationStep::Adopt(adoption) => cloud.adopt(adoption).await,
            MigrationStep::Delete(resource) => cloud.delete(resource).await,
        };
        let Err(error) = error else { return Ok(()) };
        match backoff.next_wait(error.retry_after()) {
            Some(delay) if error.transient() => tokio::time::sleep(delay).await,
            _ => return Err(error.into()),
        }
    }
}
