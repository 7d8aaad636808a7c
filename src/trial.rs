//! Whether the enabled handlers can be made, found out before anybody needs them.
//!
//! A missing option of a driver shows when the driver is made. Whoever stands by makes nothing, and would be ready with a
//! configuration with which it cannot lead.

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use staffetta_handler::{Plan, Registry, SetupError};
use tower::service_fn;

use crate::config::Configuration;

/// Which API versions the server has.
pub(crate) enum Served {
    /// These.
    These(HashSet<String>),
    /// Nobody knows; it is taken to have all.
    Unknown,
}

/// A handler that cannot be made.
pub(crate) struct Unmade {
    /// Its name.
    pub(crate) handler: String,
    /// Why.
    pub(crate) source: SetupError,
}

/// Makes each enabled handler with its drivers, and lets go of them. They are those of a dry run, with a client that never
/// answers, and nothing is asked of them. A handler that cannot be rehearsed is not tried.
///
/// It must be called within a tokio runtime.
///
/// # Errors
///
/// The first handler that cannot be made, and why.
pub(crate) fn handlers(
    registry: &Arc<Registry>,
    configuration: &Configuration,
    served: Served,
) -> Result<(), Unmade> {
    let (served, unknown) = match served {
        Served::These(served) => (served, false),
        Served::Unknown => (HashSet::new(), true),
    };
    let setup = registry.setup(silent(), configuration.value.clone(), served).rehearsing(Plan::default());
    let setup = if unknown { setup.serving_all() } else { setup };
    for handler in &configuration.kubernetes.enabled_handlers {
        match registry.make(handler, &setup) {
            Ok(_) | Err(SetupError::Unrehearsed { .. }) => {}
            Err(source) => return Err(Unmade { handler: handler.clone(), source }),
        }
    }
    Ok(())
}

/// A client that never answers.
fn silent() -> Client {
    let nobody = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
    Client::new(nobody, "default")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use staffetta_handler::{Registration, ResourceEventHandler, Setup, causes};

    use super::*;
    use crate::config::{self, FileSchema};

    struct Idle;

    impl ResourceEventHandler<Pod> for Idle {
        type Error = Infallible;
    }

    trait Lamp: Send + Sync {}

    /// What comes of a handler that is made like this.
    fn tried(
        served: Served,
        needs: impl Fn(&Setup) -> Result<(), SetupError> + Send + Sync + 'static,
    ) -> Result<(), String> {
        let mut registry = Registry::default();
        config::register(&mut registry);
        registry.interface::<dyn Lamp>("lamp", "candle", "What lights the way.");
        registry.driver::<dyn Lamp>("candle", "Wax and a wick.", |_| panic!("it is not even made"));
        registry.handler("idle", "Does nothing.", move |setup| {
            needs(setup)?;
            Ok(Registration::new(Idle).on::<Pod>().erase())
        });
        let variable = ("STAFFETTA_KUBERNETES__ENABLED_HANDLERS".into(), "[\"idle\"]".into());
        let schema = FileSchema::assemble(&registry).unwrap();
        let configuration = Configuration::load(&schema, None, [variable]).unwrap();
        handlers(&Arc::new(registry), &configuration, served)
            .map_err(|Unmade { handler, source }| format!("{handler}: {}", causes(&source)))
    }

    #[tokio::test]
    async fn a_handler_that_cannot_be_made_is_named_with_the_reason() {
        assert_eq!(tried(Served::Unknown, |_| Ok(())), Ok(()));
        let missing = |_: &Setup| Err(SetupError::Invalid("`lamp.oil` is missing".to_owned()));
        let error = "idle: `lamp.oil` is missing";
        assert_eq!(tried(Served::Unknown, missing), Err(error.to_owned()));
    }

    #[tokio::test]
    async fn a_handler_that_nobody_can_rehearse_is_not_tried() {
        let lit = |setup: &Setup| setup.driver::<dyn Lamp>().map(drop);
        assert_eq!(tried(Served::Unknown, lit), Ok(()));
    }

    #[tokio::test]
    async fn a_server_that_nobody_knows_is_taken_to_have_every_api_version() {
        let missing = || SetupError::Invalid("the API server has no slices".to_owned());
        let needs = move |setup: &Setup| setup.serves::<EndpointSlice>().then_some(()).ok_or_else(missing);
        assert_eq!(tried(Served::Unknown, needs), Ok(()));
        assert!(tried(Served::These(HashSet::new()), needs).is_err());
        assert_eq!(tried(Served::These(["discovery.k8s.io/v1".to_owned()].into()), needs), Ok(()));
    }
}
