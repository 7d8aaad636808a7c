//! Checks that the enabled handlers can be built, before they are needed.
//!
//! A missing option of a driver is found when the driver is built. A standby builds none, so without this check it would be ready with
//! a configuration with which it cannot become the leader.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use staffetta_handler::{DryRunPlan, Registry, SetupError};
use tower::service_fn;

use super::ControllerError;
use crate::base::config::Configuration;
use crate::engine::cluster::ClusterInfo;

/// Creates each enabled handler with its drivers, and drops them. The drivers are those of a dry run and are not called; the
/// client never gets a response. A handler without a dry run is skipped.
///
/// Call this function within a tokio runtime.
///
/// # Errors
///
/// Fails with the first handler that cannot be built, and names all options that it lacks.
pub(crate) fn check_handlers(
    registry: &Arc<Registry>,
    configuration: &Configuration,
    cluster: &ClusterInfo,
) -> Result<(), ControllerError> {
    let setup = |configuration: &Configuration| {
        let setup = cluster.clone().setup(registry, configuration, pending_client());
        setup.dry_run(DryRunPlan::default())
    };
    let of_all = setup(configuration);
    for handler in &configuration.kubernetes.enabled_handlers {
        let mut made = registry.make(handler, &of_all);
        let (mut configuration, mut missing) = (configuration.clone(), Vec::new());
        while let Err(SetupError::Missing { message, stand_in }) = &made
            && !missing.contains(message)
        {
            add(&mut configuration.value, stand_in);
            missing.push(message.clone());
            made = registry.make(handler, &setup(&configuration));
        }
        let source = match made {
            // Any other error may be due to the stand-ins.
            _ if !missing.is_empty() => SetupError::Invalid(missing.join("; ")),
            Ok(_) | Err(SetupError::NoRecorder { .. }) => continue,
            Err(source) => source,
        };
        return Err(ControllerError::Handler { handler: handler.clone(), source });
    }
    Ok(())
}

/// Sets the options in `more` (JSON: an object of options for each section) in `configuration`.
fn add(configuration: &mut Value, more: &Value) {
    for (section, options) in more.as_object().into_iter().flatten() {
        for (name, value) in options.as_object().into_iter().flatten() {
            configuration[section][name] = value.clone();
        }
    }
}

/// Returns a client whose requests never complete.
fn pending_client() -> Client {
    let service = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
    Client::new(service, "default")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::json;
    use staffetta_handler::{Registration, ResourceEventHandler, Setup, causes};

    use super::*;
    use crate::base::config::{self, FileSchema};

    struct Idle;

    impl ResourceEventHandler<Pod> for Idle {
        type Error = Infallible;
    }

    trait Lamp: Send + Sync {}

    /// Checks one handler, which `needs` builds.
    fn check(
        cluster: &ClusterInfo,
        needs: impl Fn(&Setup) -> Result<(), SetupError> + Send + Sync + 'static,
    ) -> Result<(), String> {
        let mut registry = Registry::default();
        config::register(&mut registry);
        registry.driver_trait::<dyn Lamp>("lamp", "candle", "What lights the way.");
        registry.driver::<dyn Lamp>("candle", "Wax and a wick.", |_| {
            panic!("the driver of an unused trait must not be created")
        });
        registry.handler("idle", "Does nothing.", move |setup| {
            needs(setup)?;
            Ok(Registration::new(Idle).on::<Pod>().erase())
        });
        let variable = ("STAFFETTA_KUBERNETES__ENABLED_HANDLERS".into(), "[\"idle\"]".into());
        let schema = FileSchema::assemble(&registry).unwrap();
        let configuration = Configuration::load(&schema, None, [variable]).unwrap();
        check_handlers(&Arc::new(registry), &configuration, cluster).map_err(|error| causes(&error))
    }

    #[tokio::test]
    async fn the_error_names_the_handler_that_cannot_be_created_and_the_reason() {
        assert_eq!(check(&ClusterInfo::unknown(), |_| Ok(())), Ok(()));
        let missing = |_: &Setup| Err(SetupError::Invalid("`lamp.oil` is missing".to_owned()));
        let error = "the handler `idle` cannot be created: `lamp.oil` is missing";
        assert_eq!(check(&ClusterInfo::unknown(), missing), Err(error.to_owned()));
    }

    #[tokio::test]
    async fn all_options_that_a_handler_lacks_are_named_at_once() {
        let required = |setup: &Setup, name: &str| {
            let events: Value = setup.section("events")?;
            let message = format!("`events.{name}` is missing");
            let stand_in = json!({ "events": { name: true } });
            events.get(name).map(drop).ok_or(SetupError::Missing { message, stand_in })
        };
        let lacks = move |setup: &Setup| {
            required(setup, "oil")?;
            required(setup, "wick")?;
            Err(SetupError::Invalid("due to a stand-in".to_owned()))
        };
        let error = "the handler `idle` cannot be created: `events.oil` is missing; `events.wick` is missing";
        assert_eq!(check(&ClusterInfo::unknown(), lacks), Err(error.to_owned()));
    }

    #[tokio::test]
    async fn a_handler_without_a_dry_run_is_skipped() {
        let lit = |setup: &Setup| setup.driver::<dyn Lamp>().map(drop);
        assert_eq!(check(&ClusterInfo::unknown(), lit), Ok(()));
    }

    #[tokio::test]
    async fn an_unknown_server_is_assumed_to_have_every_api_version() {
        let missing = || SetupError::Invalid("the API server has no slices".to_owned());
        let needs = move |setup: &Setup| setup.serves::<EndpointSlice>().then_some(()).ok_or_else(missing);
        assert_eq!(check(&ClusterInfo::unknown(), needs), Ok(()));
        assert!(check(&ClusterInfo::serving(&[]), needs).is_err());
        assert_eq!(check(&ClusterInfo::serving(&["discovery.k8s.io/v1"]), needs), Ok(()));
    }
}
