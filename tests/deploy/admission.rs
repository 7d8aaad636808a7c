//! The admission policy in etc/deploy reserves the controller's metadata to the controller.

use std::fs;

use serde_json::json;

use crate::cluster::CLUSTER;
use crate::kubectl::Kubectl;
use crate::process::eventually;
use crate::site::{Site, simulated};

/// The objects of a tenant. NAME stands for the namespace, and for a node of the same name.
const OBJECTS: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: NAME, finalizers: [staffetta.dev/namespace]}
---
apiVersion: v1
kind: Node
metadata: {name: NAME, labels: {staffetta.dev/handler: app_hosting}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: NAME, annotations: {openstack.org/kuryr-vif: '{}'}, finalizers: [staffetta.dev/vif]}
spec: {automountServiceAccountToken: false, containers: [{name: web, image: 'web:1'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: NAME}
spec: {automountServiceAccountToken: false, containers: [{name: web, image: 'web:1'}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: NAME, finalizers: [staffetta.dev/lb]}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: web, namespace: NAME}
";

const VIF: &str = r#"{"metadata":{"annotations":{"openstack.org/kuryr-vif":"{\"forged\":1}"}}}"#;

/// The arguments of kubectl for the tenant.
const TENANT: &[&str] = &["--as=tenant"];

/// The arguments of kubectl for the administrator of the cluster, who is in the group `system:masters`.
const ADMIN: &[&str] = &[];

/// The name of a user that needs escapes in the policy.
const ODD: &str = "a\"b\\c<d>";

/// The name of the user of a kubelet, whose node is called `staffetta-own`.
const KUBELET: &str = "system:node:staffetta-own";

/// A tenant with all rights that RBAC can give, in a namespace of its own.
struct Tenant {
    admin: Kubectl,
    namespace: String,
    files: tempfile::TempDir,
}

impl Tenant {
    async fn create(site: &Site) -> Self {
        let namespace = format!("{}-tenant", site.namespace);
        let admin = Kubectl::find(&site.kubeconfig, &namespace);
        admin.apply(&OBJECTS.replace("NAME", &namespace)).await;
        let account = format!("--serviceaccount={}:{}", site.namespace, site.account().await);
        let odd = format!("--user={ODD}");
        let kubelet = format!("--user={KUBELET}");
        let subjects = ["--clusterrole=cluster-admin", "--user=tenant", &odd, &account, &kubelet];
        admin.run(&[&["create", "clusterrolebinding", &namespace], &subjects[..]].concat()).await;
        Self { admin, namespace, files: tempfile::tempdir().unwrap() }
    }

    /// Asserts that the policy rejects the command of this user.
    async fn is_denied(&self, arguments: &[&str]) {
        let error = self.admin.fails(&[arguments, TENANT].concat()).await;
        assert!(error.contains("is reserved to staffetta"), "{arguments:?}: {error}");
    }

    /// Changes a reserved annotation of a pod, without storing the change. Returns the error if that is rejected.
    async fn forges(&self, user: &[&str]) -> Result<String, String> {
        let patch = ["patch", "pod", "web", "--patch", VIF, "--dry-run=server"];
        self.admin.attempt(&[&patch, user].concat()).await
    }

    /// Waits until the policy rejects a reserved annotation of this user.
    async fn cannot_forge(&self, user: &[&str]) {
        eventually("the policy is in force", async || {
            self.forges(user).await.is_err_and(|error| error.contains("is reserved to staffetta"))
        })
        .await;
    }

    async fn may(&self, arguments: &[&str]) {
        self.admin.run(&[arguments, TENANT].concat()).await;
    }

    /// Writes a manifest to a file and returns the path.
    fn file(&self, name: &str, manifest: &str) -> String {
        let path = self.files.path().join(name);
        fs::write(&path, manifest.replace("NAME", &self.namespace)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    async fn remove(self) {
        self.admin.run(&["delete", "clusterrolebinding", &self.namespace]).await;
        let unguard = r#"{"metadata":{"finalizers":null}}"#;
        for object in ["pod/web", "service/web"] {
            self.admin.run(&["patch", object, "--type=merge", "--patch", unguard]).await;
        }
        self.admin.run(&["patch", "namespace", &self.namespace, "--type=merge", "--patch", unguard]).await;
        self.admin.run(&["delete", "namespace", &self.namespace, "--wait=false"]).await;
        self.admin.run(&["delete", "node", &self.namespace]).await;
    }
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn only_the_controller_and_named_accounts_write_reserved_metadata_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let site = Site::apply("admission", &simulated(&["vif"])).await;
    let tenant = Tenant::create(&site).await;
    tenant.cannot_forge(TENANT).await;
    tenant.forges(ADMIN).await.unwrap();

    everything_reserved_is_denied(&tenant).await;
    everything_else_is_allowed(&tenant).await;
    // No handler of this installation reads it.
    tenant.may(&["annotate", "pod/plain", "vpc.amazonaws.com/PrivateIPv4Address=10.0.0.16/32"]).await;
    a_kubelet_labels_only_the_node_that_it_creates(&tenant).await;

    // The controller's account.
    let account = &*format!("--as=system:serviceaccount:{}:{}", site.namespace, site.account().await);
    tenant.admin.run(&["patch", "pod", "plain", "--patch", VIF, account]).await;
    let other = format!("--as=system:serviceaccount:{}:staffetta", tenant.namespace);
    let error =
        tenant.admin.fails(&["annotate", "service", "web", "openstack.org/kuryr-lbaas-spec=x", &other]).await;
    assert!(error.contains("forbidden"), "{error}");

    // A second installation, with accounts that may write too.
    site.remove().await;
    eventually("the policy is gone", async || tenant.forges(TENANT).await.is_ok()).await;
    let mut values = simulated(&["vif", "prefix_ip"]);
    values["admission"] = json!({ "users": [ODD], "groups": [] });
    values["webhook"] = json!({ "enabled": false });
    let site = Site::apply("admission-again", &values).await;
    tenant.cannot_forge(&[account]).await;
    tenant.cannot_forge(ADMIN).await;
    tenant.forges(&[&format!("--as={ODD}")]).await.unwrap();
    tenant.admin.run(&["annotate", "pod", "web", "staffetta.dev/a=1", &format!("--as={ODD}")]).await;
    tenant.is_denied(&["annotate", "pod/plain", "vpc.amazonaws.com/PrivateIPv4Address-"]).await;

    // First the policy, which does not let the administrator remove finalizers any more.
    site.remove().await;
    eventually("the policy is gone", async || tenant.forges(ADMIN).await.is_ok()).await;
    tenant.remove().await;
}

async fn everything_reserved_is_denied(tenant: &Tenant) {
    for object in ["pod/plain", "pod/web", "service/web", "endpoints/web"] {
        for name in
            ["openstack.org/kuryr-vif", "openstack.org/kuryr-lbaas-spec", "openstack.org/kuryr-lbaas-state"]
        {
            tenant.is_denied(&["annotate", "--overwrite", object, &format!("{name}=forged")]).await;
        }
    }
    tenant.is_denied(&["annotate", "pod/web", "openstack.org/kuryr-vif-"]).await;
    for object in ["pod/web", "service/web"] {
        let none = r#"{"metadata":{"finalizers":null}}"#;
        tenant.is_denied(&["patch", object, "--type=merge", "--patch", none]).await;
    }
    let namespace = format!("namespace/{}", tenant.namespace);
    let node = format!("node/{}", tenant.namespace);
    for object in [&namespace, &node] {
        tenant.is_denied(&["annotate", object, "staffetta.dev/namespace-network={}"]).await;
        tenant.is_denied(&["label", "--overwrite", object, "staffetta.dev/handler=other"]).await;
    }
    tenant.is_denied(&["label", &node, "staffetta.dev/handler-"]).await;

    for object in ["pod/plain", "service/web", &node, &namespace] {
        tenant.is_denied(&["patch", object, "--subresource=status", "--type=merge", "--patch", VIF]).await;
    }
    let binding = r#"{"apiVersion":"v1","kind":"Binding","metadata":{"name":"plain","namespace":"NAME",
        "annotations":{"openstack.org/kuryr-vif":"{}"}},"target":{"apiVersion":"v1","kind":"Node","name":"NAME"}}"#;
    let file = tenant.file("binding.json", binding);
    let path = format!("/api/v1/namespaces/{}/pods/plain/binding", tenant.namespace);
    tenant.is_denied(&["create", "--raw", &path, "-f", &file]).await;
    let path = format!("/api/v1/namespaces/{}/bindings", tenant.namespace);
    tenant.is_denied(&["create", "--raw", &path, "-f", &file]).await;
    let pod = OBJECTS.split("---").nth(2).unwrap().replace("name: web, namespace", "name: forged, namespace");
    let file = tenant.file("pod.yaml", &pod);
    tenant.is_denied(&["create", "-f", &file]).await;
}

async fn a_kubelet_labels_only_the_node_that_it_creates(tenant: &Tenant) {
    let user = format!("--as={KUBELET}");
    let kubelet = [user.as_str(), "--as-group=system:nodes"];
    let node = |name: &str| {
        let node = json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { "staffetta.dev/handler": "prefix_ip" } } });
        tenant.file(&format!("{name}.json"), &node.to_string())
    };
    let own = node("staffetta-own");
    for refused in [
        &["create", "-f", &node("staffetta-foreign"), kubelet[0], kubelet[1]][..],
        &["create", "-f", &own, kubelet[0]],
    ] {
        let error = tenant.admin.fails(refused).await;
        assert!(error.contains("is reserved to staffetta"), "{refused:?}: {error}");
    }
    tenant.admin.run(&["create", "-f", &own, kubelet[0], kubelet[1]]).await;
    let again = ["label", "node/staffetta-own", "staffetta.dev/handler-", kubelet[0], kubelet[1]];
    let error = tenant.admin.fails(&again).await;
    assert!(error.contains("is reserved to staffetta"), "{error}");
    tenant.admin.run(&["delete", "node", "staffetta-own"]).await;
}

async fn everything_else_is_allowed(tenant: &Tenant) {
    let node = format!("node/{}", tenant.namespace);
    let namespace = format!("namespace/{}", tenant.namespace);
    for object in ["pod/web", "service/web", &node, &namespace] {
        tenant.may(&["annotate", object, "openstack.org/kuryr-project=team"]).await;
        tenant.may(&["label", object, "tier=web"]).await;
        tenant.may(&["annotate", object, "staffetta.dev/managed=false"]).await;
    }
    let status = r#"{"status":{"conditions":[{"type":"Seen","status":"True"}]}}"#;
    tenant.may(&["patch", "pod/web", "--subresource=status", "--patch", status]).await;
    tenant.may(&["run", "more", "--image=web:1"]).await;
    let binding = r#"{"apiVersion":"v1","kind":"Binding","metadata":{"name":"more","namespace":"NAME"},
        "target":{"apiVersion":"v1","kind":"Node","name":"NAME"}}"#;
    let file = tenant.file("free-binding.json", binding);
    let path = format!("/api/v1/namespaces/{}/pods/more/binding", tenant.namespace);
    tenant.may(&["create", "--raw", &path, "-f", &file]).await;
    tenant.may(&["delete", "pod/more", "--force", "--grace-period=0"]).await;
}
