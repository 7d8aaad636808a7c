//! Registers the handlers of pods, services and namespaces.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use staffetta_handler::{Registration, Registry, Setup, SetupError};
use staffetta_network::Installation;
use staffetta_network::lb::{LbDrivers, LbHandler, LoadBalancerOptions};
use staffetta_network::lbaasspec::{LbaasSpecDrivers, LbaasSpecHandler};
use staffetta_network::namespace::{NamespaceDrivers, NamespaceHandler};
use staffetta_network::proof::ProofKey;
use staffetta_network::vif::networks::MultiVifDriver;
use staffetta_network::vif::{VifClaims, VifDrivers, VifHandler};

use crate::base::config::KubernetesOptions;
use crate::control::controller::ObjectSelection;

/// The name of the section with the options of the handler `lb`.
pub(super) const LOAD_BALANCERS: &str = "load_balancers";

/// Registers the handlers `vif`, `lbaasspec`, `lb` and `namespace`.
pub(super) fn handlers(registry: &mut Registry) {
    registry.section::<LoadBalancerOptions>(LOAD_BALANCERS);
    registry.handler("vif", "Gives pods VIFs.", vif);
    registry.handler("lbaasspec", "Writes the specification of a service's load balancer.", lbaasspec);
    registry.handler("lb", "Gives services load balancers according to their specification.", lb);
    registry.handler("namespace", "Gives namespaces networks of their own.", namespace);
}

/// Creates the handler `vif`. It leaves the pods of virtual nodes alone if a handler of virtual nodes is enabled too.
fn vif(setup: &Setup) -> Result<Registration, SetupError> {
    let drivers = VifDrivers {
        project: setup.driver()?,
        subnets: setup.driver()?,
        security_groups: setup.driver()?,
        pool: setup.driver()?,
        additional: setup.driver::<dyn MultiVifDriver>()?.additional_networks(),
    };
    let claims = setup.shared(|| Ok(VifClaims::default()))?;
    let handler = VifHandler::new(setup.client(), drivers, claims, setup.recorder.clone());
    let KubernetesOptions { enabled_handlers, vif_proof_key_file, .. } = setup.section("kubernetes")?;
    // The pods of virtual nodes have no VIFs.
    let skips = setup.any_has_virtual_nodes(&enabled_handlers);
    let handler = if skips { handler.skip_virtual_nodes() } else { handler };
    let key = vif_proof_key_file.map(|path| ProofKey::read(&path)).transpose();
    let handler = match key.map_err(|error| SetupError::Invalid(error.to_string()))? {
        Some(key) => handler.proven_by(key),
        None => handler,
    };
    Ok(handler.managed_by(installation(setup)?).registration().erase())
}

/// Creates the handler `lbaasspec`, which writes the specification of a service's load balancer.
fn lbaasspec(setup: &Setup) -> Result<Registration, SetupError> {
    let handler = LbaasSpecHandler::new(setup.client(), placement(setup)?, setup.recorder.clone());
    let handler = handler.managed_by(installation(setup)?);
    Ok(handler.registration().erase())
}

/// Returns the drivers that choose the project, the subnet and the security groups of a load balancer.
fn placement(setup: &Setup) -> Result<LbaasSpecDrivers, SetupError> {
    Ok(LbaasSpecDrivers {
        project: setup.driver()?,
        subnets: setup.driver()?,
        security_groups: setup.driver()?,
    })
}

/// Creates the handler `lb`. It watches `EndpointSlice`s where the API server has them, otherwise `Endpoints`; both are handled only for
/// services that the configuration selects.
fn lb(setup: &Setup) -> Result<Registration, SetupError> {
    let options: LoadBalancerOptions = setup.section(LOAD_BALANCERS)?;
    if let Some(contradiction) = options.contradiction() {
        return Err(SetupError::Invalid(contradiction));
    }
    let drivers = LbDrivers {
        load_balancer: setup.driver()?,
        public_ip: setup.driver()?,
        placement: placement(setup)?,
    };
    let handler = LbHandler::new(setup.client(), drivers, options, setup.recorder.clone());
    let handler = handler.managed_by(installation(setup)?);
    Ok(handler.registration(setup.serves::<EndpointSlice>()).erase())
}

/// Creates the handler `namespace`, which gives namespaces networks of their own.
fn namespace(setup: &Setup) -> Result<Registration, SetupError> {
    let drivers = NamespaceDrivers { project: setup.driver()?, subnet: setup.driver()? };
    let handler = NamespaceHandler::new(setup.client(), drivers, setup.recorder.clone());
    Ok(handler.managed_by(installation(setup)?).registration().erase())
}

/// Returns this installation for the handlers of pods, services and namespaces. Fails if the section `[kubernetes]` is invalid.
fn installation(setup: &Setup) -> Result<Installation, SetupError> {
    let selection = ObjectSelection::shared(setup)?;
    let cluster_id = selection.cluster_id().to_owned();
    Ok(Installation::new(cluster_id, move |object| selection.exclusion(object).is_none()))
}
