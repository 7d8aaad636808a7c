//! `staffetta migrate kuryr`: takes a cluster over from Kuryr-Kubernetes, without a change of any port, load balancer or address.
//!
//! `read` reads the objects of Kubernetes and of the cloud; `plan`, a pure function, derives the steps for each object, or the reason why
//! it is not taken over; `apply` executes the steps. The steps of an object begin in the cloud: its resources get the ownership mark of
//! the object. Then one write gives the object our annotation and finalizer in place of Kuryr's finalizer. Kuryr's custom resource loses
//! its finalizer last. A plan is made from what exists, so the command can be stopped anywhere and run again.

mod apply;
mod kuryr;
mod plan;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use kube::Client;
use serde::Serialize;
use staffetta_driver::{AdoptionDriver, DriverError};
use staffetta_handler::{Registry, SetupError};

use crate::base::config::Configuration;
use crate::base::connect::answer;
use crate::engine::cluster::ClusterInfo;
use crate::operate::cleanup::ObjectResult;
use plan::{Obstacle, PlannedTakeover};
use read::ClusterState;

/// The options of a migration.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct MigrationOptions {
    /// Take the cluster over. Without it, the steps are only shown.
    #[arg(long)]
    pub apply: bool,
    /// Also delete the ports that Kuryr's pools kept ready on the nodes of this cluster, and that no pod uses.
    #[arg(long)]
    pub delete_idle_ports: bool,
}

/// The plan of a migration or, if it was executed, its result.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Migration {
    /// One entry for each object that is not taken over yet.
    pub objects: Vec<ObjectResult>,
    /// The Deployments and pods of Kuryr's controller that must be stopped first.
    pub running_kuryr: Vec<String>,
}

/// The reason why a migration, or one of its steps, failed.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// Kuryr's controller still runs, and would work against the migration. The text names its Deployments and pods.
    #[error("Kuryr's controller still runs: {0}; scale its Deployment to 0 first")]
    KuryrRuns(String),
    /// The API server does not answer, or rejects a request.
    #[error("the API server rejected a request or cannot be reached")]
    Api(#[source] Box<kube::Error>),
    /// A resource of the cloud cannot be listed, adopted or deleted.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A driver cannot be created.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The object was changed or replaced after the step was planned.
    #[error("the object has changed since it was read; run the command again")]
    Changed,
}

impl MigrateError {
    /// Wraps an error of the API server.
    fn api(error: kube::Error) -> Self {
        Self::Api(Box::new(error))
    }
}

/// Plans the migration of the cluster of `client` from Kuryr, and executes it with `options.apply`.
///
/// # Errors
///
/// The cluster or the cloud cannot be read, a driver cannot be created, or Kuryr's controller runs although the plan is to be executed.
/// The error of an object is in its [`ObjectResult`].
pub async fn migrate(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
    options: MigrationOptions,
) -> Result<Migration, MigrateError> {
    let (cloud, state) = read(registry, configuration, client.clone()).await?;
    if options.apply && !state.running_kuryr.is_empty() {
        return Err(MigrateError::KuryrRuns(state.running_kuryr.join(", ")));
    }
    let planned = plan::plan(&state, options.delete_idle_ports);
    let objects = if options.apply {
        apply::apply(&client, &*cloud, planned).await
    } else {
        planned.into_iter().map(show).collect()
    };
    Ok(Migration { objects, running_kuryr: state.running_kuryr })
}

/// Reads everything that a plan depends on. Also returns the driver that executes it.
async fn read(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
) -> Result<(Arc<dyn AdoptionDriver>, ClusterState), MigrateError> {
    let cluster = answer(ClusterInfo::read(configuration, &client)).await.map_err(MigrateError::api)?;
    let setup = cluster.clone().setup(&Arc::new(registry), configuration, client);
    let cloud = setup.driver::<dyn AdoptionDriver>()?;
    let state = ClusterState::read(&setup, configuration, &cluster, &*cloud).await?;
    Ok((cloud, state))
}

/// Converts a planned object to a result that describes its steps, or the reason why there are none, for a run without `--apply`.
fn show(planned: PlannedTakeover) -> ObjectResult {
    let result = match &planned.steps {
        Ok(steps) => steps.iter().map(plan::MigrationStep::describe).collect::<Vec<_>>().join(", "),
        Err(obstacle) => obstacle.to_string(),
    };
    planned.finish(result, true)
}

impl PlannedTakeover {
    /// Returns the entry of this object in the result of the migration, with the text `result`. If the object is refused, `is_ok` is
    /// ignored and the entry is not ok.
    fn finish(self, result: String, is_ok: bool) -> ObjectResult {
        let is_ok = is_ok && !matches!(self.steps, Err(Obstacle::Refused(_)));
        ObjectResult { kind: self.kind.to_owned(), namespace: self.key.0, name: self.key.1, result, is_ok }
    }
}
