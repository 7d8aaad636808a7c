//! `kubectl staffetta` and objects that another replica than the leader handles.

use std::os::unix::fs::symlink;

use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::port_forward::PortForward;
use crate::process::{Process, eventually};
use crate::world::World;

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

#[tokio::test]
async fn the_plug_in_asks_the_replica_that_holds_the_lease_of_the_node_of_a_pod() {
    let world = World::new(2).await;
    let leader = world.replica(0).await;
    let mut other = world.replica(1).await;
    let front = PortForward::start(&world.server).await;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(world.client.clone(), "default");
    let lease = leases.get("staffetta").await.unwrap();
    let holder = lease.spec.unwrap().holder_identity.unwrap();
    assert!(holder.starts_with(&leader.identity().await), "{holder}");
    pod_of(&world, &front, holder.rsplit_once('_').unwrap().0, &leader.process).await;
    pod_of(&world, &front, OTHER, &other.process).await;
    let _bases = (world.base(1).await, world.base(2).await);
    let other_identity = other.identity().await;
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

    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("kubectl-staffetta");
    symlink(env!("CARGO_BIN_EXE_staffetta"), &program).unwrap();
    std::fs::write(folder.path().join("user"), front.kubeconfig()).unwrap();
    let plugin = async |line: &str| {
        let output = tokio::process::Command::new(&program)
            .args(line.split(' '))
            .args(["--controller-namespace", "default"])
            .env("KUBECONFIG", folder.path().join("user"))
            .env_remove("KUBERNETES_SERVICE_HOST")
            .output()
            .await
            .unwrap();
        let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code().unwrap(), said + &complained)
    };

    world.pod("web", node, "1").await;
    let (code, said) = plugin("status pod/web --wait --timeout 60s").await;
    assert!(code == 0 && said.contains("the object is handled"), "{said}");

    world.pod_with("odd", node, &json!([{ "name": "odd", "image": "https://example.com/a.jar" }])).await;
    eventually("the pod says what is missing", async || {
        let pod = world.pods().get("odd").await.unwrap();
        serde_json::to_string(&pod.status).unwrap().contains("BIZ_VERSION")
    })
    .await;
    let (code, said) = plugin("status pod/odd --wait --timeout 1s").await;
    assert!(code == 1 && said.contains("the object was not handled within 1s"), "{said}");
    assert!(
        said.contains(&format!("  replica   {other_identity}\n")) && said.contains("BIZ_VERSION"),
        "{said}"
    );
    let (code, said) = plugin("explain pod/odd").await;
    assert!(code == 0 && said.contains("\n  error      ") && said.contains("BIZ_VERSION"), "{said}");
    assert!(said.contains(&format!("\n  replica    {other_identity}\n")), "{said}");
    let (_, said) = plugin("status -o wide").await;
    assert!(said.lines().any(|line| line.starts_with("vnode ") && line.contains("  odd  ")), "{said}");

    // Without its answer, nobody knows what it has left to do.
    other.process.signal("KILL").await;
    other.process.ends().await;
    let (code, said) = plugin("status pod/web --wait --timeout 1s").await;
    assert!(code == 1 && said.contains(&format!("unmet: replica {OTHER}: ")), "{said}");
    assert!(said.contains("does not respond"), "{said}");
}
