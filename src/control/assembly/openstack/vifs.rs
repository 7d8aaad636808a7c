//! Registers the VIF drivers of OpenStack and their pools.

use std::sync::Arc;

use serde_json::json;
use staffetta_driver::{AdoptionDriver, PodVifDriver, VifPoolDriver};
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_openstack::{
    MarkedPorts, NestedMacvlanDriver, NestedVlanDriver, NeutronVifDriver, OpenStackAdoption,
    PodVifNestedOptions, PortOptions,
};

use super::diagnosis::{declare_created, needs_extension};
use super::{cloud, defaults, shared_subnets};
use crate::base::config::KubernetesOptions;
use crate::control::assembly::vif_pool;

/// The integration bridge that Neutron's Open vSwitch agents use by default.
const BRIDGE: &str = "br-int";

/// The description of the driver `nested-macvlan`.
const MACVLAN: &str =
    "OpenStack: a port whose address is allowed on the port of the node, a server in the same cloud.";

/// Registers the VIF drivers `neutron-vif`, `nested-vlan` and `nested-macvlan`, the pools of the first two, the section `[pod_vif_nested]`,
/// and the driver `openstack`, which adopts the resources of Kuryr.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<PodVifNestedOptions>("pod_vif_nested");
    drivers! { registry, setup:
        dyn AdoptionDriver, "openstack", "OpenStack: ports, load balancers, floating IPs and networks of Kuryr." => {
            let (cloud, cluster) = (cloud(setup)?, setup.cluster_id()?.into());
            Arc::new(OpenStackAdoption::new(&cloud, cluster, ports(setup)?, setup.section("pod_vif_nested")?))
        };
        dyn PodVifDriver, "neutron-vif", "OpenStack: a port that is bound on the node of the pod." => neutron_vif(setup)?;
        dyn PodVifDriver, "nested-vlan", "OpenStack: a subport of the trunk of the node, a server in the same cloud." =>
            nested_vlan(setup)?;
        dyn PodVifDriver, "nested-macvlan", MACVLAN => {
            needs_extension(setup, &*cloud(setup)?, "allowed-address-pairs", "pod_vif_driver = \"nested-macvlan\"");
            Arc::new(NestedMacvlanDriver::new(ports(setup)?, nested(setup)?))
        };
        dyn VifPoolDriver, "neutron", "Keeps ports ready for the driver `neutron-vif`, each on its node." =>
            vif_pool::pooled(setup, "neutron", neutron_vif(setup)?)?;
        dyn VifPoolDriver, "nested", "Keeps subports ready for the driver `nested-vlan`, each on the trunk of its node." =>
            vif_pool::pooled(setup, "nested", nested_vlan(setup)?)?;
    }
}

/// Returns the driver `neutron-vif`, which its pool shares.
fn neutron_vif(setup: &Setup) -> Result<Arc<NeutronVifDriver>, SetupError> {
    setup.shared(|| {
        needs_extension(setup, &*cloud(setup)?, "binding", "pod_vif_driver = \"neutron-vif\"");
        Ok(NeutronVifDriver::new(ports(setup)?))
    })
}

/// Returns the driver `nested-vlan`, which its pool shares.
fn nested_vlan(setup: &Setup) -> Result<Arc<NestedVlanDriver>, SetupError> {
    setup.shared(|| {
        needs_extension(setup, &*cloud(setup)?, "trunk", "pod_vif_driver = \"nested-vlan\"");
        Ok(NestedVlanDriver::new(ports(setup)?, nested(setup)?))
    })
}

/// Returns the client for the Neutron ports with the ownership mark of this cluster, which the VIF drivers share.
fn ports(setup: &Setup) -> Result<Arc<MarkedPorts>, SetupError> {
    let KubernetesOptions { port_debug, .. } = setup.section("kubernetes")?;
    let ovs_bridge = defaults(setup)?.ovs_bridge.unwrap_or_else(|| BRIDGE.to_owned());
    let options = PortOptions { ovs_bridge, port_debug };
    let (cloud, subnets) = (cloud(setup)?, shared_subnets(setup)?);
    declare_created(setup, &["port"])?;
    setup.shared(|| Ok(MarkedPorts::new(&cloud, subnets, setup.cluster_id()?.into(), options)))
}

/// Returns the options of `[pod_vif_nested]`; fails if they name no subnet of the nodes.
fn nested(setup: &Setup) -> Result<PodVifNestedOptions, SetupError> {
    let nested: PodVifNestedOptions = setup.section("pod_vif_nested")?;
    if nested.worker_nodes_subnets.is_empty() {
        let missing =
            "`pod_vif_nested.worker_nodes_subnets` is empty: without it the ports of nodes cannot be found";
        let stand_in = json!({ "pod_vif_nested": { "worker_nodes_subnets": ["0"] } });
        return Err(SetupError::Missing { message: missing.to_owned(), stand_in });
    }
    Ok(nested)
}
