//! The VIF drivers of OpenStack, and the ports in stock for pools in front of them.

use std::sync::Arc;

use serde::Deserialize;
use staffetta_driver::PodVifDriver;
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_openstack::{
    NestedMacvlanDriver, NestedVlanDriver, NeutronVifDriver, PodVifNestedOptions, PortOptions,
};

use super::{cloud, defaults, known_subnets};

/// The bridge of Open vSwitch that Neutron's agents have when nobody names another one.
const BRIDGE: &str = "br-int";

/// Adds the drivers.
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
        let missing = "`pod_vif_nested.worker_nodes_subnets` is empty: without it the port of a node cannot be found";
        return Err(SetupError::Invalid(missing.to_owned()));
    }
    Ok(nested)
}
