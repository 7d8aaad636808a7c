//! Addresses of nodes, end to end: a labelled node gets its capacity, each pod that requests an address gets one of its own, and a
//! restarted controller continues where the former one ended.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, from_value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_memory::MemoryPrefixes;

const ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// The time limit of a test step. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster with two nodes, of which only `win` has the label, and a simulated cloud.
struct PrefixStack {
    cloud: Arc<MemoryPrefixes>,
    client: Client,
    controller: Option<Controller>,
    _server: ApiServer,
}

impl PrefixStack {
    async fn start() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        let cloud = Arc::new(MemoryPrefixes::default());
        cloud.add_subnet(&"subnet-1".into(), "10.0.0.0/23".parse().unwrap());
        let map: ConfigMap = from_value(json!({
            "metadata": { "name": "amazon-vpc-cni" },
            "data": { "enable-windows-ipam": "true", "enable-windows-prefix-delegation": "true" },
        }))
        .unwrap();
        let maps = Api::namespaced(client.clone(), "kube-system");
        maps.create(&PostParams::default(), &map).await.unwrap();
        for (node, os) in [("win", "windows"), ("tux", "linux")] {
            cloud.add_machine(&format!("i-{node}").into(), &"subnet-1".into(), 10, true);
            let node: Node = from_value(json!({
                "metadata": { "name": node, "labels": { "kubernetes.io/os": os } },
                "spec": { "providerID": format!("aws:///eu-west-1a/i-{node}") },
            }))
            .unwrap();
            Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        }
        let controller = Some(controller(&client, &cloud).await);
        Self { cloud, client, controller, _server: server }
    }

    async fn stop(&mut self) {
        self.controller.take().unwrap().stop().await.unwrap();
    }

    /// Starts another controller, which knows what the API and the cloud contain and nothing else.
    async fn restart(&mut self) {
        self.controller = Some(controller(&self.client, &self.cloud).await);
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create(&self, name: &str, node: &str, annotations: Value) {
        let pod = from_value(json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "nodeName": node, "containers": [
                { "name": "c", "image": "i", "resources": { "limits": { ADDRESS: "1" }, "requests": { ADDRESS: "1" } } }
            ] },
        }));
        self.pods().create(&PostParams::default(), &pod.unwrap()).await.unwrap();
    }

    /// Returns the addresses in the annotations of all pods of `win`. Panics if two pods have the same one, or one that is not in a
    /// prefix of the node.
    async fn addresses(&self) -> BTreeMap<String, Ipv4Addr> {
        let (mut addresses, mut owners) = (BTreeMap::new(), BTreeMap::new());
        for pod in self.pods().list(&ListParams::default()).await.unwrap() {
            let Some(text) = pod.annotations().get(ADDRESS) else { continue };
            let address = text.strip_suffix("/32").unwrap().parse().unwrap();
            assert_eq!(owners.insert(address, pod.name_any()), None, "{address} is the address of two pods");
            assert!(self.cloud.blocks().iter().any(|block| block.contains(&address)), "{address}");
            addresses.insert(pod.name_any(), address);
        }
        addresses
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !holds().await {
            assert!(
                tokio::time::Instant::now() < deadline,
                "not in time: {what}: {:?}",
                self.addresses().await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until_capacity(&self, wanted: &str) {
        self.until(&format!("the capacity is {wanted}"), async || {
            let node = Api::<Node>::all(self.client.clone()).get_status("win").await.unwrap();
            let capacity = node.status.and_then(|status| status.capacity?.remove(ADDRESS));
            capacity.is_some_and(|capacity| capacity.0 == wanted)
        })
        .await;
    }
}

async fn controller(client: &Client, cloud: &Arc<MemoryPrefixes>) -> Controller {
    let mut registry = staffetta::assembly::registry();
    staffetta::assembly::interfaces(&mut registry, cloud);
    let schema = FileSchema::assemble(&registry).unwrap();
    let options = [
        ("KUBERNETES__ENABLED_HANDLERS", "[\"prefix_ip\"]"),
        ("ADMIN__LISTEN", "127.0.0.1:0"),
        ("LEADER_ELECTION__ENABLED", "false"),
        ("PREFIX_IP__COOL_DOWN", "1s"),
    ];
    let variables = options.map(|(option, value)| (format!("STAFFETTA_{option}").into(), value.into()));
    let configuration = Configuration::load(&schema, None, variables).unwrap();
    let mut controller = Controller::start(registry, &configuration, client.clone()).await.unwrap();
    tokio::time::timeout(PATIENCE, controller.ready()).await.expect("it is ready in time").unwrap();
    controller
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_pod_of_a_labelled_node_has_an_address_of_its_own_also_after_a_restart() {
    let mut stack = PrefixStack::start().await;
    stack.until_capacity("144").await;
    stack.create("elsewhere", "tux", json!({})).await;
    for pod in 0..40 {
        stack.create(&format!("web-{pod}"), "win", json!({})).await;
    }
    stack.until("40 pods have an address", async || stack.addresses().await.len() == 40).await;
    let before = stack.addresses().await;
    assert!(!before.contains_key("elsewhere"));

    // Started pods show the address that they use. Somebody else's annotation claims it.
    let started = json!({ "status": { "phase": "Running", "podIP": before["web-0"].to_string() } });
    let pods = stack.pods();
    pods.patch_status("web-0", &PatchParams::default(), &Patch::Strategic(started)).await.unwrap();
    stack.stop().await;
    let forged = json!({ ADDRESS: format!("{}/32", before["web-0"]) });
    stack.create("forged", "win", forged).await;
    stack.restart().await;
    stack
        .until("the forged annotation is replaced", async || {
            let forged = pods.get("forged").await.unwrap();
            forged.annotations()[ADDRESS] != format!("{}/32", before["web-0"])
        })
        .await;
    let mut after = stack.addresses().await;
    after.remove("forged");
    assert_eq!(after, before);

    for pod in 0..40 {
        let now = DeleteParams::default().grace_period(0);
        pods.delete(&format!("web-{pod}"), &now).await.unwrap();
    }
    stack.until("the surplus is given back", async || stack.cloud.blocks().len() == 1).await;
    let used: BTreeSet<_> = stack.addresses().await.into_values().collect();
    assert_eq!(used.len(), 1);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_has_no_more_pods_than_slots_and_the_next_one_waits_for_an_end() {
    let mut stack = PrefixStack::start().await;
    stack.until_capacity("144").await;
    for pod in 0..145 {
        stack.create(&format!("web-{pod}"), "win", json!({})).await;
    }
    stack.until("144 pods have an address", async || stack.addresses().await.len() == 144).await;
    let addresses = stack.addresses().await;
    let ended = addresses.keys().next().unwrap().clone();
    stack.pods().delete(&ended, &DeleteParams::default().grace_period(0)).await.unwrap();
    stack
        .until("the last pod has its address", async || {
            let now = stack.addresses().await;
            now.len() == 144 && !now.contains_key(&ended)
        })
        .await;
    stack.stop().await;
}
