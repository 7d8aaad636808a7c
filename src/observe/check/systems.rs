//! The checks of external systems without a controller: with the credentials of the configuration, from this machine.

use std::sync::Arc;

use kube::Client;
use staffetta_handler::{DryRunPlan, Finding, Registry, SetupError, bounded, causes};

use super::{CHECK_TIMEOUT, CheckReport, Diagnostics};
use crate::base::config::Configuration;
use crate::engine::cluster::ClusterInfo;

/// Creates the enabled handlers with their drivers as in a dry run, runs their checks, and returns the findings.
pub(crate) async fn check_systems(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
) -> CheckReport {
    const API_SERVER: &str = "the API server answers";
    let mut report = CheckReport::default();
    let read = async { Ok(ClusterInfo::read(configuration, &client).await?) };
    let cluster = match bounded(CHECK_TIMEOUT, read).await {
        Ok(cluster) => cluster,
        Err(error) => {
            let remedy = "see whether `kubectl version` works with this kubeconfig";
            report.add("kubernetes", [Finding::failed(API_SERVER, causes(&*error), remedy)]);
            return report;
        }
    };
    report.add("kubernetes", [Finding::ok(API_SERVER, "")]);
    let registry = Arc::new(registry);
    let setup = cluster.setup(&registry, configuration, client).dry_run(DryRunPlan::default());
    for handler in &configuration.kubernetes.enabled_handlers {
        let check = format!("the handler {handler} can be created");
        report.add(
            "configuration",
            [match registry.make(handler, &setup) {
                Ok(_) => Finding::ok(check, ""),
                Err(error @ SetupError::NoRecorder { .. }) => {
                    Finding::warning(check, causes(&error), "check it in the running controller")
                }
                Err(error) => Finding::failed(
                    check,
                    causes(&error),
                    "correct the option; `staffetta config check` names all",
                ),
            }],
        );
    }
    Diagnostics::run_all(&[Arc::new(Diagnostics::new(setup.into_checks()))], &mut report).await;
    report
}
