//! The admission webhook, as API servers see it: over TLS, from every replica, while its certificate is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Config};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, from_value, json};
use staffetta_apiserver::{ApiServer, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::process::{Process, eventually};

/// The host name by which the API server calls the webhook.
const HOST: &str = "hook.home.svc";
const RESOURCE: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// A cluster with the objects of the webhook, and its replicas.
struct WebhookCluster {
    client: Client,
    folder: tempfile::TempDir,
    server: ApiServer,
}

/// A replica, and the address of its webhook.
struct Replica {
    process: Process,
    webhook: SocketAddr,
    /// The certificate that it served last.
    certificate: Option<CertificateDer<'static>>,
}

impl WebhookCluster {
    async fn start() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        let namespace: Namespace = from_value(json!({ "metadata": { "name": "home" } })).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let secret: Secret = from_value(json!({ "metadata": { "name": "hook" } })).unwrap();
        Api::namespaced(client.clone(), "home").create(&PostParams::default(), &secret).await.unwrap();
        let configuration = from_value(json!({ "metadata": { "name": "hook" }, "webhooks": [{
            "name": "pods.example", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": { "service": { "name": "hook", "namespace": "home", "path": "/mutate-v1-pod" } },
        }] }));
        let configuration: MutatingWebhookConfiguration = configuration.unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &configuration).await.unwrap();
        let map: ConfigMap = from_value(
            json!({ "metadata": { "name": "amazon-vpc-cni" }, "data": { "enable-windows-ipam": "true" } }),
        )
        .unwrap();
        Api::namespaced(client.clone(), "kube-system").create(&PostParams::default(), &map).await.unwrap();
        Self { client, folder: tempfile::tempdir().unwrap(), server }
    }

    /// Starts a replica with these further options of the webhook, and waits until it is ready.
    async fn replica(&self, name: &str, options: &str) -> Replica {
        let home = self.folder.path().join(name);
        std::fs::create_dir(&home).unwrap();
        let configuration = format!(
            "[kubernetes]\nenabled_handlers = [\"prefix_ip\"]\nprefix_provider_driver = \"memory\"\n\
             [leader_election]\nnamespace = \"home\"\nlease_duration = \"3s\"\nrenew_deadline = \"2s\"\nretry_period = \"500ms\"\n\
             [webhook]\nlisten = \"127.0.0.1:0\"\nconfiguration_name = \"hook\"\nsecret_name = \"hook\"\n{options}"
        );
        let program = Path::new(env!("CARGO_BIN_EXE_staffetta"));
        let mut process = Process::start(program, &home, &configuration, &self.server.kubeconfig()).await;
        let line: Value =
            serde_json::from_str(process.says("the webhook is listening").await.last().unwrap()).unwrap();
        let webhook = line["webhook"].as_str().unwrap().parse().unwrap();
        process.ready().await;
        if !options.contains("certificate_file") {
            eventually("the API server trusts a certificate", async || !self.trusted().await.is_empty())
                .await;
        }
        Replica { process, webhook, certificate: None }
    }

    /// Returns the certificates that the API server trusts.
    async fn trusted(&self) -> Vec<CertificateDer<'static>> {
        let configurations = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let webhook = configurations.get("hook").await.unwrap().webhooks.unwrap().remove(0);
        let bundle = webhook.client_config.ca_bundle.unwrap_or_default().0;
        CertificateDer::pem_slice_iter(&bundle).map(Result::unwrap).collect()
    }

    /// Asks a replica about a pod, as the API server does. Fails if the certificate is not trusted.
    async fn ask(&self, replica: &mut Replica, spec: &Value) -> Result<Value, String> {
        let mut roots = RootCertStore::empty();
        for certificate in self.trusted().await {
            roots.add(certificate).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(replica.webhook).await.map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(ServerName::try_from(HOST).unwrap(), stream).await;
        let mut stream = stream.map_err(|error| error.to_string())?;
        replica.certificate = stream.get_ref().1.peer_certificates().map(|chain| chain[0].clone());
        let body = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "operation": "CREATE", "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "metadata": { "name": "web" }, "spec": spec },
        } })
        .to_string();
        let head =
            format!("POST /mutate-v1-pod HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map_err(|error| error.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
        Ok(serde_json::from_str::<Value>(body).unwrap()["response"].take())
    }

    /// Returns `true` if a replica makes a pod of Windows nodes request an address. Panics if its certificate is not trusted.
    async fn patches(&self, replica: &mut Replica) -> bool {
        let spec =
            json!({ "nodeSelector": { "kubernetes.io/os": "windows" }, "containers": [{ "name": "a" }] });
        let answer = self.ask(replica, &spec).await.unwrap();
        assert_eq!((&answer["allowed"], &answer["uid"]), (&json!(true), &json!("u")));
        let patch: Option<ByteString> = from_value(answer["patch"].clone()).unwrap();
        patch.is_some_and(|patch| String::from_utf8(patch.0).unwrap().contains(RESOURCE))
    }

    async fn patch_secret(&self, data: Value) {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), "home");
        let patch = Patch::Merge(json!({ "data": data }));
        secrets.patch("hook", &PatchParams::default(), &patch).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_replica_serves_the_webhook_with_the_certificate_of_the_leader_also_after_its_end() {
    let cluster = WebhookCluster::start().await;
    let mut leader = cluster.replica("leader", "").await;
    let mut standby = cluster.replica("standby", "").await;
    assert!(cluster.patches(&mut leader).await && cluster.patches(&mut standby).await);
    assert_eq!(leader.certificate, standby.certificate);
    let linux = json!({ "nodeSelector": { "kubernetes.io/os": "linux" }, "containers": [{ "name": "a" }] });
    assert_eq!(cluster.ask(&mut standby, &linux).await.unwrap()["patch"], Value::Null);

    let maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), "kube-system");
    let switch = async |value: &str| {
        let patch = Patch::Merge(json!({ "data": { "enable-windows-ipam": value } }));
        maps.patch("amazon-vpc-cni", &PatchParams::default(), &patch).await.unwrap();
    };
    switch("false").await;
    eventually("the standby notices that the function is off", async || !cluster.patches(&mut standby).await)
        .await;
    switch("true").await;
    eventually("the standby notices that it is on again", async || cluster.patches(&mut standby).await).await;

    leader.process.kill("KILL").await;
    leader.process.ends().await;
    assert!(cluster.patches(&mut standby).await);
    // What somebody removed is restored by the new leader, with the certificate of the former one.
    let configurations = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let none = json!({ "webhooks": [{ "name": "pods.example", "clientConfig": { "caBundle": null } }] });
    configurations.patch("hook", &PatchParams::default(), &Patch::Strategic(none)).await.unwrap();
    eventually("the API server trusts the certificate again", async || !cluster.trusted().await.is_empty())
        .await;
    assert!(cluster.patches(&mut standby).await);
    assert_eq!(leader.certificate, standby.certificate);
    assert!(standby.process.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_certificate_is_replaced_before_it_expires_without_a_failed_request() {
    let cluster = WebhookCluster::start().await;
    let mut replica = cluster.replica("only", "certificate_lifetime = \"20s\"\n").await;
    let mut served = BTreeSet::new();
    eventually("another certificate is served", async || {
        assert!(cluster.patches(&mut replica).await, "each request is answered");
        served.insert(replica.certificate.clone().map(|certificate| certificate.to_vec()));
        served.len() == 2
    })
    .await;
    assert!(replica.process.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_has_expired_or_was_removed_is_replaced() {
    let cluster = WebhookCluster::start().await;
    let mut parameters = rcgen::CertificateParams::new(vec![HOST.to_owned()]).unwrap();
    parameters.not_after = rcgen::date_time_ymd(1980, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let expired = parameters.self_signed(&key).unwrap();
    let text = |pem: String| ByteString(pem.into_bytes());
    cluster
        .patch_secret(json!({ "tls.crt": text(expired.pem()), "tls.key": text(key.serialize_pem()) }))
        .await;
    let mut replica = cluster.replica("only", "").await;
    eventually("the expired certificate is replaced", async || {
        let spec = json!({ "containers": [] });
        cluster.ask(&mut replica, &spec).await.is_ok()
    })
    .await;
    let first = replica.certificate.clone();
    assert_ne!(first.as_deref(), Some(expired.der().as_ref()));
    let gone: BTreeMap<_, _> = ["tls.crt", "tls.key"].map(|name| (name, Value::Null)).into();
    cluster.patch_secret(json!(gone)).await;
    eventually("another certificate is served", async || {
        let spec = json!({ "containers": [] });
        cluster.ask(&mut replica, &spec).await.is_ok() && replica.certificate != first
    })
    .await;
    assert!(replica.process.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_in_files_is_served_and_nothing_is_written() {
    let cluster = WebhookCluster::start().await;
    let pair = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| cluster.folder.path().join(name));
    std::fs::write(&certificate, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let options = format!("certificate_file = {certificate:?}\nkey_file = {key:?}\n");
    let mut replica = cluster.replica("only", &options).await;
    assert!(cluster.trusted().await.is_empty(), "`caBundle` is left to who manages the files");
    let configurations = Api::<MutatingWebhookConfiguration>::all(cluster.client.clone());
    let bundle = ByteString(pair.cert.pem().into_bytes());
    let trust = json!({ "webhooks": [{ "name": "pods.example", "clientConfig": { "caBundle": bundle } }] });
    configurations.patch("hook", &PatchParams::default(), &Patch::Strategic(trust)).await.unwrap();
    assert!(cluster.patches(&mut replica).await);
    let secret = Api::<Secret>::namespaced(cluster.client.clone(), "home").get("hook").await.unwrap();
    assert!(secret.data.unwrap_or_default().is_empty());
    assert!(replica.process.terminate().await.success());
}
