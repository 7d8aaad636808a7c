//! The released controller beside the controllers of the devstack, on any API server and on a simulated network that the test
//! controls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta_cluster::{Cluster, Options, Parts};
use staffetta_memory::{MemoryNetwork, MemoryOptions, MemoryServices};

/// The time limit of a test step. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Stack {
    client: Client,
    controller: Controller,
    cluster: Cluster,
    network: Arc<MemoryNetwork>,
    services: Arc<MemoryServices>,
    namespace: String,
}

/// The state of a Deployment and a Service in the namespace of the test.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sight {
    /// The pods that run with the address of their active VIF: by that address their image.
    pub(crate) running: BTreeMap<String, String>,
    /// The number of other pods.
    pub(crate) others: usize,
    /// The addresses of the load balancer's members, as the annotation says.
    pub(crate) members: BTreeSet<String>,
    /// `true` if the service's status has its public address.
    pub(crate) public: bool,
    /// The numbers of ports, load balancers and public addresses in the simulated cloud.
    pub(crate) elsewhere: [usize; 3],
}

impl Stack {
    /// Starts both and waits until the controller is ready. The nodes are named after the namespace.
    pub(crate) async fn start(kubeconfig: &Path, namespace: &str, parts: Parts) -> Self {
        let client = staffetta::connect::client(Some(kubeconfig), None).await.unwrap();
        let memory = MemoryOptions {
            activation_delay_ms: 50,
            load_balancer_delay_ms: 20,
            cool_down_ms: 1000,
            ..MemoryOptions::default()
        };
        let network = Arc::new(MemoryNetwork::new(memory.clone()));
        let services = Arc::new(MemoryServices::new(memory));
        let mut registry = staffetta::assembly::registry();
        staffetta::assembly::world(&mut registry, &network, &services);
        let schema = FileSchema::assemble(&registry).unwrap();
        // Several tests may share one real server, each with a controller of its own.
        let options = [
            ("ADMIN__LISTEN", "127.0.0.1:0"),
            ("LEADER_ELECTION__ENABLED", "false"),
            ("RELAY__RETRY_INTERVAL", "100ms"),
        ];
        let variables = options.map(|(option, value)| (format!("STAFFETTA_{option}").into(), value.into()));
        let configuration = Configuration::load(&schema, None, variables).unwrap();
        let mut controller = Controller::start(registry, &configuration, client.clone()).await.unwrap();
        let options = Options { name: namespace.to_owned(), parts, ..Options::default() };
        let cluster = Cluster::start(client.clone(), options);
        tokio::time::timeout(PATIENCE, controller.ready())
            .await
            .expect("the controller is ready in time")
            .unwrap();
        Self { client, controller, cluster, network, services, namespace: namespace.to_owned() }
    }

    pub(crate) async fn stop(self) {
        self.controller.stop().await.unwrap();
        self.cluster.stop().await;
    }

    /// Looks again until what is seen is as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Sight) -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let sight = self.look().await;
            if wanted(&sight) {
                return;
            }
            assert!(tokio::time::Instant::now() < deadline, "not in time: {what}: {sight:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn look(&self) -> Sight {
        let mut sight = Sight { elsewhere: self.elsewhere(), ..Sight::default() };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        for pod in pods.list(&ListParams::default()).await.unwrap() {
            let Some((address, image)) = running(&pod) else {
                sight.others += 1;
                continue;
            };
            let other = sight.running.insert(address.clone(), image);
            assert_eq!(other, None, "two pods have the address {address}");
        }
        let services: Api<Service> = Api::namespaced(self.client.clone(), &self.namespace);
        for service in services.list(&ListParams::default()).await.unwrap() {
            let state = annotation(&service, "openstack.org/kuryr-lbaas-state");
            let members = state["members"].as_array().cloned().unwrap_or_default();
            let address = |member: &Value| content(member)["ip"].as_str().unwrap().to_owned();
            sight.members.extend(members.iter().map(address));
            let ingress = service.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
            sight.public = ingress.iter().any(|ingress| ingress.ip.is_some());
        }
        sight
    }

    fn elsewhere(&self) -> [usize; 3] {
        let ours = |owner: Option<&staffetta_driver::Owner>| {
            owner.is_some_and(|owner| owner.namespace == self.namespace)
        };
        [
            self.network.ports().iter().filter(|port| ours(port.owner.as_ref())).count(),
            self.services.load_balancers().iter().filter(|(owner, _)| ours(owner.as_ref())).count(),
            self.services.public_ips().iter().filter(|(owner, _)| ours(owner.as_ref())).count(),
        ]
    }
}

/// The address and the image of a pod that runs with the address of its active VIF and is to stay.
fn running(pod: &Pod) -> Option<(String, String)> {
    let state = annotation(pod, "openstack.org/kuryr-vif");
    let vif = content(&state["default_vif"]);
    let subnet = content(&content(&content(&vif["network"])["subnets"])["objects"][0]);
    let address = content(&content(&subnet["ips"])["objects"][0])["address"].as_str()?;
    let status = pod.status.as_ref()?;
    let runs = vif["active"] == true
        && status.phase.as_deref() == Some("Running")
        && status.pod_ip.as_deref() == Some(address)
        && pod.metadata.deletion_timestamp.is_none();
    let image = pod.spec.as_ref()?.containers.first()?.image.clone()?;
    runs.then(|| (address.to_owned(), image))
}

fn annotation(object: &impl ResourceExt, name: &str) -> Value {
    let text = object.annotations().get(name).map_or("null", String::as_str);
    content(&serde_json::from_str(text).unwrap()).clone()
}

/// The content of a versioned object, out of its envelope.
fn content(object: &Value) -> &Value {
    &object["versioned_object.data"]
}
