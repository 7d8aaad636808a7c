//! The driver `namespace` of pod subnets, whatever the annotations of namespaces name.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::json;
use staffetta_driver::{
    NAMESPACE_NETWORK, NamespaceNetwork, NamespaceObserver, PodSubnetsDriver, Reason, Subnet,
};
use staffetta_openstack::{NamespacePodSubnets, Namespaces};

use super::world::{World, text};

/// A network with one subnet and this description.
async fn network(world: &World, description: &str) -> NamespaceNetwork {
    let wish = json!({ "name": "n", "project_id": world.project, "description": description });
    let network = world.create("networks", "network", wish).await;
    let wish = json!({ "network_id": network["id"], "cidr": "10.3.0.0/24", "ip_version": 4,
        "enable_dhcp": false, "project_id": world.project });
    let subnet = world.create("subnets", "subnet", wish).await;
    NamespaceNetwork { network: text(&network["id"]).into(), subnet: text(&subnet["id"]).into() }
}

/// The subnet of a pod in the namespace `b`, whose annotation is `text`.
async fn subnet_of_b(world: &World, text: &str) -> Result<Subnet, Reason> {
    let namespaces = Arc::new(Namespaces::default());
    let b =
        json!({ "metadata": { "name": "b", "uid": "uid-b", "annotations": { NAMESPACE_NETWORK: text } } });
    namespaces.present(&serde_json::from_value::<Namespace>(b).unwrap());
    let driver = NamespacePodSubnets { subnets: world.known_subnets("east"), namespaces };
    let pod: Pod =
        serde_json::from_value(json!({ "metadata": { "namespace": "b", "name": "web" } })).unwrap();
    let found = driver.subnets(&pod, &world.project).await;
    found.map(|mut subnets| subnets.remove(0)).map_err(|error| error.reason())
}

pub(crate) async fn a_namespace_leads_its_pods_to_its_own_network_only(world: &World) {
    let mark = |cluster: &str, name: &str| {
        let cluster = world.cluster(cluster);
        format!("staffetta:cluster={cluster} staffetta:uid=uid-{name} staffetta:name={name}")
    };
    let own = network(world, &mark("east", "b")).await;
    let found = subnet_of_b(world, &own.write()).await.unwrap();
    assert_eq!((&found.id, &found.network.id), (&own.subnet, &own.network));

    let other = network(world, &mark("east", "a")).await;
    let services = network(world, "").await;
    let neighbour = network(world, &mark("west", "b")).await;
    let mixed = NamespaceNetwork { network: own.network.clone(), subnet: other.subnet.clone() };
    let mixed_up = NamespaceNetwork { network: other.network.clone(), subnet: own.subnet.clone() };
    for forged in [&other, &services, &neighbour, &mixed, &mixed_up] {
        assert_eq!(subnet_of_b(world, &forged.write()).await.unwrap_err(), Reason::Awaited, "{forged:?}");
    }
    for unreadable in ["", "{}", "mine"] {
        assert_eq!(subnet_of_b(world, unreadable).await.unwrap_err(), Reason::Awaited);
    }
    let path = NamespaceNetwork { network: own.network, subnet: "../networks".into() };
    assert_eq!(subnet_of_b(world, &path.write()).await.unwrap_err(), Reason::NotFound);
}
