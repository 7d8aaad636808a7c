//! The released controller with the driver `ec2` on an EC2 API over HTTP, which checks signatures and refuses what EC2 refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, from_value, json};
use staffetta_apiserver::{ApiServer, Options};
use tokio::sync::{Mutex, MutexGuard};

use crate::process::{Process, eventually};

const ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// The requests for tests that the server in the place of EC2 answers.
struct Ec2(String);

/// One test at a time: the server counts and throttles the requests of all.
static EXCLUSIVE: Mutex<()> = Mutex::const_new(());

impl Ec2 {
    async fn find() -> (Self, MutexGuard<'static, ()>) {
        let exclusive = EXCLUSIVE.lock().await;
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let ec2 = Self(std::env::var("STAFFETTA_REAL_EC2").expect("devstack/real/test starts the EC2 API"));
        ec2.ask("reset").await;
        (ec2, exclusive)
    }

    async fn ask(&self, path: &str) -> Value {
        let response = reqwest::Client::new().post(format!("{}/_{path}", self.0)).send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {}", response.status());
        response.json().await.unwrap()
    }

    /// Starts an instance in a new subnet, and returns its id and that of its interface.
    async fn machine(&self, subnet: &str) -> [String; 2] {
        let ids = self.ask(&format!("machine/m5.large/{subnet}")).await;
        ["instance", "interface"].map(|name| ids[name].as_str().unwrap().to_owned())
    }

    async fn blocks(&self, interface: &str) -> Vec<Ipv4Net> {
        from_value(self.ask(&format!("blocks/{interface}")).await).unwrap()
    }
}

fn client(server: &ApiServer) -> Client {
    Client::try_from(Config::new(server.url().parse().unwrap())).unwrap()
}

/// Creates a node of the instance `instance`.
async fn create_node(client: &Client, name: &str, instance: &str) {
    let node: Node = from_value(json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/os": "windows" } },
        "spec": { "providerID": format!("aws:///eu-west-1a/{instance}") },
    }))
    .unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
}

async fn create_pods(client: &Client, node: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let pod: Pod = from_value(json!({
            "metadata": { "name": format!("{node}-{number}") },
            "spec": { "nodeName": node, "containers": [
                { "name": "c", "image": "i", "resources": { "limits": { ADDRESS: "1" }, "requests": { ADDRESS: "1" } } }
            ] },
        }))
        .unwrap();
        Api::namespaced(client.clone(), "default").create(&PostParams::default(), &pod).await.unwrap();
    }
}

/// Returns the addresses in the annotations of all pods. Panics if two pods have the same one.
async fn addresses(client: &Client) -> BTreeMap<String, Ipv4Addr> {
    let pods = Api::<Pod>::namespaced(client.clone(), "default").list(&ListParams::default()).await.unwrap();
    let address = |pod: &Pod| pod.annotations().get(ADDRESS)?.strip_suffix("/32")?.parse().ok();
    let all: BTreeMap<_, _> = pods.iter().filter_map(|pod| Some((pod.name_any(), address(pod)?))).collect();
    assert_eq!(all.values().collect::<BTreeSet<_>>().len(), all.len(), "two pods have one address: {all:?}");
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an EC2 API: devstack/real/test real_ec2"]
async fn pods_of_a_node_get_addresses_of_its_interface_through_throttling_and_a_restart_on_a_real_ec2() {
    let ((ec2, _exclusive), server) =
        (Ec2::find().await, ApiServer::start(Options::default()).await.unwrap());
    let client = client(&server);
    let map: ConfigMap = from_value(json!({
        "metadata": { "name": "amazon-vpc-cni" },
        "data": { "enable-windows-ipam": "true", "enable-windows-prefix-delegation": "true" },
    }))
    .unwrap();
    Api::namespaced(client.clone(), "kube-system").create(&PostParams::default(), &map).await.unwrap();
    let [instance, interface] = ec2.machine("10.7.1.0/24").await;
    // Between its reserved addresses, a /27 has no aligned prefix of 28 bits.
    let [small, _] = ec2.machine("10.7.2.0/27").await;
    create_node(&client, "win", &instance).await;
    create_node(&client, "small", &small).await;

    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("credentials");
    std::fs::write(&profile, "[default]\naws_access_key_id = AKIA\naws_secret_access_key = staffetta\n")
        .unwrap();
    let configuration = format!(
        "[kubernetes]\nenabled_handlers = [\"prefix_ip\"]\nprefix_provider_driver = \"ec2\"\n\
         [leader_election]\nenabled = false\n[prefix_ip]\ncool_down = \"1s\"\n\
         [ec2]\nregion = \"eu-west-1\"\nprofile = \"default\"\nendpoint = \"{}/\"\n",
        ec2.0
    );
    let start = async || {
        let (program, environment) = (
            Path::new(env!("CARGO_BIN_EXE_staffetta")),
            [("AWS_SHARED_CREDENTIALS_FILE", profile.as_path())],
        );
        Process::start_in(&environment, program, folder.path(), &configuration, &server.kubeconfig()).await
    };
    let mut first = start().await;
    first.ready().await;
    eventually("the node has its capacity", async || {
        let node = Api::<Node>::all(client.clone()).get_status("win").await.unwrap();
        let capacity = node.status.and_then(|status| status.capacity?.remove(ADDRESS));
        capacity.is_some_and(|capacity| capacity.0 == "144")
    })
    .await;
    create_pods(&client, "win", 0..20).await;
    eventually("20 pods have an address", async || addresses(&client).await.len() == 20).await;

    ec2.ask("throttle/3").await;
    create_pods(&client, "win", 20..40).await;
    eventually("40 pods have an address", async || addresses(&client).await.len() == 40).await;
    let (before, blocks) = (addresses(&client).await, ec2.blocks(&interface).await);
    assert!(before.values().all(|address| blocks.iter().any(|block| block.contains(address))), "{blocks:?}");
    eventually("the exhausted subnet is reported at its node", async || {
        let events = Api::<Event>::all(client.clone()).list(&ListParams::default()).await.unwrap();
        events.iter().any(|event| {
            let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
            event.reason.as_deref() == Some("SubnetExhausted") && regarding == Some("small")
        })
    })
    .await;
    let (_, state) = first.get("/debug/state?kind=Node&name=small").await;
    let state: Value = serde_json::from_str(&state).unwrap();
    let request = &state["background"][0]["requests"][0];
    assert_eq!(
        (&request["path"], &request["status"]),
        (&json!("AssignPrivateIpAddresses"), &json!(400)),
        "{state}"
    );

    assert!(first.terminate().await.success());
    ec2.ask("reset").await;
    let mut second = start().await;
    second.ready().await;
    create_pods(&client, "win", 40..41).await;
    eventually("the new pod has an address", async || addresses(&client).await.len() == 41).await;
    let after = addresses(&client).await;
    assert!(before.iter().all(|(pod, address)| after.get(pod) == Some(address)), "{before:?} {after:?}");
    let requests = ec2.ask("requests").await;
    assert!(
        requests["DescribeInstances"].as_u64().unwrap() <= 2,
        "one read for each node at most: {requests}"
    );

    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    for pod in after.keys() {
        pods.delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    eventually("the surplus is given back", async || ec2.blocks(&interface).await.len() == 1).await;
    assert!(second.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an EC2 API: devstack/real/test real_ec2"]
async fn with_the_keys_of_a_role_partial_grants_and_late_reads_share_and_lose_no_address_on_a_real_ec2() {
    let ((ec2, _exclusive), server) =
        (Ec2::find().await, ApiServer::start(Options::default()).await.unwrap());
    let client = client(&server);
    let data = json!({
        "enable-windows-ipam": "true", "enable-windows-prefix-delegation": "true", "warm-prefix-target": "3",
    });
    let map: ConfigMap =
        from_value(json!({ "metadata": { "name": "amazon-vpc-cni" }, "data": data })).unwrap();
    Api::namespaced(client.clone(), "kube-system").create(&PostParams::default(), &map).await.unwrap();
    let [instance, interface] = ec2.machine("10.7.3.0/24").await;
    create_node(&client, "win", &instance).await;

    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("config");
    let text = "[profile user]\naws_access_key_id = AKIA\naws_secret_access_key = staffetta\n\
        [profile role]\nregion = eu-west-1\nrole_arn = arn:aws:iam::123456789012:role/nodes\nsource_profile = user\n";
    std::fs::write(&profiles, text).unwrap();
    let configuration = format!(
        "[kubernetes]\nenabled_handlers = [\"prefix_ip\"]\nprefix_provider_driver = \"ec2\"\n\
         [leader_election]\nenabled = false\n[ec2]\nprofile = \"role\"\nendpoint = \"{}/\"\n",
        ec2.0
    );
    let sts = format!("{}/", ec2.0);
    let start = async || {
        let environment =
            [("AWS_CONFIG_FILE", profiles.as_path()), ("AWS_ENDPOINT_URL_STS", Path::new(&sts))];
        let program = Path::new(env!("CARGO_BIN_EXE_staffetta"));
        Process::start_in(&environment, program, folder.path(), &configuration, &server.kubeconfig()).await
    };
    ec2.ask("partial/1").await;
    ec2.ask("delay/4000").await;
    let mut first = start().await;
    first.ready().await;
    create_pods(&client, "win", 0..20).await;
    eventually("20 pods have an address", async || addresses(&client).await.len() == 20).await;
    let before = addresses(&client).await;
    // Reads do not show all prefixes of these addresses yet.
    first.kill("KILL").await;
    first.ends().await;
    let mut second = start().await;
    second.ready().await;
    create_pods(&client, "win", 20..40).await;
    eventually("40 pods have an address", async || addresses(&client).await.len() == 40).await;
    let after = addresses(&client).await;
    assert!(before.iter().all(|(pod, address)| after.get(pod) == Some(address)), "{before:?} {after:?}");
    ec2.ask("reset").await;
    eventually("all addresses are in prefixes that a read shows", async || {
        let blocks = ec2.blocks(&interface).await;
        after.values().all(|address| blocks.iter().any(|block| block.contains(address)))
    })
    .await;
    assert!(second.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an EC2 API: devstack/real/test real_ec2"]
async fn kills_lost_annotations_and_two_nodes_of_one_machine_share_no_address_on_a_real_ec2() {
    let ((ec2, _exclusive), server) =
        (Ec2::find().await, ApiServer::start(Options::default()).await.unwrap());
    let client = client(&server);
    let data = json!({
        "enable-windows-ipam": "true", "enable-windows-prefix-delegation": "true", "warm-prefix-target": "3",
    });
    let map: ConfigMap =
        from_value(json!({ "metadata": { "name": "amazon-vpc-cni" }, "data": data })).unwrap();
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "kube-system");
    maps.create(&PostParams::default(), &map).await.unwrap();
    // EC2 assigns all three prefixes or none, and a /26 has two.
    let [instance, interface] = ec2.machine("10.7.4.0/26").await;
    create_node(&client, "win", &instance).await;
    create_node(&client, "renamed", &instance).await;

    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("credentials");
    std::fs::write(&profile, "[default]\naws_access_key_id = AKIA\naws_secret_access_key = staffetta\n")
        .unwrap();
    let configuration = format!(
        "[kubernetes]\nenabled_handlers = [\"prefix_ip\"]\nprefix_provider_driver = \"ec2\"\n\
         [leader_election]\nenabled = false\n[prefix_ip]\ncool_down = \"1s\"\n\
         [ec2]\nregion = \"eu-west-1\"\nprofile = \"default\"\nendpoint = \"{}/\"\n",
        ec2.0
    );
    let start = async || {
        let (program, environment) = (
            Path::new(env!("CARGO_BIN_EXE_staffetta")),
            [("AWS_SHARED_CREDENTIALS_FILE", profile.as_path())],
        );
        Process::start_in(&environment, program, folder.path(), &configuration, &server.kubeconfig()).await
    };
    let mut process = start().await;
    process.ready().await;
    create_pods(&client, "win", 0..10).await;
    create_pods(&client, "renamed", 0..10).await;
    eventually("20 pods have an address", async || addresses(&client).await.len() == 20).await;
    let before = addresses(&client).await;
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    for (pod, address) in &before {
        let ip = address.to_string();
        let status = json!({ "status": { "phase": "Running", "podIP": ip, "podIPs": [{ "ip": ip }] } });
        pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
    for (pod, value) in [("win-0", None), ("renamed-1", Some("nonsense")), ("win-2", None)] {
        process.kill("KILL").await;
        process.ends().await;
        let lost = json!({ "metadata": { "annotations": { ADDRESS: value } } });
        pods.patch(pod, &PatchParams::default(), &Patch::Merge(lost)).await.unwrap();
        process = start().await;
        process.ready().await;
        eventually("the annotation is written again", async || addresses(&client).await == before).await;
        assert_eq!(ec2.blocks(&interface).await.len(), 2);
    }
    maps.delete("amazon-vpc-cni", &DeleteParams::default()).await.unwrap();
    eventually("its deletion is reported", async || reasons(&client).await.contains("OptionsDeleted")).await;
    create_pods(&client, "renamed", 10..12).await;
    eventually("new pods have an address", async || addresses(&client).await.len() == 22).await;
    let reasons = reasons(&client).await;
    assert!(reasons.contains("AddressRestored"), "{reasons:?}");
    let wrong = ["ForeignAddress", "AddressShared", "AddressLost", "AddressDrift"];
    assert!(!wrong.iter().any(|reason| reasons.contains(*reason)), "{reasons:?}");
    assert!(process.terminate().await.success());
}

/// Returns the reasons of all Events.
async fn reasons(client: &Client) -> BTreeSet<String> {
    let events = Api::<Event>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    events.items.into_iter().filter_map(|event| event.reason).collect()
}
