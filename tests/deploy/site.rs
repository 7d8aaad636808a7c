//! Applies the chart on a real cluster under names of this test, and runs the program as its pods would.

use std::fs;
use std::path::PathBuf;

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
use crate::process::{Process, SIMULATED, eventually};
use crate::rights::{self, Rights};
use crate::{PROGRAM, rendered};

/// The shortest duration of a watch, after which the program asks what it asks only of a watch that has been quiet for long.
const SHORT_WATCHES: &str = "[kubernetes]\nwatch_timeout = \"1s\"\n";

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
    /// The applied objects. Beside them: what the pod would find in its file system.
    folder: TempDir,
}

impl Site {
    /// The namespace of the site `name`.
    pub(crate) fn namespace(name: &str) -> String {
        format!("deploy-{name}-{}", std::process::id())
    }

    /// Applies the chart with `values` as the site `name`. The CLUSTER lock must be held: only the namespace is of this site alone.
    pub(crate) async fn apply(name: &str, values: &Value) -> Self {
        let kubeconfig = real_kubeconfig();
        let namespace = Self::namespace(name);
        let kubectl = Kubectl::find(&kubeconfig, &namespace);
        let folder = tempfile::tempdir().unwrap();
        let flags = ["--set", "namespace.create=true"];
        let objects =
            rendered::helm(&namespace, "", values, &flags).unwrap_or_else(|error| panic!("{error}"));
        fs::write(folder.path().join("objects.yaml"), objects).unwrap();
        let objects = folder.path().join("objects.yaml");
        Kubectl::find(&kubeconfig, "").run(&["apply", "-f", objects.to_str().unwrap()]).await;
        let client = staffetta::connect::client(Some(&kubeconfig), None).await.unwrap();
        Self { kubectl, client, kubeconfig, namespace, folder }
    }

    /// The name of the service account of the Deployment.
    pub(crate) async fn account(&self) -> String {
        let pod = self.deployment().await.spec.unwrap().template.spec.unwrap();
        pod.service_account_name.unwrap()
    }

    async fn deployment(&self) -> Deployment {
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), &self.namespace);
        deployments.get("staffetta").await.unwrap()
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
        let next = self.folder.path().join("next-token");
        fs::write(&next, token).unwrap();
        fs::rename(next, self.token_file()).unwrap();
    }

    fn token_file(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// A client that sends `token` and nothing else of the administrator's.
    pub(crate) async fn client_of(&self, token: &str) -> Client {
        let path = self.folder.path().join("other-kubeconfig");
        fs::write(&path, self.kubeconfig_of(json!({ "token": token })).await).unwrap();
        staffetta::connect::client(Some(&path), None).await.unwrap()
    }

    /// Starts the program with the configuration and the service account of the site, whose token is in its file.
    pub(crate) async fn run(&self, replica: &str) -> Process {
        self.run_changed(replica, |configuration| configuration).await
    }

    /// The same with a configuration that was changed.
    pub(crate) async fn run_changed(&self, replica: &str, change: impl FnOnce(String) -> String) -> Process {
        let home = self.folder.path().join(replica);
        fs::create_dir(&home).unwrap();
        let configuration =
            change(self.configuration().await).replacen("[kubernetes]\n", SHORT_WATCHES, 1) + QUICK;
        assert!(configuration.contains(SHORT_WATCHES), "{configuration}");
        let kubeconfig = self.kubeconfig_of(json!({ "tokenFile": self.token_file() })).await;
        Process::start(PROGRAM.as_ref(), &home, &configuration, &kubeconfig).await
    }

    /// Ends when each watch that `rights` permit has been quiet for longer than the program leaves one alone: `account` has asked all that
    /// it ever asks of a watch.
    pub(crate) async fn outlasts_its_watches(&self, account: &str, rights: &Rights) {
        let account = format!("system:serviceaccount:{}:{account}", self.namespace);
        let watched = rights.iter().filter_map(|right| right.strip_prefix("watch "));
        let expected: Rights = watched.map(|watched| format!("list {watched}")).collect();
        eventually("each watch has been compared with the server", async || {
            rights::compared(&self.kubeconfig, &account).is_superset(&expected)
        })
        .await;
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

    /// The kubeconfig of another user.
    pub(crate) async fn kubeconfig_of(&self, user: Value) -> String {
        let shown = self.kubectl.run(&["config", "view", "--raw", "--minify", "--output", "json"]).await;
        let mut kubeconfig: Value = serde_json::from_str(&shown).unwrap();
        kubeconfig["users"][0]["user"] = user;
        kubeconfig["contexts"][0]["context"]["namespace"] = json!(self.namespace);
        kubeconfig.to_string()
    }

    /// Takes away what was applied, and all that was made in the namespace.
    pub(crate) async fn remove(self) {
        let objects = self.folder.path().join("objects.yaml");
        let of_all = Kubectl::find(&self.kubeconfig, "");
        of_all.run(&["delete", "-f", objects.to_str().unwrap(), "--wait=false", "--ignore-not-found"]).await;
    }
}

/// Values that enable these handlers, with simulated drivers.
pub(crate) fn simulated(handlers: &[&str]) -> Value {
    let mut kubernetes: toml::Table =
        toml::from_str::<toml::Table>(SIMULATED).unwrap()["kubernetes"].clone().try_into().unwrap();
    kubernetes.insert("enabled_handlers".to_owned(), handlers.to_vec().into());
    json!({ "config": { "kubernetes": kubernetes } })
}
