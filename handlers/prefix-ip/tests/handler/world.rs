//! A cluster with one Windows node, and the handler in it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, from_value, json, to_vec};
use staffetta_handler::testing::Feed;
use staffetta_handler::{Message, Recorder, Source, TriggerSender};
use staffetta_memory::MemoryPrefixes;
use staffetta_prefix_ip::address::PRIVATE_IPV4_ADDRESS;
use staffetta_prefix_ip::cluster::WatchedCluster;
use staffetta_prefix_ip::handler::PrefixIpHandler;
use staffetta_prefix_ip::nodes::NodeTable;
use staffetta_prefix_ip::published::AddressAnnotations;
use staffetta_prefix_ip::source::PrefixSource;
use staffetta_prefix_ip::worker::Worker;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// A cluster with one Windows node, and the patches that the handler sent.
pub(crate) struct World {
    pub(crate) cloud: Arc<MemoryPrefixes>,
    pub(crate) table: Arc<NodeTable>,
    pub(crate) feed: Feed,
    pub(crate) sent: Arc<Mutex<Vec<(String, Value)>>>,
    /// The addresses in annotations that the API server has, and no event has shown.
    pub(crate) published: Arc<Mutex<Vec<&'static str>>>,
    /// The nodes and pods that were triggered.
    pub(crate) triggered: Arc<Mutex<Vec<String>>>,
    /// The Events: object, reason and text.
    pub(crate) notes: Arc<Mutex<Vec<String>>>,
    /// The task that calls the provider.
    pub(crate) work: JoinHandle<()>,
}

pub(crate) const RESYNC: Duration = Duration::from_secs(300);

impl World {
    /// Starts the handler as after a restart: the cloud may have blocks already.
    pub(crate) async fn new(cloud: &Arc<MemoryPrefixes>, options: Value) -> Self {
        Self::start(cloud, options, |handler| handler).await
    }

    pub(crate) async fn start(
        cloud: &Arc<MemoryPrefixes>,
        options: Value,
        change: impl FnOnce(PrefixIpHandler) -> PrefixIpHandler,
    ) -> Self {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let sent = Arc::<Mutex<Vec<(String, Value)>>>::default();
        let published = Arc::<Mutex<Vec<_>>>::default();
        let (log, annotations) = (Arc::clone(&sent), Arc::clone(&published));
        tokio::spawn(async move {
            while let Some((request, reply)) = server.next_request().await {
                let path = request.uri().path().to_owned();
                if request.method() == Method::GET {
                    assert_eq!(path, "/api/v1/pods");
                    let list = list(&annotations.lock().unwrap());
                    reply.send_response(Response::new(Body::from(to_vec(&list).unwrap())));
                    continue;
                }
                let body = request.into_body().collect_bytes().await.unwrap();
                log.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
                let answer = json!({ "metadata": { "name": "any", "resourceVersion": "1" } });
                reply.send_response(Response::new(Body::from(to_vec(&answer).unwrap())));
            }
        });
        let notes = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&notes);
        let recorder = Recorder::new(move |note| {
            let text = format!("{} {}: {}", note.regarding.name, note.reason, note.text);
            noted.lock().unwrap().push(text);
        });
        let table = Arc::new(NodeTable::new(Duration::from_secs(30)));
        let label = ("kubernetes.io/os".to_owned(), "windows".to_owned());
        let cluster = Arc::new(WatchedCluster::new(label, Arc::clone(&table)));
        let client = Client::new(service, "default");
        let handler = PrefixIpHandler::new(
            client.clone(),
            Arc::clone(cloud) as _,
            Arc::clone(&cluster),
            Arc::clone(&table),
            recorder,
        );
        let worker = Worker {
            provider: Arc::clone(cloud) as _,
            nodes: Arc::clone(&table),
            published: Arc::new(AddressAnnotations::new(client.clone())),
            resync_interval: RESYNC,
            report: Box::new(|_, _| ()),
        };
        let source = PrefixSource { worker, cluster };
        let triggered = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&triggered);
        let sender =
            TriggerSender::new(move |trigger| log.lock().unwrap().push(trigger.object_ref().name.to_owned()));
        let work = tokio::spawn(async move { source.run(sender).await.unwrap() });
        let feed = Feed::new(change(handler).registration(RESYNC));
        feed.added(self::options(&options)).await.unwrap();
        Self { cloud: Arc::clone(cloud), table, feed, sent, published, triggered, notes, work }
    }

    /// Returns the annotations that the handler wrote, or the capacities.
    pub(crate) fn written(&self) -> Vec<Value> {
        let sent = std::mem::take(&mut *self.sent.lock().unwrap());
        let key = PRIVATE_IPV4_ADDRESS.replace('/', "~1");
        let of = |body: &Value, part: &str| body.pointer(&format!("{part}/{key}")).cloned();
        sent.iter()
            .filter_map(|(_, body)| {
                of(body, "/metadata/annotations").or_else(|| of(body, "/status/capacity"))
            })
            .collect()
    }
}

/// Returns the answer to a list of pods with these addresses in their annotations.
fn list(published: &[&str]) -> Value {
    let item = |address: &&str| json!({ "metadata": { "annotations": { PRIVATE_IPV4_ADDRESS: address } } });
    let items: Vec<_> = published.iter().map(item).collect();
    json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items })
}

pub(crate) fn cloud() -> Arc<MemoryPrefixes> {
    let cloud = Arc::new(MemoryPrefixes::default());
    cloud.add_subnet(&"subnet-1".into(), "10.0.0.0/24".parse().unwrap());
    cloud.add_machine(&"i-1".into(), &"subnet-1".into(), 10, true);
    cloud
}

pub(crate) fn prefixes() -> Value {
    json!({ "enable-windows-ipam": "true", "enable-windows-prefix-delegation": "true" })
}

pub(crate) fn options(data: &Value) -> ConfigMap {
    from_value(json!({
        "metadata": { "namespace": "kube-system", "name": "amazon-vpc-cni", "uid": "map" }, "data": data
    }))
    .unwrap()
}

pub(crate) fn node(os: &str) -> Node {
    from_value(json!({
        "metadata": { "name": "win", "uid": "node", "resourceVersion": "1", "labels": { "kubernetes.io/os": os } },
        "spec": { "providerID": "aws:///eu-west-1a/i-1" }
    }))
    .unwrap()
}

/// A pod on the node, with a phase, and with an address in its annotation unless that is empty.
pub(crate) fn pod(name: &str, phase: &str, annotation: &str) -> Pod {
    let mut pod: Pod = from_value(json!({
        "metadata": { "namespace": "shop", "name": name, "uid": name, "resourceVersion": "1" },
        "spec": { "nodeName": "win", "containers": [
            { "name": "c", "resources": { "limits": { PRIVATE_IPV4_ADDRESS: "1" } } }
        ] },
        "status": { "phase": phase }
    }))
    .unwrap();
    if !annotation.is_empty() {
        let all = [(PRIVATE_IPV4_ADDRESS.to_owned(), annotation.to_owned())];
        pod.metadata.annotations = Some(all.into());
    }
    pod
}

/// Lets the worker assign what is planned.
pub(crate) async fn run_until_idle() {
    sleep(Duration::from_secs(1)).await;
}
