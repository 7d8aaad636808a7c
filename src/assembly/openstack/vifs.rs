//! The VIF drivers of OpenStack, and the ports in stock for pools in front of them.

use std::sync::Arc;

use serde::Deserialize;
use staffetta_driver::{PodVifDriver, VifPoolDriver};
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_openstack::{
    NestedMacvlanDriver, NestedStock, NestedVlanDriver, NeutronStock, NeutronVifDriver, PodVifNestedOptions,
    PortOptions,
};

use super::{cloud, defaults, known_subnets};
use crate::assembly::vif_pool;

/// The bridge of Open vSwitch that Neutron's agents have when nobody names another one.
const BRIDGE: &str = "br-int";

/// Adds the drivers, and the pools that stand on them.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<PodVifNestedOptions>("pod_vif_nested");
    registry.driver::<dyn PodVifDriver>(
        "neutron-vif",
        "OpenStack: a port that is bound on the node of the pod.",
        |setup| Ok(neutron_vif(setup)?),
    );
    registry.driver::<dyn PodVifDriver>(
        "nested-vlan",
        "OpenStack: a subport of the trunk of the node, which is a machine of the same cloud.",
        |setup| Ok(nested_vlan(setup)?),
    );
    registry.driver::<dyn PodVifDriver>(
        "nested-macvlan",
        "OpenStack: a port whose addresses the port of the node may use, a machine of the same cloud.",
        |setup| Ok(nested_macvlan(setup)?),
    );
    registry.driver::<dyn VifPoolDriver>(
        "neutron",
        "Keeps ports ready for the driver `neutron-vif`, each on its node.",
        |setup| {
            let stock = NeutronStock::new(NeutronVifDriver::clone(&*neutron_vif(setup)?));
            vif_pool::pooled(setup, "neutron", Arc::new(stock))
        },
    );
    registry.driver::<dyn VifPoolDriver>(
        "nested",
        "Keeps subports ready for the driver `nested-vlan`, each on the trunk of its node.",
        |setup| {
            let stock = NestedStock::new(NestedVlanDriver::clone(&*nested_vlan(setup)?));
            vif_pool::pooled(setup, "nested", Arc::new(stock))
        },
    );
}

/// The driver `neutron-vif`; its stock is of the same one.
fn neutron_vif(setup: &Setup) -> Result<Arc<NeutronVifDriver>, SetupError> {
    setup.shared(|| {
        let (cloud, subnets) = (cloud(setup)?, known_subnets(setup)?);
        Ok(NeutronVifDriver::new(&cloud, subnets, setup.cluster_id()?.into(), ports(setup)?))
    })
}

/// The driver `nested-vlan`; its stock is of the same one.
fn nested_vlan(setup: &Setup) -> Result<Arc<NestedVlanDriver>, SetupError> {
    setup.shared(|| {
        let (cloud, subnets, nested) = (cloud(setup)?, known_subnets(setup)?, nested(setup)?);
        Ok(NestedVlanDriver::new(&cloud, subnets, setup.cluster_id()?.into(), ports(setup)?, nested))
    })
}

fn nested_macvlan(setup: &Setup) -> Result<Arc<NestedMacvlanDriver>, SetupError> {
    setup.shared(|| {
        let (cloud, subnets, nested) = (cloud(setup)?, known_subnets(setup)?, nested(setup)?);
        Ok(NestedMacvlanDriver::new(&cloud, subnets, setup.cluster_id()?.into(), ports(setup)?, nested))
    })
}

fn ports(setup: &Setup) -> Result<PortOptions, SetupError> {
    /// What of the section `[kubernetes]` concerns ports.
    #[derive(Deserialize)]
    struct Kubernetes {
        #[serde(default)]
        port_debug: bool,
    }
    let Kubernetes { port_debug } = setup.section("kubernetes")?;
    let ovs_bridge = defaults(setup)?.ovs_bridge.unwrap_or_else(|| BRIDGE.to_owned());
    Ok(PortOptions { ovs_bridge, port_debug })
}

fn nested(setup: &Setup) -> Result<PodVifNestedOptions, SetupError> {
    let nested: PodVifNestedOptions = setup.section("pod_vif_nested")?;
    if nested.worker_nodes_subnets.is_empty() {
        let missing =
            "`pod_vif_nested.worker_nodes_subnets` is empty: without it the port of a node cannot be found";
        return Err(SetupError::Invalid(missing.to_owned()));
    }
    Ok(nested)
}
