//! `kubectl staffetta check --pre` on a real API server: what a user is told before an installation.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};
use staffetta_apiserver::testing::real_kubeconfig;
use tokio::process::Command;

use crate::PROGRAM;
use crate::cluster::CLUSTER;
use crate::kubectl::Kubectl;
use crate::process::eventually;
use crate::site::{Site, simulated};

/// The namespace of the release to be. It does not exist.
const NAMESPACE: &str = "check-pre";

/// Runs the check with this kubeconfig, and returns its exit code and its report.
pub(crate) async fn check_pre(kubeconfig: &Path, arguments: &[&str]) -> (i32, String) {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-staffetta");
    symlink(PROGRAM, &plugin).unwrap();
    let mut command = Command::new(plugin);
    command.args(["check", "--pre", "--controller-namespace", NAMESPACE, "--kubeconfig"]).arg(kubeconfig);
    let output = command.args(arguments).output().await.unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// Returns the lines of the report for `check` with this result, with the remedy.
pub(crate) fn finding<'r>(report: &'r str, result: &str, check: &str) -> &'r str {
    let start = report.find(&format!("  {result:8} {check}"));
    let rest = &report[start.unwrap_or_else(|| panic!("no `{result} {check}`: {report}"))..];
    let end = rest.match_indices('\n').find(|(at, _)| !rest[at + 1..].starts_with("           "));
    &rest[..end.unwrap().0]
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_cluster_is_checked_before_the_installation_with_the_rights_of_the_user_on_a_real_server() {
    let _exclusive = CLUSTER.lock().await;
    let kubeconfig = real_kubeconfig();
    let admin = Kubectl::find(&kubeconfig, "default");
    eventually("no release is left of another test", async || {
        admin.attempt(&["get", "clusterrole", "staffetta"]).await.is_err()
    })
    .await;
    let (code, report) = check_pre(&kubeconfig, &[]).await;
    assert_eq!(code, 0, "{report}");
    assert!(report.ends_with(" ok, 0 with a warning, 0 failed\n"), "{report}");
    for check in [
        "the API server answers, and is Kubernetes 1.30 or newer: v1.",
        "the API versions in use are served",
        "you may create namespaces",
        "you may create deployments.apps",
        "you may create customresourcedefinitions.apiextensions.k8s.io",
        "you may grant the controller its rights",
        "no other release is installed",
        "the kind CiscoDevice can be installed",
        "Kuryr's controller does not run",
    ] {
        finding(&report, "ok", check);
    }

    let folder = tempfile::tempdir().unwrap();
    let user = folder.path().join("user");
    let site = Site::apply("check", &simulated(&["vif"])).await;
    fs::write(&user, without_definitions(&site, &admin).await).unwrap();
    eventually("the user has the rights", async || check_pre(&user, &["--preset", "openstack"]).await.0 == 0)
        .await;
    let (code, report) = check_pre(&user, &[]).await;
    assert_eq!(code, 1, "{report}");
    let denied = finding(
        &report,
        "FAILED",
        "you may create customresourcedefinitions.apiextensions.k8s.io: you may not",
    );
    assert!(denied.contains("remedy: ") && denied.contains("crds.install=false"), "{denied}");
    let grants =
        finding(&report, "WARNING", "you may grant the controller its rights: you may not `escalate`");
    assert!(grants.contains("remedy: let an administrator install"), "{grants}");
    let other =
        finding(&report, "WARNING", "no other release is installed: the ClusterRole `staffetta` exists");
    assert!(other.contains("a second one would handle the same objects"), "{other}");
    let (_, document) = check_pre(&user, &["-o", "json"]).await;
    let document: Value = serde_json::from_str(&document).unwrap();
    let failed = |check: &&Value| {
        check["result"] == "failed" && check["check"].as_str().unwrap().contains("definitions")
    };
    assert!(document["checks"].as_array().unwrap().iter().any(|check| failed(&check)), "{document}");

    admin.run(&["delete", "clusterrole,clusterrolebinding", "check-pre"]).await;
    site.remove().await;
}

/// Returns the kubeconfig of a user of the namespace of `site` who may create and read everything except definitions of kinds.
async fn without_definitions(site: &Site, admin: &Kubectl) -> String {
    let rule = |group: &str, resources: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": ["create", "get", "list"] });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": NAMESPACE },
        "rules": [
            rule("", &["*"]), rule("apps", &["*"]), rule("batch", &["*"]), rule("policy", &["*"]), rule("networking.k8s.io", &["*"]),
            rule("rbac.authorization.k8s.io", &["*"]), rule("admissionregistration.k8s.io", &["*"]),
            { "apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["get"] },
        ] });
    admin.apply(&role.to_string()).await;
    let subject = format!("--serviceaccount={}:default", site.namespace);
    let role = format!("--clusterrole={NAMESPACE}");
    admin.run(&["create", "clusterrolebinding", NAMESPACE, &role, &subject]).await;
    let token = site.token("default", "check").await;
    site.kubeconfig_of(json!({ "token": token })).await
}
