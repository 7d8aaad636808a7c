//! Namespaces with networks of their own.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{Vif, World, vifs_of};

/// The annotation that names the network and the subnet of a namespace.
const NETWORK: &str = "staffetta.dev/namespace-network";

/// A world in which the handler `namespace` works.
struct Namespaces {
    world: World,
    options: String,
    router: String,
}

impl Namespaces {
    async fn start() -> Self {
        let world = World::start().await;
        let (router, pool) =
            (world.tenant.router().await, world.tenant.subnet_pool("10.160.0.0/16", 24).await);
        let options = format!(
            "[kubernetes]\nenabled_handlers = [\"vif\", \"namespace\"]\npod_subnets_driver = \"namespace\"\n\
             namespace_project_driver = \"default\"\nnamespace_subnet_driver = \"namespace\"\n\
             [namespace_subnet]\npod_router = {router:?}\npod_subnet_pool = {pool:?}\n"
        );
        Self { world, options, router }
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.world.client.clone())
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.world.client.clone(), namespace)
    }

    async fn make(&self, name: &str) {
        let namespace = json!({ "metadata": { "name": name } });
        self.namespaces()
            .create(&PostParams::default(), &serde_json::from_value(namespace).unwrap())
            .await
            .unwrap();
    }

    async fn pod(&self, namespace: &str, name: &str) {
        let pod = json!({ "metadata": { "name": name }, "spec": { "nodeName": self.world.node,
            "automountServiceAccountToken": false, "containers": [{ "name": "c", "image": "i" }] } });
        let pod = serde_json::from_value(pod).unwrap();
        self.pods(namespace).create(&PostParams::default(), &pod).await.unwrap();
    }

    /// The active VIF of a pod, once it has one.
    async fn vif(&self, namespace: &str, name: &str) -> Vif {
        let mut found = Vec::new();
        self.world
            .until(&format!("{namespace}/{name} has an active VIF"), async || {
                let pod = self.pods(namespace).get(name).await.unwrap();
                found = vifs_of(&pod);
                found.first().is_some_and(|vif| vif.active)
            })
            .await;
        found.remove(0)
    }

    /// The ids of the network and the subnet of a namespace, once it shows them.
    async fn network(&self, name: &str) -> (String, String) {
        let mut found = Value::Null;
        self.world
            .until(&format!("the namespace {name} has a network"), async || {
                let namespace = self.namespaces().get(name).await.unwrap();
                let annotations = namespace.metadata.annotations.unwrap_or_default();
                found =
                    annotations.get(NETWORK).map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
                !found.is_null()
            })
            .await;
        let text = |name: &str| found[name].as_str().unwrap().to_owned();
        (text("network"), text("subnet"))
    }

    /// Returns `true` if Neutron has a resource with this id.
    async fn has(&self, kind: &str, id: &str) -> bool {
        self.world.tenant.things(kind).await.iter().any(|thing| thing["id"] == id)
    }

    /// Returns `true` if the network is attached to the router.
    async fn is_joined(&self, network: &str) -> bool {
        self.world.tenant.ports().await.iter().any(|port| {
            port.network_id == network
                && port.device_id == self.router
                && port.device_owner == "network:router_interface"
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_namespace_gets_a_network_with_its_pods_and_gives_it_back_on_a_real_openstack() {
    let cluster = Namespaces::start().await;
    let controller = cluster.world.controller(&cluster.options).await;
    for namespace in ["shop", "bank"] {
        cluster.make(namespace).await;
        cluster.pod(namespace, "web").await;
    }
    let (network, subnet) = cluster.network("shop").await;
    assert!(cluster.has("networks", &network).await && cluster.has("subnets", &subnet).await);
    assert!(cluster.is_joined(&network).await);
    let (web, other) = (cluster.vif("shop", "web").await, cluster.vif("bank", "web").await);
    let ports = cluster.world.tenant.pod_ports(&network).await;
    assert_eq!((ports.len(), &ports[0].id, &ports[0].fixed_ips[0].subnet_id), (1, &web.id, &subnet));
    let (bank, _) = cluster.network("bank").await;
    assert_ne!(bank, network);

    // A Kubernetes that deletes a namespace deletes its pods; a kubelet ends them.
    let now = DeleteParams::default().grace_period(0);
    cluster.pods("shop").delete("web", &now).await.unwrap();
    cluster.namespaces().delete("shop", &DeleteParams::default()).await.unwrap();
    cluster
        .world
        .until("the namespace is gone", async || {
            cluster.namespaces().get_opt("shop").await.unwrap().is_none()
        })
        .await;
    assert!(!cluster.has("networks", &network).await && !cluster.has("subnets", &subnet).await);
    assert!(!cluster.is_joined(&network).await);
    assert!(cluster.world.tenant.port(&other.id).await.is_some() && cluster.is_joined(&bank).await);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_namespace_whose_network_somebody_uses_waits_and_says_so_on_a_real_openstack() {
    let cluster = Namespaces::start().await;
    let world = &cluster.world;
    let controller = world.controller(&cluster.options).await;
    cluster.make("shop").await;
    let (network, id) = cluster.network("shop").await;
    let subnet = staffetta_real_openstack::Subnet { id, network: network.clone() };
    let foreign = world.tenant.create_port(&subnet, json!({ "name": "foreign" })).await;
    cluster.namespaces().delete("shop", &DeleteParams::default()).await.unwrap();
    world.until_reported("shop", "DriverConflict").await;
    assert!(world.tenant.port(&foreign.id).await.is_some() && cluster.has("networks", &network).await);
    world.tenant.delete("port", &foreign.id).await;
    world
        .until("the namespace is gone", async || {
            cluster.namespaces().get_opt("shop").await.unwrap().is_none()
        })
        .await;
    assert!(!cluster.has("networks", &network).await);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_namespace_that_names_the_network_of_another_or_of_services_keeps_its_own_on_a_real_openstack() {
    let cluster = Namespaces::start().await;
    let world = &cluster.world;
    let controller = world.controller(&cluster.options).await;
    for namespace in ["shop", "bank"] {
        cluster.make(namespace).await;
    }
    let (victim, own) = (cluster.network("shop").await, cluster.network("bank").await);
    let services = (world.subnet.network.clone(), world.subnet.id.clone());
    for (number, (network, subnet)) in
        [&victim, &services, &(own.0.clone(), victim.1.clone())].into_iter().enumerate()
    {
        let forged = json!({ "network": network, "subnet": subnet }).to_string();
        let patch = json!({ "metadata": { "annotations": { NETWORK: forged } } });
        cluster.namespaces().patch("bank", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        // At once, when the pod may still see the forged annotation.
        let pod = format!("web-{number}");
        cluster.pod("bank", &pod).await;
        let vif = cluster.vif("bank", &pod).await;
        let port = world.tenant.port(&vif.id).await.unwrap();
        assert_eq!((&port.network_id, &port.fixed_ips[0].subnet_id), (&own.0, &own.1));
        let what = "the annotation is written again";
        world.until(what, async || cluster.network("bank").await == own).await;
        assert_eq!(world.tenant.pod_ports(&victim.0).await.len(), 0);
    }
    world.until_reported("bank", "NetworkAnnotationRestored").await;
    cluster.namespaces().delete("shop", &DeleteParams::default()).await.unwrap();
    world
        .until("the other namespace is gone", async || {
            cluster.namespaces().get_opt("shop").await.unwrap().is_none()
        })
        .await;
    assert!(!cluster.has("networks", &victim.0).await && cluster.has("networks", &own.0).await);
    controller.stop().await.unwrap();
}
