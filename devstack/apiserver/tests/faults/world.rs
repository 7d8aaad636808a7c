//! A server, the way to it, and a namespace that only one test uses.

use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::header::ACCEPT_ENCODING;
use http::{Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Error};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Faults, Options, Proxy, RequestRecord, testing};

/// The server and clients of a test.
pub(crate) struct World {
    /// Goes the way that faults stand in.
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// Goes to the server itself.
    direct: Client,
    way: Way,
    /// Ends with the test.
    _upstream: Option<ApiServer>,
}

enum Way {
    Embedded(ApiServer),
    Proxied(Proxy),
}

pub(crate) async fn client(kubeconfig: Kubeconfig) -> Client {
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false; // a refusal is what a test asks for
    Client::try_from(config).unwrap()
}

pub(crate) fn yaml(kubeconfig: &str) -> Kubeconfig {
    Kubeconfig::from_yaml(kubeconfig).unwrap()
}

impl World {
    pub(crate) async fn embedded() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let kubeconfig = yaml(&server.kubeconfig());
        let world = Self::new(kubeconfig.clone(), kubeconfig, Way::Embedded(server)).await;
        world.clear_requests();
        world
    }

    pub(crate) async fn proxied() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let upstream = yaml(&server.kubeconfig());
        let proxy = Proxy::start(upstream.clone()).await.unwrap();
        let world = Self::new(upstream, yaml(&proxy.kubeconfig()), Way::Proxied(proxy)).await;
        Self { _upstream: Some(server), ..world }
    }

    pub(crate) async fn real() -> Self {
        let upstream = Kubeconfig::read_from(testing::real_kubeconfig()).unwrap();
        let proxy = Proxy::start(upstream.clone()).await.unwrap();
        Self::new(upstream, yaml(&proxy.kubeconfig()), Way::Proxied(proxy)).await
    }

    async fn new(server: Kubeconfig, front: Kubeconfig, way: Way) -> Self {
        let (direct, client) = (client(server).await, client(front).await);
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"generateName": "faults-"}})).unwrap();
        let namespaces: Api<Namespace> = Api::all(direct.clone());
        let namespace = namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        Self { client, namespace: namespace.metadata.name.unwrap(), direct, way, _upstream: None }
    }

    pub(crate) async fn clean_up(&self) {
        let namespaces: Api<Namespace> = Api::all(self.direct.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) fn faults(&self) -> Faults {
        match &self.way {
            Way::Embedded(server) => server.faults(),
            Way::Proxied(proxy) => proxy.faults(),
        }
    }

    pub(crate) fn url(&self) -> &str {
        match &self.way {
            Way::Embedded(server) => server.url(),
            Way::Proxied(proxy) => proxy.url(),
        }
    }

    pub(crate) fn requests(&self) -> Vec<RequestRecord> {
        match &self.way {
            Way::Embedded(server) => server.requests(),
            Way::Proxied(proxy) => proxy.requests(),
        }
    }

    pub(crate) fn clear_requests(&self) {
        match &self.way {
            Way::Embedded(server) => server.clear_requests(),
            Way::Proxied(proxy) => proxy.clear_requests(),
        }
    }

    /// Leases: small, and no controller of a real server makes any in this namespace.
    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create(&self, name: &str) -> Result<Lease, Error> {
        self.leases().create(&PostParams::default(), &lease(name)).await
    }

    /// The path of the leases, with a query.
    pub(crate) fn path(&self, rest: &str) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases{rest}", self.namespace)
    }

    /// An answer as it comes, for a client that would take it compressed.
    pub(crate) async fn get(&self, path: &str) -> Result<Response<Body>, Error> {
        let request = Request::get(path).header(ACCEPT_ENCODING, "gzip");
        self.client.send(request.body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn version(&self) -> String {
        self.leases().list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap()
    }

    /// A watch of all that happens to leases after this version.
    pub(crate) async fn watch(&self, version: &str) -> Watching {
        Watching(self.leases().watch(&WatchParams::default(), version).await.unwrap().boxed())
    }
}

pub(crate) fn lease(name: &str) -> Lease {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"holderIdentity": "somebody"}}))
        .unwrap()
}

/// The code of a refusal.
#[track_caller]
pub(crate) fn code(error: &Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        other => panic!("{other:?} is no answer"),
    }
}

/// Reads an answer's chunks and the way it ended.
pub(crate) async fn chunks(body: Body) -> (String, bool) {
    let mut stream = axum::body::Body::new(body).into_data_stream();
    let mut text = String::new();
    while let Some(chunk) = stream.next().await {
        match chunk {
            Ok(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
            Err(_) => return (text, false),
        }
    }
    (text, true)
}

/// An open watch.
pub(crate) struct Watching(BoxStream<'static, Result<WatchEvent<Lease>, Error>>);

impl Watching {
    pub(crate) async fn next(&mut self) -> Option<Result<WatchEvent<Lease>, Error>> {
        self.0.next().await
    }

    /// The name of the object that was added next.
    pub(crate) async fn added(&mut self) -> String {
        match self.0.try_next().await.unwrap() {
            Some(WatchEvent::Added(lease)) => lease.metadata.name.unwrap(),
            other => panic!("{other:?} is no ADDED"),
        }
    }

    /// Asserts that the watch is cut, and not ended.
    pub(crate) async fn is_cut(&mut self) {
        // kube hides how an answer breaks off: what follows is an error or nothing.
        assert!(!matches!(self.next().await, Some(Ok(_))), "the watch is cut");
    }
}

/// The items of a list, as JSON.
pub(crate) fn items(list: &str) -> Vec<Value> {
    serde_json::from_str::<Value>(list).unwrap()["items"].as_array().unwrap().clone()
}
