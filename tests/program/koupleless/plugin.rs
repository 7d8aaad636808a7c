//! `kubectl staffetta` and objects that another replica than the leader handles.

use std::os::unix::fs::symlink;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta_apiserver::{Fault, Requests};
use tempfile::TempDir;

use super::port_forward::PortForward;
use super::world::{Replica, World};
use crate::process::{Process, eventually};

const NODES: [&str; 2] = ["vnode.base-1.dev", "vnode.base-2.dev"];
const OTHER: &str = "staffetta-other";

/// Creates a pod of a replica, whose admin server is that of the process.
async fn pod_of(world: &World, front: &PortForward, name: &str, process: &Process) {
    let pod = json!({ "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "staffetta" } },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    world.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let running = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    world.pods().patch_status(name, &PatchParams::default(), &running).await.unwrap();
    front.connect(name, process.admin().rsplit_once(':').unwrap().1.parse().unwrap());
}

/// A user with the plug-in, and two replicas in pods of the cluster.
struct Operator {
    leader: Replica,
    other: Replica,
    folder: TempDir,
    _front: PortForward,
}

impl Operator {
    async fn new(world: &World) -> Self {
        let (leader, other) = (world.replica(0).await, world.replica(1).await);
        let front = PortForward::start(&world.server).await;
        let leases: Api<Lease> = Api::namespaced(world.client.clone(), "default");
        let lease = leases.get("staffetta").await.unwrap();
        let holder = lease.spec.unwrap().holder_identity.unwrap();
        assert!(holder.starts_with(&leader.identity().await), "{holder}");
        pod_of(world, &front, holder.rsplit_once('_').unwrap().0, &leader.process).await;
        pod_of(world, &front, OTHER, &other.process).await;
        let folder = tempfile::tempdir().unwrap();
        symlink(env!("CARGO_BIN_EXE_staffetta"), folder.path().join("kubectl-staffetta")).unwrap();
        std::fs::write(folder.path().join("user"), front.kubeconfig()).unwrap();
        Self { leader, other, folder, _front: front }
    }

    /// The exit code of the plug-in, and what it said.
    async fn plugin(&self, line: &str) -> (i32, String) {
        let output = tokio::process::Command::new(self.folder.path().join("kubectl-staffetta"))
            .args(line.split(' '))
            .args(["--controller-namespace", "default"])
            .env("KUBECONFIG", self.folder.path().join("user"))
            .env_remove("KUBERNETES_SERVICE_HOST")
            .output()
            .await
            .unwrap();
        let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code().unwrap(), said + &complained)
    }
}

#[tokio::test]
async fn the_plug_in_asks_the_replica_that_holds_the_lease_of_the_node_of_a_pod() {
    let world = World::new(2).await;
    let mut operator = Operator::new(&world).await;
    let _bases = (world.base(1).await, world.base(2).await);
    let other_identity = operator.other.identity().await;
    let mut node = None;
    eventually("each replica holds a node", async || {
        let holders = [world.holder(NODES[0]).await, world.holder(NODES[1]).await];
        node =
            NODES.iter().zip(&holders).find(|(_, holder)| **holder == other_identity).map(|(node, _)| *node);
        node.is_some() && holders[0] != holders[1] && !holders.contains(&String::new())
    })
    .await;
    let node = node.unwrap();
    world.node(node, "True").await;

    world.pod("web", node, "1").await;
    let (code, said) = operator.plugin("status pod/web --wait --timeout 60s").await;
    assert!(code == 0 && said.contains("the object is handled"), "{said}");

    world.pod_with("odd", node, &json!([{ "name": "odd", "image": "https://example.com/a.jar" }])).await;
    eventually("the pod says what is missing", async || {
        let pod = world.pods().get("odd").await.unwrap();
        serde_json::to_string(&pod.status).unwrap().contains("BIZ_VERSION")
    })
    .await;
    let (code, said) = operator.plugin("status pod/odd --wait --timeout 1s").await;
    assert!(code == 1 && said.contains("the object was not handled within 1s"), "{said}");
    assert!(
        said.contains(&format!("  replica    {other_identity}\n")) && said.contains("BIZ_VERSION"),
        "{said}"
    );
    let (code, said) = operator.plugin("explain pod/odd").await;
    assert!(code == 0 && said.contains("\n  error      ") && said.contains("BIZ_VERSION"), "{said}");
    assert!(said.contains(&format!("\n  replica    {other_identity}\n")), "{said}");
    let (_, said) = operator.plugin("status -o wide").await;
    assert!(said.lines().any(|line| line.starts_with("vnode ") && line.contains("  odd  ")), "{said}");

    // Without its answer, nobody knows what it has left to do.
    operator.other.process.kill("KILL").await;
    operator.other.process.ends().await;
    let (code, said) = operator.plugin("status pod/web --wait --timeout 1s").await;
    assert!(code == 1 && said.contains(&format!("unmet: replica {OTHER}: ")), "{said}");
    assert!(said.contains("does not listen at port") && said.contains("it may hold Leases"), "{said}");
}

#[tokio::test]
async fn each_replica_checks_its_own_rights_and_its_own_bases() {
    let world = World::new(2).await;
    let operator = Operator::new(&world).await;
    let identities = [operator.leader.identity().await, operator.other.identity().await];
    let _bases = [world.base(1).await, world.base(2).await, world.base(3).await];
    let mut held = [0; 2];
    eventually("one replica holds two nodes, and the other one the third", async || {
        held = [0; 2];
        for number in 1..=3 {
            let holder = world.holder(&format!("vnode.base-{number}.dev")).await;
            held.iter_mut()
                .zip(&identities)
                .filter(|(_, one)| **one == holder)
                .for_each(|(held, _)| *held += 1);
        }
        held.iter().sum::<usize>() == 3 && held[0] != held[1] && !held.contains(&0)
    })
    .await;
    for number in 1..=3 {
        world.node(&format!("vnode.base-{number}.dev"), "True").await;
    }
    // The leader may do everything.
    let review =
        Requests::any().verb("create").resource("selfsubjectaccessreviews").saying("\"deployments\"");
    let denied = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "metadata": {}, "spec": {}, "status": { "allowed": false } });
    let denied = Fault::Answer { code: 201, body: denied.to_string() };
    operator.other.proxy.faults().inject(review, usize::MAX, denied);

    // A base that has just changed its replica answers a moment later.
    eventually("each replica knows its bases", async || {
        let (_, said) = operator.plugin("check -o json").await;
        held.iter().all(|held| said.contains(&format!("{held} of {held} answer")))
    })
    .await;
    let (code, said) = operator.plugin("check -o json").await;
    assert_eq!(code, 1, "{said}");
    let report = said.split("\nerror: ").next().unwrap();
    let report: Value = serde_json::from_str(report).unwrap_or_else(|error| panic!("{error}: {said}"));
    let find = |category: &str, check: &str| {
        let checks = report["checks"].as_array().unwrap().iter();
        let mut found = checks.filter(|found| found["category"] == category && found["check"] == check);
        let only = found.next().unwrap_or_else(|| panic!("{category}: {check}: {said}"));
        assert!(found.next().is_none(), "{category}: {check}: {said}");
        format!("{} {}", only["result"].as_str().unwrap(), only["detail"].as_str().unwrap())
    };
    let of_other = |category: &str| format!("{category} of the replica {OTHER}");
    for (category, held) in [("vnode".to_owned(), held[0]), (of_other("vnode"), held[1])] {
        assert_eq!(find(&category, "the bases are known"), format!("ok {held} of {held} answer"));
    }
    let rights = "the handler vnode has its rights";
    assert_eq!(find("rights", rights), "ok ");
    assert_eq!(
        find(&of_other("rights"), rights),
        "failed it may not list deployments.apps, watch deployments.apps"
    );
    assert_eq!(find("rights", "the leader election has its rights"), "ok ");
    let elects = |found: &&Value| found["check"] == "the leader election has its rights";
    assert_eq!(report["checks"].as_array().unwrap().iter().filter(elects).count(), 1, "one of them leads");
}
