//! Tests of a kubelet API over TLS, with a client like an API server.

use std::fs;
use std::path::Path;

use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use staffetta_apiserver::ApiServer;
use staffetta_driver::app_hosting::AppHostingDriver;
use staffetta_driver::virtual_node::PodRequest;
use staffetta_handler::causes;
use staffetta_memory::{MemoryAppHostingDriver, MemoryDevices};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::authorization::{Authorizer, ClientCredential, DECISIONS, INVALID_TOKENS};
use super::serve::CONNECTION_LIMITS;
use super::*;
use crate::app_hosting::DeviceBackEnd;
use crate::back_end::NodeBackEnd;
use crate::node::NodeSpec;
use crate::node_store::NodeStore;
use crate::policy::Policy;

fn options() -> KubeletOptions {
    let localhost = IpAddr::from([127, 0, 0, 1]);
    KubeletOptions {
        listen: localhost,
        address: localhost,
        first_port: 0,
        certificate: None,
        client_authority: None,
        words: KubeletWords { machine: "device", client_authority: "section.ca" },
    }
}

/// The API server of a test. It knows the token `good`, and permits what the test says.
#[derive(Clone, Default)]
struct Reviewer {
    /// The permitted accesses: user, verb, subresource. An empty list makes each review fail.
    permitted: Vec<[&'static str; 3]>,
    /// The accesses that are permitted and denied at the same time, by two authorizers of the API server.
    denied: Vec<[&'static str; 3]>,
    /// The specifications of the reviews of access.
    asked: Arc<Mutex<Vec<Value>>>,
    /// The number of reviews of tokens.
    identified: Arc<Mutex<usize>>,
}

impl Reviewer {
    fn permitting(permitted: &[[&'static str; 3]]) -> Self {
        Self { permitted: permitted.to_vec(), ..Self::default() }
    }

    fn client(&self) -> Client {
        let router = Router::new()
            .route(
                "/apis/authentication.k8s.io/v1/tokenreviews",
                post(async |State(reviewer): State<Self>, Json(review): Json<Value>| {
                    reviewer.identify(review)
                }),
            )
            .route(
                "/apis/authorization.k8s.io/v1/subjectaccessreviews",
                post(async |State(reviewer): State<Self>, Json(review): Json<Value>| reviewer.decide(review)),
            );
        Client::new(router.with_state(self.clone()), "default")
    }

    fn identify(&self, mut review: Value) -> Json<Value> {
        *self.identified.lock() += 1;
        let good = review["spec"]["token"] == "good";
        let user = json!({ "username": "collector", "groups": ["monitoring"] });
        review["status"] = json!({ "authenticated": good, "user": user });
        Json(review)
    }

    fn decide(&self, mut review: Value) -> Response {
        if self.permitted.is_empty() {
            return StatusCode::FORBIDDEN.into_response();
        }
        let (spec, attributes) = (&review["spec"], &review["spec"]["resourceAttributes"]);
        self.asked.lock().push(spec.clone());
        let access = [&spec["user"], &attributes["verb"], &attributes["subresource"]];
        let is_among = |all: &[[&'static str; 3]]| all.iter().any(|one| access == one.each_ref());
        review["status"] = json!({ "allowed": is_among(&self.permitted), "denied": is_among(&self.denied) });
        Json(review).into_response()
    }

    /// The subresources that were asked for.
    fn subresources(&self) -> Vec<String> {
        let asked = self.asked.lock();
        let names = asked.iter().map(|spec| spec["resourceAttributes"]["subresource"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }
}

/// The address of a client.
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The user in the certificates of tests.
const USER: &str = "kube-apiserver-kubelet-client";

/// Returns a machine that was not read yet, and an index of its cluster.
fn machine() -> (Arc<Machine>, Arc<ClusterIndex>) {
    let cluster = Arc::<ClusterIndex>::default();
    let node_store = NodeStore::new(Arc::clone(&cluster), Policy::default());
    node_store.add_or_update(NodeSpec::bare("r1"));
    (node_store.get("r1").unwrap(), cluster)
}

/// Starts the kubelet API of a new node. Returns its address and its task.
async fn answered(options: KubeletOptions, reviewer: &Reviewer) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let (machine, cluster) = machine();
    answered_for(options, &machine, cluster, reviewer).await
}

/// Starts the kubelet API of the node of `machine`. Returns its address and its task.
async fn answered_for(
    options: KubeletOptions,
    machine: &Arc<Machine>,
    cluster: Arc<ClusterIndex>,
    reviewer: &Reviewer,
) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    answered_by(options, machine, cluster, reviewer.client()).await
}

/// The same with the API server behind `client`.
async fn answered_by(
    options: KubeletOptions,
    machine: &Arc<Machine>,
    cluster: Arc<ClusterIndex>,
    client: Client,
) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let kubelets = Kubelets::new(options).unwrap();
    let served = Arc::clone(machine);
    let task = tokio::spawn(async move { kubelets.serve(&served, &cluster, &Arc::default(), &client).await });
    while machine.view().kubelet.is_none() {
        tokio::task::yield_now().await;
    }
    (machine.view().kubelet.unwrap(), task)
}

/// Accepts any server certificate, as API servers do with kubelets by default.
#[derive(Debug)]
struct Trusting;

impl rustls::client::danger::ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &[rustls::pki_types::CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &rustls::pki_types::CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A certificate and its private key.
type Identity = (Vec<u8>, Vec<u8>);

/// Creates a CA. Returns its certificate file, and a client certificate that it signed.
fn authority(folder: &Path) -> (PathBuf, Identity) {
    let (authority_key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::default());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let file = folder.join("ca.pem");
    fs::write(&file, authority.pem()).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let mut client = CertificateParams::default();
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    client.distinguished_name.push(DnType::CommonName, USER);
    client.distinguished_name.push(DnType::OrganizationName, "kubelet-admins");
    let client_key = KeyPair::generate().unwrap();
    let certificate = client.signed_by(&client_key, &issuer).unwrap();
    (file, (certificate.der().to_vec(), client_key.serialize_der()))
}

/// Connects to a kubelet API, with the client certificate `identity` if there is one.
async fn connect(endpoint: SocketAddr, identity: Option<Identity>) -> TlsStream<TcpStream> {
    connect_by(TcpStream::connect(endpoint).await.unwrap(), endpoint, identity).await
}

/// The same by a TCP connection that exists.
async fn connect_by(
    stream: TcpStream,
    endpoint: SocketAddr,
    identity: Option<Identity>,
) -> TlsStream<TcpStream> {
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting));
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            builder.with_client_auth_cert(vec![certificate.into()], key.try_into().unwrap()).unwrap()
        }
    };
    let name = rustls::pki_types::ServerName::from(endpoint.ip());
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// Returns the response to a GET request, head and body.
async fn ask(endpoint: SocketAddr, path: &str, identity: Option<Identity>) -> String {
    ask_with(endpoint, "GET", path, "", identity).await
}

/// Returns the response to a request with a bearer token.
async fn ask_with_token(endpoint: SocketAddr, path: &str, token: &str) -> String {
    ask_with(endpoint, "GET", path, &format!("Authorization: Bearer {token}\r\n"), None).await
}

async fn ask_with(
    endpoint: SocketAddr,
    method: &str,
    path: &str,
    header: &str,
    identity: Option<Identity>,
) -> String {
    let mut stream = connect(endpoint, identity).await;
    let request = format!("{method} {path} HTTP/1.1\r\nHost: r1\r\n{header}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is closed without a farewell has been answered all the same.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn what_no_machine_can_do_is_said_in_words_that_kubectl_shows() {
    let (endpoint, task) = answered(options(), &Reviewer::default()).await;
    for (path, what) in [
        ("/containerLogs/default/web/app?follow=true", "logs"),
        ("/exec/default/web/app?command=sh", "exec"),
        ("/attach/default/web/app", "attach"),
        ("/portForward/default/web", "port-forward"),
    ] {
        let answer = ask(endpoint, path, None).await;
        assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
        assert!(answer.contains(&format!("{what} is not supported by this device")), "{answer}");
    }
    assert!(ask(endpoint, "/healthz", None).await.ends_with("\r\n\r\nok"));
    task.abort();
}

#[tokio::test]
async fn data_is_served_to_clients_that_the_api_server_permits_and_to_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let (file, identity) = authority(folder.path());
    let reviewer = Reviewer::permitting(&[[USER, "get", "stats"], [USER, "get", "proxy"]]);
    let options = KubeletOptions { client_authority: Some(file), ..options() };
    let (endpoint, task) = answered(options, &reviewer).await;
    for path in ["/pods", "/stats/summary"] {
        let answer = ask(endpoint, path, None).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    }
    assert!(reviewer.asked.lock().is_empty());
    assert!(ask(endpoint, "/pods", Some(identity.clone())).await.contains("\"kind\":\"PodList\""));
    let answer = ask(endpoint, "/stats/summary", Some(identity.clone())).await;
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("cannot be reached"), "{answer}");
    assert_eq!(reviewer.subresources(), ["pods", "proxy", "stats"]);
    let asked = reviewer.asked.lock()[2].clone();
    let attributes =
        json!({ "verb": "get", "version": "v1", "resource": "nodes", "subresource": "stats", "name": "r1" });
    let groups = ["kubelet-admins", "system:authenticated"];
    assert_eq!(asked, json!({ "user": USER, "groups": groups, "resourceAttributes": attributes }));

    let answer = ask_with(endpoint, "POST", "/exec/default/web/app", "", Some(identity)).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let text = format!("Forbidden (user={USER}, verb=create, resource=nodes, subresource(s)=[proxy])");
    assert!(answer.contains(&text), "{answer}");
    task.abort();
}

#[tokio::test]
async fn the_cluster_roles_of_the_api_server_decide() {
    let folder = tempfile::tempdir().unwrap();
    let (file, identity) = authority(folder.path());
    let server = ApiServer::start(staffetta_apiserver::Options::default()).await.unwrap();
    let client = Client::try_from(kube::Config::new(server.url().parse().unwrap())).unwrap();
    let (machine, cluster) = machine();
    let options = KubeletOptions { client_authority: Some(file), ..options() };
    let (endpoint, task) = answered_by(options, &machine, cluster, client.clone()).await;
    let answer = ask(endpoint, "/pods", Some(identity.clone())).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let role = json!({ "metadata": { "name": "stats" },
        "rules": [{ "apiGroups": [""], "resources": ["nodes/stats"], "verbs": ["get"] }] });
    let binding = json!({ "metadata": { "name": "stats" },
        "subjects": [{ "kind": "Group", "name": "kubelet-admins", "apiGroup": "rbac.authorization.k8s.io" }],
        "roleRef": { "kind": "ClusterRole", "name": "stats", "apiGroup": "rbac.authorization.k8s.io" } });
    let (role, binding) = (serde_json::from_value(role).unwrap(), serde_json::from_value(binding).unwrap());
    Api::<ClusterRole>::all(client.clone()).create(&PostParams::default(), &role).await.unwrap();
    Api::<ClusterRoleBinding>::all(client).create(&PostParams::default(), &binding).await.unwrap();
    let answer = ask(endpoint, "/stats/summary", Some(identity)).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    task.abort();
}

#[tokio::test]
async fn a_token_is_verified_by_the_api_server() {
    let reviewer = Reviewer::permitting(&[["collector", "get", "stats"]]);
    let (endpoint, task) = answered(options(), &reviewer).await;
    assert!(ask_with_token(endpoint, "/stats/summary", "good").await.starts_with("HTTP/1.1 503 "));
    assert_eq!(reviewer.asked.lock()[0]["groups"], json!(["monitoring"]));
    assert!(ask_with_token(endpoint, "/pods", "good").await.starts_with("HTTP/1.1 403 "));
    assert!(ask_with_token(endpoint, "/stats/summary", "bad").await.starts_with("HTTP/1.1 401 "));
    assert_eq!(reviewer.subresources(), ["stats", "pods", "proxy"]);
    task.abort();
}

#[tokio::test]
async fn a_request_that_nobody_decides_on_is_refused_and_reviewed_again() {
    let (endpoint, task) = answered(options(), &Reviewer::default()).await;
    let answer = ask_with_token(endpoint, "/stats/summary", "good").await;
    assert!(answer.starts_with("HTTP/1.1 500 ") && answer.contains("could not decide"), "{answer}");
    task.abort();
}

#[tokio::test]
async fn an_access_that_one_authorizer_permits_and_another_one_denies_is_refused() {
    let access = [["collector", "get", "stats"]];
    let reviewer = Reviewer { denied: access.to_vec(), ..Reviewer::permitting(&access) };
    let (endpoint, task) = answered(options(), &reviewer).await;
    let answer = ask_with_token(endpoint, "/stats/summary", "good").await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn invalid_tokens_of_one_address_cost_few_reviews_and_hinder_neither_known_clients_nor_others() {
    let reviewer = Reviewer::permitting(&[["collector", "get", "stats"]]);
    let authorizer = Authorizer::new(reviewer.client(), "r1".to_owned());
    let ask = async |token: String, peer: IpAddr| {
        let token = ClientCredential::Token(token);
        let decided = authorizer.authorize(token, peer, &Method::GET, "/stats/summary").await;
        decided.map_or_else(|(status, _)| status.as_u16(), |()| 200)
    };
    assert_eq!(ask("good".to_owned(), PEER).await, 200);
    for number in 0..INVALID_TOKENS * 9 {
        let expected = if number < INVALID_TOKENS { 401 } else { 429 };
        assert_eq!(ask(format!("bad {}", number % 20), PEER).await, expected, "{number}");
    }
    assert_eq!(*reviewer.identified.lock(), 1 + INVALID_TOKENS);
    assert_eq!(ask("good".to_owned(), PEER).await, 200, "its permission is cached");
    assert_eq!(ask("bad".to_owned(), [192, 0, 2, 1].into()).await, 401);
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(ask("bad".to_owned(), PEER).await, 401);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_of_one_address_keep_no_client_at_another_one_out() {
    let (endpoint, task) = answered(options(), &Reviewer::default()).await;
    let mut idle = Vec::new();
    for _ in 0..CONNECTION_LIMITS.total * 2 {
        idle.push(TcpStream::connect(endpoint).await.unwrap());
    }
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let answer = async {
        let mut stream = connect_by(socket.connect(endpoint).await.unwrap(), endpoint, None).await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: r1\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    let answer = tokio::time::timeout(CONNECTION_LIMITS.grace, answer).await.expect("it does not wait");
    assert!(answer.ends_with("ok"), "{answer}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn decisions_are_kept_as_long_as_by_a_kubelet_and_in_a_limited_number() {
    let reviewer = Reviewer::permitting(&[["a", "get", "stats"], ["collector", "get", "stats"]]);
    let authorizer = Authorizer::new(reviewer.client(), "r1".to_owned());
    let certificate = |name: &str| ClientCredential::Certificate(name.to_owned(), Vec::new());
    let reviews_for = async |credential: &ClientCredential, seconds: u64| {
        let before = reviewer.asked.lock().len();
        let ask = async || {
            let decision =
                authorizer.authorize(credential.clone(), PEER, &Method::GET, "/stats/summary").await;
            decision.is_ok()
        };
        let first = ask().await;
        tokio::time::advance(Duration::from_secs(seconds)).await;
        assert_eq!(ask().await, first);
        reviewer.asked.lock().len() - before
    };
    assert_eq!(reviews_for(&certificate("a"), 299).await, 1);
    assert_eq!(reviews_for(&certificate("a"), 300).await, 1, "the first decision has ended");
    assert_eq!(reviews_for(&certificate("b"), 29).await, 1);
    assert_eq!(reviews_for(&certificate("c"), 30).await, 2);
    assert_eq!(reviews_for(&ClientCredential::Token("good".into()), 119).await, 1);
    let cached = authorizer.cached();
    reviews_for(&ClientCredential::Token("bad".into()), 0).await;
    assert_eq!(authorizer.cached(), cached, "nobody fills the cache with invented tokens");
    for user in 0..2 * DECISIONS {
        reviews_for(&certificate(&user.to_string()), 0).await;
    }
    assert_eq!(authorizer.cached(), DECISIONS);
}

#[tokio::test]
async fn what_the_pods_of_a_device_use_is_reported_to_who_may_know_it() {
    let folder = tempfile::tempdir().unwrap();
    let (file, identity) = authority(folder.path());
    let device = MemoryDevices::new(Duration::ZERO).device("r1");
    let driver = Arc::new(MemoryAppHostingDriver::new(device, "east".into()));
    let pod = json!({ "metadata": { "name": "web", "namespace": "shop", "uid": "u1" },
        "spec": { "containers": [{ "name": "app", "image": "flash:/a.tar" }] } });
    let pod = Arc::new(serde_json::from_value(pod).unwrap());
    let request = PodRequest { pod, environment: [].into() };
    while !driver.deploy_pod(&request).await.unwrap().is_done() {}
    let (machine, cluster) = machine();
    let back_end: Arc<dyn NodeBackEnd> = Arc::new(DeviceBackEnd::new(driver, None, 0));
    assert!(machine.set_connection(0, &back_end));
    machine.read_succeeded();
    let options = KubeletOptions { client_authority: Some(file), ..options() };
    let reviewer = Reviewer::permitting(&[[USER, "get", "stats"], [USER, "get", "metrics"]]);
    let (endpoint, task) = answered_for(options, &machine, cluster, &reviewer).await;
    let answer = ask(endpoint, "/stats/summary", Some(identity.clone())).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    let summary: Value = serde_json::from_str(body).unwrap();
    let pod = &summary["pods"][0];
    assert_eq!(pod["podRef"], json!({ "name": "web", "namespace": "shop", "uid": "u1" }));
    assert_eq!(
        (&pod["containers"][0]["name"], &pod["containers"][0]["cpu"]["usageNanoCores"]),
        (&json!("app"), &json!(10_000_000))
    );
    assert_eq!(
        (&summary["node"]["nodeName"], &summary["node"]["cpu"]["usageNanoCores"]),
        (&json!("r1"), &json!(10_000_000))
    );
    let answer = ask(endpoint, "/metrics/resource", Some(identity)).await;
    assert!(
        answer
            .contains("container_cpu_usage_seconds_total{container=\"app\",namespace=\"shop\",pod=\"web\"} ")
    );
    assert!(answer.contains("\r\ncontent-type: text/plain; version=0.0.4"), "{answer}");
    task.abort();
}

#[tokio::test]
async fn each_node_has_a_port_of_its_own_the_next_that_is_free() {
    let (first, one) = answered(options(), &Reviewer::default()).await;
    let (second, other) =
        answered(KubeletOptions { first_port: first.port(), ..options() }, &Reviewer::default()).await;
    assert!(second.port() > first.port());
    one.abort();
    other.abort();
}

#[test]
fn a_certificate_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    fs::write(&empty, "").unwrap();
    let fails = |certificate: PathBuf| {
        let options = KubeletOptions { certificate: Some((certificate, empty.clone())), ..options() };
        causes(&Kubelets::new(options).err().unwrap())
    };
    assert!(fails("/nowhere/tls.crt".into()).starts_with("read /nowhere/tls.crt"));
    assert!(fails(empty.clone()).ends_with("contains no usable certificate"));
}

#[tokio::test]
async fn files_that_are_replaced_are_read_again_and_what_cannot_be_used_leaves_the_last_ones_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    let issue = || {
        let pair = rcgen::generate_simple_self_signed(["r1".to_owned()]).unwrap();
        fs::write(&certificate, pair.cert.pem()).unwrap();
        fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        pair.cert.der().to_vec()
    };
    let first = issue();
    let files = Some((certificate.clone(), key.clone()));
    let (endpoint, task) =
        answered(KubeletOptions { certificate: files, ..options() }, &Reviewer::default()).await;
    let shown = async || {
        let stream = connect(endpoint, None).await;
        stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
    };
    let shows = async |expected: &[u8]| {
        let shows = async { while shown().await != expected {} };
        tokio::time::timeout(Duration::from_secs(30), shows).await.expect("it shows the other one");
    };
    let a_minute_passes = async || {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(60)).await;
        tokio::time::resume();
    };
    let second = issue();
    assert_eq!(shown().await, first, "they are not read for each connection");
    a_minute_passes().await;
    shows(&second).await;
    fs::write(&certificate, "").unwrap();
    a_minute_passes().await;
    assert_eq!(shown().await, second);
    let third = issue();
    a_minute_passes().await;
    shows(&third).await;
    task.abort();
}
