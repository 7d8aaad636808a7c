//! The handler that scales peer Deployments.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use staffetta_handler::{
    Action, Failure, HandlerError, Identity, Registration, ResourceEventHandler, Source, Trigger,
    TriggerHandler, TriggerSender,
};
use tracing::info;

use super::index::PeerIndex;
use super::module_deployments;
use crate::vnode::marks::{COMPONENT, COMPONENT_NODE, ENVIRONMENT};

/// The name of the handler, as in `kubernetes.enabled_handlers`. It runs in the replica that leads.
pub const PEER_HANDLER: &str = "peer_deployment";

/// The time from a change of the bases to the writes that follow from it. Bases come and go together, and each Deployment is
/// written once for all of them.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// Gives each peer Deployment one replica for each base that its pods match.
pub struct PeerDeployments {
    client: Client,
    index: Arc<PeerIndex>,
}

/// An error of scaling a peer Deployment.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The API server did not accept the new number of replicas.
    #[error("give the Deployment {replicas} replicas, one for each base that matches")]
    Scale {
        /// The number of replicas that the Deployment was to get.
        replicas: i32,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

impl Failure for PeerError {
    fn transient(&self) -> bool {
        let Self::Scale { source, .. } = self;
        source.transient()
    }

    fn retry_after(&self) -> Option<Duration> {
        let Self::Scale { source, .. } = self;
        source.retry_after()
    }

    fn reason(&self) -> &'static str {
        "ScaleFailed"
    }
}

impl PeerDeployments {
    /// Creates the handler. It does nothing before its [`registration`](Self::registration) is started.
    pub fn new(client: Client, index: Arc<PeerIndex>) -> Self {
        Self { client, index }
    }

    /// Builds the registration of the handler: for events of Deployments, and for triggers after changes of the bases.
    pub fn registration(self) -> Registration<Self> {
        let index = Arc::clone(&self.index);
        let nodes = format!("{COMPONENT}={COMPONENT_NODE},{ENVIRONMENT}={}", index.environment());
        let registration = Registration::new(self)
            .index::<Deployment>(Arc::clone(&index))
            .index::<Node>(Arc::clone(&index))
            .on::<Deployment>()
            .on_trigger::<PeerDue>()
            .source(BaseChanges(Arc::clone(&index)))
            .select::<Node>(|kind| kind.label_selector = Some(nodes.clone()));
        module_deployments(registration, index.environment())
    }

    /// Scales the Deployment with this UID if it has not one replica for each base that matches.
    async fn reconcile(&self, uid: &str) -> Result<(), PeerError> {
        let Some((deployment, replicas)) = self.index.due(uid) else { return Ok(()) };
        let meta = &deployment.metadata;
        let (namespace, name) =
            (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
        let api = Api::<Deployment>::namespaced(self.client.clone(), namespace);
        // A write that is based on an older state, or meant for an earlier Deployment of this name, is rejected (409).
        let metadata = json!({ "uid": meta.uid, "resourceVersion": meta.resource_version });
        let patch = Patch::Merge(json!({ "metadata": metadata, "spec": { "replicas": replicas } }));
        match api.patch_scale(name, &PatchParams::default(), &patch).await {
            Ok(_) => info!(namespace, name, uid, replicas, "a Deployment was scaled to the bases that match"),
            // It was deleted.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(source) => return Err(PeerError::Scale { replicas, source: Box::new(source) }),
        }
        Ok(())
    }
}

impl ResourceEventHandler<Deployment> for PeerDeployments {
    type Error = PeerError;

    async fn on_present(&self, deployment: &Arc<Deployment>) -> Result<Action, PeerError> {
        self.reconcile(deployment.metadata.uid.as_deref().unwrap_or_default()).await.map(Action::from)
    }
}

impl TriggerHandler<PeerDue> for PeerDeployments {
    type Error = PeerError;

    async fn on_trigger(&self, trigger: &PeerDue) -> Result<Action, PeerError> {
        self.reconcile(&trigger.0.uid).await.map(Action::from)
    }
}

/// A request to compare the replicas of a peer Deployment with the number of bases that its pods match.
#[derive(Clone, Debug)]
struct PeerDue(Identity);

impl PeerDue {
    fn of(deployment: &Deployment) -> Self {
        let meta = deployment.metadata.clone();
        let (name, uid) = (meta.name.unwrap_or_default(), meta.uid.unwrap_or_default());
        Self(Identity::of::<Deployment>(meta.namespace, name, uid))
    }
}

impl Trigger for PeerDue {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// Sends a trigger for each Deployment that is to be scaled after a change of the bases.
struct BaseChanges(Arc<PeerIndex>);

impl BaseChanges {
    /// Sends a trigger for each Deployment whose number of replicas is to change.
    fn send(&self, sender: &TriggerSender) {
        for deployment in self.0.all_due() {
            sender.send(PeerDue::of(&deployment));
        }
    }
}

#[async_trait]
impl Source for BaseChanges {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        loop {
            self.0.bases_changed.notified().await;
            tokio::time::sleep(BATCH_DELAY).await;
            self.send(&sender);
        }
    }

    async fn run_once(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        self.send(&sender);
        Ok(())
    }
}

#[cfg(test)]
mod tests {

    use http::{Request, Response};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::Value;
    use staffetta_handler::testing::Feed;
    use staffetta_handler::{Event, Index};
    use tower_test::mock::Handle;

    use super::super::decide::tests::deployment;
    use super::*;

    type Server = Handle<Request<Body>, Response<Body>>;

    fn handler() -> (Feed, Arc<PeerIndex>, Server) {
        let (service, server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let index = Arc::new(PeerIndex::new("dev"));
        let handler = PeerDeployments::new(Client::new(service, "default"), Arc::clone(&index));
        (Feed::new(handler.registration()), index, server)
    }

    fn node(name: &str, zone: &str) -> Node {
        let labels = json!({ COMPONENT: COMPONENT_NODE, ENVIRONMENT: "dev", "zone": zone });
        serde_json::from_value(json!({ "metadata": { "name": name, "uid": name, "labels": labels } }))
            .unwrap()
    }

    /// Answers one request, and returns its path and body.
    async fn answer(server: &mut Server, code: u16, body: &Value) -> (String, Value) {
        let (asked, reply) = server.next_request().await.expect("a request");
        let path = asked.uri().path().to_owned();
        let sent = serde_json::from_slice(&asked.into_body().collect_bytes().await.unwrap()).unwrap();
        let body = Body::from(serde_json::to_vec(body).unwrap());
        reply.send_response(Response::builder().status(code).body(body).unwrap());
        (path, sent)
    }

    #[tokio::test]
    async fn a_deployment_gets_a_replica_for_each_matching_base_by_one_patch_of_its_scale() {
        let (feed, _, mut server) = handler();
        for (name, zone) in [("n1", "a"), ("n2", "b"), ("n3", "a")] {
            feed.added(node(name, zone)).await.unwrap();
        }
        let scale = json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {}, "spec": { "replicas": 2 } });
        let (handled, (path, body)) =
            tokio::join!(feed.added(deployment("cart", 1, &["a"], 1)), answer(&mut server, 200, &scale));
        handled.unwrap();
        assert_eq!(path, "/apis/apps/v1/namespaces/default/deployments/cart/scale");
        let expected =
            json!({ "metadata": { "uid": "uid-cart", "resourceVersion": "1" }, "spec": { "replicas": 2 } });
        assert_eq!(body, expected);
        // The echo of the write, and a Deployment that matches already, cause no request: the server would not answer it.
        feed.modified(deployment("cart", 1, &["a"], 2)).await.unwrap();
        feed.added(deployment("all", 1, &["a", "b"], 3)).await.unwrap();
    }

    #[tokio::test]
    async fn a_conflict_is_retried_and_a_deployment_that_is_gone_is_no_failure() {
        let (feed, _, mut server) = handler();
        feed.added(node("n1", "a")).await.unwrap();
        let refusal = |code: u16| json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": "r" });
        for (code, transient) in [(409, Some(true)), (403, Some(false)), (404, None)] {
            let refusal = refusal(code);
            let (handled, _) = tokio::join!(
                feed.added(deployment("cart", 1, &["a"], 0)),
                answer(&mut server, code, &refusal)
            );
            assert_eq!(handled.err().map(|error| error.transient()), transient, "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bases_that_come_together_cause_one_trigger_and_a_heartbeat_causes_none() {
        let (feed, index, _server) = handler();
        index.apply(&Event::Added(Arc::new(deployment("cart", 1, &["a"], 0))));
        let sent = Arc::new(Mutex::new(0));
        let (counted, index) = (Arc::clone(&sent), Arc::clone(&index));
        let sender = TriggerSender::new(move |_| *counted.lock() += 1);
        let running = tokio::spawn(async move { BaseChanges(index).run(sender).await });
        for number in 0..5 {
            feed.event(Event::Added(Arc::new(node(&format!("n{number}"), "a")))).await.unwrap();
        }
        tokio::time::sleep(BATCH_DELAY * 2).await;
        assert_eq!(*sent.lock(), 1);
        feed.modified(node("n1", "a")).await.unwrap();
        tokio::time::sleep(BATCH_DELAY * 2).await;
        assert_eq!(*sent.lock(), 1, "nothing changed that decides where pods run");
        feed.deleted(node("n1", "a")).await.unwrap();
        tokio::time::sleep(BATCH_DELAY * 2).await;
        assert_eq!(*sent.lock(), 2);
        running.abort();
    }
}
