//! The command is stopped after each of its steps in turn, and run again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta_apiserver::testing::RealServer;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::{
    Adoption, AdoptionDriver, DriverError, ExistingAttachment, ExistingLoadBalancer, ExistingNetwork,
    ExistingPort, ExistingPublicIp, LoadBalancer, NamespaceNetwork, Owner, SubnetId, UnusedResource, Vif,
};
use staffetta_memory::{
    MemoryAdoption, MemoryNamespaceNetwork, MemoryNetwork, MemoryOptions, MemoryPort, MemoryServices,
};
use staffetta_network::os_vif::PodState;

use super::world::{NODE, annotation, vif};
use crate::base::config::{Configuration, FileSchema};
use crate::control::assembly;
use crate::operate::cleanup::ObjectResult;
use crate::operate::migrate::{MigrationOptions, apply, migrate, plan, read};

/// A cluster that Kuryr has left, and its cloud.
struct World {
    client: Client,
    network: Arc<MemoryNetwork>,
    services: Arc<MemoryServices>,
    /// The embedded server, if it is that one.
    _server: Option<ApiServer>,
}

/// The group and the kinds of the objects that a migration may change.
const KINDS: [(&str, &str); 8] = [
    ("", "Namespace"),
    ("", "Pod"),
    ("", "Service"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("openstack.org", "KuryrPort"),
    ("openstack.org", "KuryrLoadBalancer"),
    ("openstack.org", "KuryrNetwork"),
    ("openstack.org", "KuryrNetworkPolicy"),
];

/// The number of steps of the migration: of the namespace, the pods a, b and c, the service, and the policy.
const STEPS: usize = 3 + (3 + 3 + 2) + 3 + 3;

impl World {
    /// A world on the embedded server.
    async fn new() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        Self { _server: Some(server), ..Self::on(client).await }
    }

    /// A namespace with a network, a pod with a `KuryrPort`, one of a pool, one with an annotation, a service with a `KuryrLoadBalancer`,
    /// and a policy whose group no port has any more.
    async fn on(client: Client) -> Self {
        let world = Self::empty(client);
        for (_, kind) in KINDS.into_iter().filter(|(group, _)| *group == "openstack.org") {
            world.define(kind).await;
        }
        world.namespace().await;
        world.pod("a", "10.10.0.7", false, true).await;
        world.pod("b", "10.10.0.8", true, true).await;
        world.pod("c", "10.10.0.9", false, false).await;
        world.service().await;
        world.policy().await;
        world
    }

    /// A cluster without any object, and an empty cloud.
    fn empty(client: Client) -> Self {
        let options = MemoryOptions::default();
        Self {
            client,
            network: Arc::new(MemoryNetwork::new(options.clone())),
            services: Arc::new(MemoryServices::new(options)),
            _server: None,
        }
    }

    fn objects(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        match kind {
            "CustomResourceDefinition" | "Namespace" => Api::all_with(self.client.clone(), &resource),
            _ => Api::namespaced_with(self.client.clone(), "default", &resource),
        }
    }

    /// Creates an object. A real server needs a moment until it serves a kind that was defined just now.
    async fn create(&self, group: &str, kind: &str, object: Value) -> DynamicObject {
        let (objects, object) = (self.objects(group, kind), serde_json::from_value(object).unwrap());
        for _ in 0..600 {
            match objects.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                created => return created.unwrap(),
            }
        }
        panic!("the server does not serve {kind}")
    }

    async fn define(&self, kind: &str) {
        let plural = ApiResource::from_gvk(&GroupVersionKind::gvk("openstack.org", "v1", kind)).plural;
        let schema =
            json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        let definition = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.openstack.org") },
            "spec": { "group": "openstack.org", "scope": "Namespaced", "names": { "kind": kind, "plural": plural },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }] } });
        self.create("apiextensions.k8s.io", "CustomResourceDefinition", definition).await;
    }

    async fn namespace(&self) {
        let network = NamespaceNetwork { network: "n1".into(), subnet: "s1".into() };
        let status = json!({ "netId": network.network, "subnetId": network.subnet });
        let recorded = json!({ "apiVersion": "openstack.org/v1", "kind": "KuryrNetwork", "status": status,
            "metadata": { "name": "default", "finalizers": ["kuryrnetwork.finalizers.kuryr.openstack.org"] } });
        self.create("openstack.org", "KuryrNetwork", recorded).await;
        self.namespace_network(network);
    }

    /// Adds the network of the namespace `default` to the cloud.
    fn namespace_network(&self, network: NamespaceNetwork) {
        let name = "ns/default-net".to_owned();
        self.network.insert_namespace_network(MemoryNamespaceNetwork {
            network,
            name,
            cluster: None,
            owner: None,
            used: false,
        });
    }

    async fn policy(&self) {
        let finalizer = "kuryr.openstack.org/networkpolicy-finalizer";
        let policy = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": { "name": "deny", "finalizers": [finalizer] }, "spec": { "podSelector": {} } });
        self.create("networking.k8s.io", "NetworkPolicy", policy).await;
        let recorded = json!({ "apiVersion": "openstack.org/v1", "kind": "KuryrNetworkPolicy",
            "metadata": { "name": "deny", "finalizers": [finalizer] }, "status": { "securityGroupId": "g1" } });
        self.create("openstack.org", "KuryrNetworkPolicy", recorded).await;
        self.network.insert_security_group(&"g1".into(), "Kuryr-Kubernetes Network Policy default/deny SG");
    }

    async fn pod(&self, name: &str, ip: &str, is_pooled: bool, has_kuryr_port: bool) {
        let vif = vif(&format!("port-{name}"), ip);
        let metadata = if has_kuryr_port {
            json!({ "name": name, "finalizers": ["kuryr.openstack.org/pod-finalizer"] })
        } else {
            json!({ "name": name, "annotations": { "openstack.org/kuryr-vif": annotation(&vif) } })
        };
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": { "nodeName": NODE, "automountServiceAccountToken": false,
                "containers": [{ "name": "c", "image": "i" }] } });
        let pod = self.create("", "Pod", pod).await;
        let status = json!({ "status": { "phase": "Running", "podIP": ip, "hostIP": "192.0.2.1" } });
        let patch = kube::api::Patch::Merge(status);
        self.objects("", "Pod").patch_status(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
        let uid = pod.metadata.uid.unwrap();
        if has_kuryr_port {
            let port = json!({ "apiVersion": "openstack.org/v1", "kind": "KuryrPort",
                "metadata": { "name": name, "finalizers": ["kuryr.openstack.org/kuryrport-finalizer"] },
                "spec": { "podUid": uid }, "status": { "vifs": { "eth0": { "default": true, "vif": vif } } } });
            self.create("openstack.org", "KuryrPort", port).await;
        }
        let vif: Vif = PodState::read(&annotation(&vif)).unwrap().default_vif;
        self.port(vif, (!is_pooled).then(|| Owner { uid: uid.into(), ..Owner::default() }));
    }

    /// Adds a port to the cloud.
    fn port(&self, vif: Vif, owner: Option<Owner>) {
        self.network.insert_port(MemoryPort {
            subnets: Vec::new(),
            vif,
            cluster: None,
            owner,
            node_name: NODE.into(),
            project: "memory".into(),
            security_groups: vec!["default".into()],
            active_at: tokio::time::Instant::now(),
        });
    }

    async fn service(&self) {
        let service = json!({ "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "web", "finalizers": ["kuryr.openstack.org/service-finalizer"] },
            "spec": { "clusterIP": "10.96.0.77", "ports": [{ "port": 80 }] } });
        let service = self.create("", "Service", service).await;
        let ip = service.data["spec"]["clusterIP"].clone();
        let owner =
            json!({ "apiVersion": "v1", "kind": "Service", "name": "web", "uid": service.metadata.uid });
        let balancer = json!({ "id": "lb1", "ip": ip, "name": "default/web", "port_id": "port1", "project_id": "memory",
            "provider": "memory", "security_groups": [], "subnet_id": "services" });
        let recorded = json!({ "apiVersion": "openstack.org/v1", "kind": "KuryrLoadBalancer",
            "metadata": { "name": "web", "ownerReferences": [owner],
                "finalizers": ["kuryr.openstack.org/kuryrloadbalancer-finalizers"] },
            "spec": { "ip": ip }, "status": { "loadbalancer": balancer } });
        self.create("openstack.org", "KuryrLoadBalancer", recorded).await;
        let tree: LoadBalancer =
            serde_json::from_value(json!({ "id": "lb1", "project": "memory", "name": "default/web",
            "vip": ip, "subnet": "services", "port": "port1", "provider": "memory", "security_groups": [],
            "status": "active", "listeners": [] }))
            .unwrap();
        self.services.insert_load_balancer(tree);
    }

    fn configuration(&self) -> (staffetta_handler::Registry, Configuration) {
        let mut registry = assembly::registry();
        assembly::world(&mut registry, &self.network, &self.services);
        let schema = FileSchema::assemble(&registry).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let handlers =
            "[kubernetes]\nenabled_handlers = [\"vif\", \"lb\", \"lbaasspec\", \"namespace\", \"policy\"]\n";
        std::fs::write(file.path(), handlers).unwrap();
        let cluster_id = ("STAFFETTA_KUBERNETES__CLUSTER_ID".into(), "east".into());
        let configuration = Configuration::load(&schema, Some(file.path()), [cluster_id]).unwrap();
        (registry, configuration)
    }

    /// Executes the first `count` steps of the plan. Returns the number of steps of the whole plan.
    async fn stop_after(&self, count: usize) -> usize {
        let (registry, configuration) = self.configuration();
        let (cloud, state) = read(registry, &configuration, self.client.clone()).await.unwrap();
        let planned = plan::plan(&state, false).into_iter();
        let steps: Vec<_> = planned.flat_map(|planned| planned.steps.unwrap()).collect();
        for step in steps.iter().take(count) {
            apply::execute(&self.client, &*cloud, step).await.unwrap();
        }
        steps.len()
    }

    async fn run(&self) -> Vec<ObjectResult> {
        let (registry, configuration) = self.configuration();
        let options = MigrationOptions { apply: true, delete_idle_ports: false };
        migrate(registry, &configuration, self.client.clone(), options).await.unwrap().objects
    }

    /// Everything that a migration may change, with names in place of UIDs.
    async fn outcome(&self) -> Value {
        let mut objects = Vec::new();
        for (group, kind) in KINDS {
            let listed = self.objects(group, kind).list(&ListParams::default()).await.unwrap();
            for DynamicObject { metadata, .. } in listed.items {
                let name = metadata.name.unwrap();
                // Not those that a server has of its own.
                if name != "kubernetes" && (kind != "Namespace" || name == "default") {
                    objects.push(json!([kind, name, metadata.annotations, metadata.finalizers]));
                }
            }
        }
        let ports: Vec<_> = self
            .network
            .ports()
            .into_iter()
            .map(|port| {
                json!([
                    port.vif,
                    port.cluster,
                    port.owner.map(|owner| owner.name),
                    port.node_name,
                    port.security_groups
                ])
            })
            .collect();
        let balancers = self.services.load_balancers().into_iter();
        let balancers: Vec<_> =
            balancers.map(|(owner, tree)| json!([owner.map(|owner| owner.name), tree])).collect();
        let networks = self.network.namespace_networks().into_iter();
        let networks: Vec<_> = networks
            .map(|made| json!([made.network, made.cluster, made.owner.map(|owner| owner.name)]))
            .collect();
        json!([objects, ports, balancers, networks, self.network.security_groups().len()])
    }
}

#[tokio::test]
async fn a_migration_that_is_stopped_after_any_step_and_run_again_ends_as_if_it_had_not_been() {
    let whole = World::new().await;
    assert!(whole.run().await.iter().all(|object| object.is_ok && object.result == "done"));
    let expected = whole.outcome().await;
    let text = expected.to_string();
    // The finalizers of the pods, the service and the namespace, and the annotation of the latter.
    assert!(!text.contains("kuryr.openstack.org") && text.matches("staffetta.dev/").count() == 6, "{text}");
    assert_eq!(World::new().await.stop_after(0).await, STEPS);
    for count in 0..=STEPS {
        let world = World::new().await;
        world.stop_after(count).await;
        // And once more, just as far, before it may end.
        world.stop_after(count.saturating_sub(1) / 2).await;
        let objects = world.run().await;
        assert!(objects.iter().all(|object| object.is_ok), "after {count} steps: {objects:?}");
        assert_eq!(world.outcome().await, expected, "after {count} steps");
        assert_eq!(world.run().await.len(), 0, "nothing is left to do");
    }
}

#[tokio::test]
async fn an_object_that_changed_since_it_was_planned_is_not_written() {
    let world = World::new().await;
    let (registry, configuration) = world.configuration();
    let (cloud, state) = read(registry, &configuration, world.client.clone()).await.unwrap();
    let planned = plan::plan(&state, false);
    let theirs = kube::api::Patch::Merge(
        json!({ "metadata": { "annotations": { "openstack.org/kuryr-vif": "{}" } } }),
    );
    world.objects("", "Pod").patch("c", &kube::api::PatchParams::default(), &theirs).await.unwrap();
    let objects = apply::apply(&world.client, &*cloud, planned).await;
    let failed: Vec<_> = objects.iter().filter(|object| !object.is_ok).collect();
    let [failed] = failed[..] else { panic!("{objects:?}") };
    assert_eq!(failed.name, "c");
    assert!(
        failed.result.contains("has changed since it was read; run the command again"),
        "{}",
        failed.result
    );
    assert_eq!(world.objects("", "Pod").get("c").await.unwrap().metadata.finalizers, None);
}

/// A cloud in which each port is a subport of a trunk.
struct Nested(Arc<dyn AdoptionDriver>);

#[async_trait]
impl AdoptionDriver for Nested {
    async fn ports(&self) -> Result<Vec<ExistingPort>, DriverError> {
        let attachment = ExistingAttachment::Trunk { id: "t".into(), vlan: 7, node_ips: Vec::new() };
        let ports = self.0.ports().await?.into_iter();
        Ok(ports.map(|port| ExistingPort { attachment: attachment.clone(), ..port }).collect())
    }

    async fn load_balancers(&self) -> Result<Vec<ExistingLoadBalancer>, DriverError> {
        self.0.load_balancers().await
    }

    async fn public_ips(&self) -> Result<Vec<ExistingPublicIp>, DriverError> {
        self.0.public_ips().await
    }

    async fn networks(&self) -> Result<Vec<ExistingNetwork>, DriverError> {
        self.0.networks().await
    }

    async fn adopt(&self, adoption: &Adoption) -> Result<(), DriverError> {
        self.0.adopt(adoption).await
    }

    async fn delete(&self, resource: &UnusedResource) -> Result<(), DriverError> {
        self.0.delete(resource).await
    }
}

#[tokio::test]
async fn the_networks_of_namespaces_are_read_for_subports_without_any_object_of_kuryr() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let world = World::empty(Client::try_from(Config::new(server.url().parse().unwrap())).unwrap());
    world.port(PodState::read(&annotation(&vif("p1", "10.10.0.7"))).unwrap().default_vif, None);
    world.namespace_network(NamespaceNetwork { network: "n1".into(), subnet: "s1".into() });
    let (mut registry, _) = world.configuration();
    let (network, services) = (Arc::clone(&world.network), Arc::clone(&world.services));
    registry.driver::<dyn AdoptionDriver>("memory", "Held by the test.", move |_| {
        let memory = MemoryAdoption::new(Arc::clone(&network), Arc::clone(&services), "east".into());
        Ok(Arc::new(Nested(Arc::new(memory))))
    });
    for (registry, subnets) in [(world.configuration().0, vec![]), (registry, vec!["s1".into()])] {
        let (_, configuration) = world.configuration();
        let (_, state) = read(registry, &configuration, world.client.clone()).await.unwrap();
        assert_eq!(state.ports.len(), 1);
        let found: Vec<SubnetId> = state.networks.into_iter().flat_map(|network| network.subnets).collect();
        assert_eq!(found, subnets);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_migration_that_is_stopped_after_each_of_its_steps_ends_as_if_it_had_not_been_on_a_real_server() {
    let server = RealServer::start(&[]).await;
    let real = World::on(crate::base::connect::client(Some(server.kubeconfig()), None).await.unwrap()).await;
    // One step of each run, so that every state between two steps is read and planned from. Only the deletion of a group is planned again
    // as long as Kuryr's record names it; then the run is stopped after the next step.
    let (mut left, mut before) = (real.stop_after(1).await, 0);
    assert_eq!(left, STEPS);
    while left > 0 {
        let count = if left == before { 2 } else { 1 };
        (before, left) = (left, real.stop_after(count).await);
    }
    assert_eq!(real.run().await.len(), 0, "nothing is left to do");
    let whole = World::new().await;
    assert!(whole.run().await.iter().all(|object| object.is_ok));
    assert_eq!(real.outcome().await, whole.outcome().await);
}
