//! Applies etc/deploy on a real cluster under names of this test, and runs the program as its pods would.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::config::Kubeconfig;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};
use staffetta_apiserver::testing::real_kubeconfig;
use tempfile::TempDir;

use crate::container::Container;
use crate::kubectl::Kubectl;
use crate::process::{Process, eventually};
use crate::{PROGRAM, folder};

/// Short delays: the simulated cloud is fast, and failures are retried at once.
const QUICK: &str = r#"
[memory]
activation_delay_ms = 20
load_balancer_delay_ms = 10
[relay]
retry_interval = "100ms"
failed_resync = "1s"
"#;

pub(crate) struct Site {
    /// The administrator's, in the namespace of the site.
    pub(crate) kubectl: Kubectl,
    /// The administrator's.
    pub(crate) client: Client,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) namespace: String,
    /// The kustomization that gives it its names. Beside it: what the pod would find in its file system.
    overlay: TempDir,
}

impl Site {
    /// Applies the kustomization in `path` below etc/deploy, with `components` on top of it, as the site `name`; none where
    /// there is no cluster.
    pub(crate) async fn apply(name: &str, path: &str, components: &[&str]) -> Self {
        let kubeconfig = real_kubeconfig();
        let namespace = format!("deploy-{name}-{}", std::process::id());
        let kubectl = Kubectl::find(&kubeconfig, &namespace);
        let overlay = overlay(&namespace, path, components);
        let of_all = Kubectl::find(&kubeconfig, "");
        of_all.run(&["apply", "--kustomize", overlay.path().to_str().unwrap()]).await;
        let client = staffetta::connect::client(Some(&kubeconfig)).await.unwrap();
        Self { kubectl, client, kubeconfig, namespace, overlay }
    }

    /// The name of the service account of the Deployment.
    pub(crate) async fn account(&self) -> String {
        let pod = self.deployment().await.spec.unwrap().template.spec.unwrap();
        pod.service_account_name.unwrap()
    }

    async fn deployment(&self) -> Deployment {
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), &self.namespace);
        deployments.get(&format!("staffetta-{}", self.namespace)).await.unwrap()
    }

    /// The file that the kubelet would put before the program.
    async fn configuration(&self) -> String {
        let pod = self.deployment().await.spec.unwrap().template.spec.unwrap();
        let name = pod.volumes.unwrap().remove(0).config_map.unwrap().name;
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        maps.get(&name).await.unwrap().data.unwrap().remove("staffetta.toml").unwrap()
    }

    /// A token of `account` that is good for as long as the Secret `bound` exists, which is made for it.
    pub(crate) async fn token(&self, account: &str, bound: &str) -> String {
        let secret = Secret {
            metadata: ObjectMeta { name: Some(bound.to_owned()), ..ObjectMeta::default() },
            ..Secret::default()
        };
        let secret = self.secrets().create(&PostParams::default(), &secret).await.unwrap();
        let spec = TokenRequestSpec {
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Secret".into()),
                name: Some(bound.to_owned()),
                uid: secret.meta().uid.clone(),
            }),
            expiration_seconds: Some(600),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let accounts = Api::<ServiceAccount>::namespaced(self.client.clone(), &self.namespace);
        eventually("the service account exists", async || accounts.get_opt(account).await.unwrap().is_some())
            .await;
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        answer.status.unwrap().token
    }

    /// Makes the tokens void that are bound to a Secret.
    pub(crate) async fn void(&self, bound: &str) {
        self.secrets().delete(bound, &DeleteParams::default()).await.unwrap();
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Puts `token` where the program finds it, as the kubelet does: at once, or not at all.
    pub(crate) fn put(&self, token: &str) {
        let next = self.overlay.path().join("next-token");
        fs::write(&next, token).unwrap();
        fs::rename(next, self.token_file()).unwrap();
    }

    fn token_file(&self) -> PathBuf {
        self.overlay.path().join("token")
    }

    /// A client that sends `token` and nothing else of the administrator's.
    pub(crate) async fn client_of(&self, token: &str) -> Client {
        let path = self.overlay.path().join("other-kubeconfig");
        fs::write(&path, self.kubeconfig_of(json!({ "token": token })).await).unwrap();
        staffetta::connect::client(Some(&path)).await.unwrap()
    }

    /// Starts the program with the configuration and the service account of the site, whose token is in its file.
    pub(crate) async fn run(&self, replica: &str) -> Process {
        self.run_with(replica, "", "").await
    }

    /// The same with other options in the section `[kubernetes]`, and more sections.
    pub(crate) async fn run_with(&self, replica: &str, options: &str, sections: &str) -> Process {
        const SECTION: &str = "[kubernetes]\n";
        let with_more = |configuration: String| {
            assert!(configuration.contains(SECTION));
            let name = |line: &str| line.split(" = ").next().unwrap_or_default().to_owned();
            let replaced: Vec<_> = options.lines().map(name).collect();
            let kept =
                configuration.lines().filter(|line| line.is_empty() || !replaced.contains(&name(line)));
            let configuration = kept.collect::<Vec<_>>().join("\n") + "\n";
            configuration.replacen(SECTION, &format!("{SECTION}{options}\n"), 1) + sections
        };
        self.run_changed(replica, with_more).await
    }

    /// The same with a configuration that was changed.
    pub(crate) async fn run_changed(&self, replica: &str, change: impl FnOnce(String) -> String) -> Process {
        let home = self.overlay.path().join(replica);
        fs::create_dir(&home).unwrap();
        let configuration = change(self.configuration().await) + QUICK;
        let kubeconfig = self.kubeconfig_of(json!({ "tokenFile": self.token_file() })).await;
        Process::start(PROGRAM.as_ref(), &home, &configuration, &kubeconfig).await
    }

    /// Starts the program from its image alone, with what the kubelet gives to a pod of the site.
    pub(crate) async fn run_in_pod(&self, container: &Container) -> Process {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let authority = || async { maps.get_opt("kube-root-ca.crt").await.unwrap() };
        eventually("the cluster has published its certificate", async || authority().await.is_some()).await;
        let mut authority = authority().await.unwrap().data.unwrap();
        let files = [
            ("ca.crt", authority.remove("ca.crt").unwrap()),
            ("namespace", self.namespace.clone()),
            ("token", fs::read_to_string(self.token_file()).unwrap()),
        ];
        for (name, content) in files {
            container.put(&format!("/var/run/secrets/kubernetes.io/serviceaccount/{name}"), &content);
        }
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.as_ref().unwrap();
        let server: http::Uri = server.parse().unwrap();
        let server = (server.host().unwrap(), server.port_u16().unwrap());
        let configuration = self.configuration().await + QUICK;
        Process::start_in_pod(&container.program(), container.home(), &configuration, server).await
    }

    async fn kubeconfig_of(&self, user: Value) -> String {
        let shown = self.kubectl.run(&["config", "view", "--raw", "--minify", "--output", "json"]).await;
        let mut kubeconfig: Value = serde_json::from_str(&shown).unwrap();
        kubeconfig["users"][0]["user"] = user;
        kubeconfig["contexts"][0]["context"]["namespace"] = json!(self.namespace);
        kubeconfig.to_string()
    }

    /// Takes away what was applied, and all that was made in the namespace.
    pub(crate) async fn remove(self) {
        let overlay = self.overlay.path().to_str().unwrap();
        let of_all = Kubectl::find(&self.kubeconfig, "");
        of_all.run(&["delete", "--kustomize", overlay, "--wait=false"]).await;
    }
}

/// The components that refer to the program's namespace, and so must be in a kustomization above the one that sets it.
const ABOVE: [&str; 3] = ["handlers/app_hosting", "handlers/vnode", "admission"];

/// A folder with a kustomization of the one in `path` below etc/deploy and of `components`, all under names of its own.
pub(crate) fn overlay(namespace: &str, path: &str, components: &[&str]) -> TempDir {
    let overlay = tempfile::tempdir().unwrap();
    let (above, others): (Vec<_>, Vec<_>) =
        components.iter().partition(|component| ABOVE.contains(*component));
    let named = if above.is_empty() { overlay.path().to_owned() } else { overlay.path().join("named") };
    fs::create_dir_all(&named).unwrap();
    let below = |home: &Path, paths: &[&str]| {
        let home = home.canonicalize().unwrap();
        paths.iter().map(|path| relative(&home, &folder().join(path))).collect::<Vec<_>>()
    };
    let kustomization = json!({
        "namespace": namespace,
        "nameSuffix": format!("-{namespace}"),
        "resources": below(&named, &[path]),
        "components": below(&named, &others),
    });
    fs::write(named.join("kustomization.yaml"), kustomization.to_string()).unwrap();
    if !above.is_empty() {
        let kustomization = json!({ "resources": ["named"], "components": below(overlay.path(), &above) });
        fs::write(overlay.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    }
    overlay
}

/// The way from one folder to another. A kustomization names others by it only.
fn relative(from: &Path, to: &Path) -> PathBuf {
    let up = from.components().skip(1).map(|_| "..");
    up.collect::<PathBuf>().join(to.strip_prefix("/").unwrap())
}
