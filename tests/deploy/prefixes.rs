//! The rights of the handler `prefix_ip` on a real cluster.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};

use serde_json::json;

use crate::cluster::{CLUSTER, may_only};
use crate::process::eventually;
use crate::rights::{self, Rights, at_home, of_handlers};
use crate::site::Site;

const ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// SITE stands for a name that nobody else has.
const OBJECTS: &str = r"
apiVersion: v1
kind: Node
metadata: {name: SITE, labels: {kubernetes.io/os: windows}}
spec: {providerID: 'aws:///eu-west-1a/i-SITE'}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  nodeName: SITE
  tolerations: [{operator: Exists}]
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: web
    image: 'web:1'
    resources: {limits: {vpc.amazonaws.com/PrivateIPv4Address: 1}, requests: {vpc.amazonaws.com/PrivateIPv4Address: 1}}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
";

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn addresses_of_nodes_take_the_rights_of_their_component_and_no_more_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let kubernetes = json!({ "enabled_handlers": ["prefix_ip"], "prefix_provider_driver": "memory" });
    let values = json!({ "config": { "kubernetes": kubernetes }, "webhook": { "enabled": false } });
    let site = Site::apply("prefixes", &values).await;
    let account = site.account().await;
    let token = site.token(&account, "token").await;
    site.put(&token);
    let mut process = site.run("only").await;
    process.ready().await;
    let maps = Api::<ConfigMap>::namespaced(site.client.clone(), "kube-system");
    let map = json!({
        "metadata": { "name": "amazon-vpc-cni" },
        "data": { "enable-windows-ipam": "true", "enable-windows-prefix-delegation": "true" },
    });
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    site.kubectl.apply(&OBJECTS.replace("SITE", &site.namespace)).await;
    eventually("the node has its capacity", async || {
        let node = Api::<Node>::all(site.client.clone()).get_status(&site.namespace).await.unwrap();
        let capacity = node.status.and_then(|status| status.capacity?.remove(ADDRESS));
        capacity.is_some_and(|capacity| capacity.0 == "144")
    })
    .await;
    eventually("the pod has its address", async || {
        let pods = Api::<Pod>::namespaced(site.client.clone(), &site.namespace);
        pods.get("web").await.unwrap().annotations().contains_key(ADDRESS)
    })
    .await;

    let (expected, home) = (of_handlers(&["prefix_ip"]), at_home(&[]));
    let client = site.client_of(&token).await;
    may_only(&site, &client, "default", &expected, &home).await;
    site.outlasts_its_watches(&account, &expected).await;
    site.kubectl.run(&["delete", "pod/web", "--force", "--grace-period=0"]).await;
    site.kubectl.run(&["delete", "node", &site.namespace]).await;
    maps.delete("amazon-vpc-cni", &DeleteParams::default()).await.unwrap();
    assert!(process.terminate().await.success());
    let account = format!("system:serviceaccount:{}:{account}", site.namespace);
    let all: Rights = expected.union(&home).cloned().collect();
    let used = rights::used(&site.kubeconfig, &account, &all);
    site.remove().await;
    // Nothing failed, so there was no Event; and nobody stood by.
    let unasked = ["events", "watch leases.coordination.k8s.io staffetta"];
    let superfluous: Vec<_> =
        all.difference(&used).filter(|right| !unasked.iter().any(|word| right.contains(word))).collect();
    assert!(superfluous.is_empty(), "rights that nobody used: {superfluous:?}");
}
