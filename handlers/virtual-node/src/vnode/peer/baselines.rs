//! Keeps the index of peer Deployments up to date, from which a replica answers the baseline queries of bases.

use std::convert::Infallible;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::apps::v1::Deployment;
use staffetta_handler::{
    Action, HandlerError, Identity, Registration, Source, Trigger, TriggerHandler, TriggerSender,
};

use super::index::PeerIndex;
use super::module_deployments;

/// Keeps a [`PeerIndex`] of Deployments up to date, and lets it answer baseline queries (with which containers a base is to start) once it
/// contains all existing Deployments. Its registration is [joined](Registration::join) to that of the handler that answers the queries.
pub struct PeerBaselines(Arc<PeerIndex>);

impl PeerBaselines {
    /// Creates the handler that keeps `index` up to date.
    pub fn new(index: Arc<PeerIndex>) -> Self {
        Self(index)
    }

    /// Builds the registration of the handler: a watch of Deployments, and a trigger once all existing ones are in the index.
    pub fn registration(self) -> Registration<Self> {
        let index = Arc::clone(&self.0);
        let registration = Registration::new(self)
            .index::<Deployment>(Arc::clone(&index))
            .on_trigger::<BaselinesComplete>()
            .source(Once);
        module_deployments(registration, index.environment())
    }
}

/// A trigger that shows that all existing Deployments are in the index: a handler gets no trigger before its indexes are filled.
#[derive(Clone, Debug)]
struct BaselinesComplete(Identity);

impl Trigger for BaselinesComplete {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

impl TriggerHandler<BaselinesComplete> for PeerBaselines {
    type Error = Infallible;

    async fn on_trigger(&self, _: &BaselinesComplete) -> Result<Action, Infallible> {
        self.0.completed();
        Ok(Action::done())
    }
}

/// A source that sends [`BaselinesComplete`] once.
struct Once;

#[async_trait]
impl Source for Once {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        let name = "module-deployments".to_owned();
        sender.send(BaselinesComplete(Identity::of::<Deployment>(None, name.clone(), name)));
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::tunnel::QueryBaselineRequest;
    use staffetta_handler::testing::Feed;

    use super::super::decide::tests::deployment;
    use super::*;

    #[tokio::test]
    async fn no_baseline_is_known_before_all_deployments_are() {
        let index = Arc::new(PeerIndex::new("dev"));
        let feed = Feed::new(PeerBaselines::new(Arc::clone(&index)).registration());
        let request = QueryBaselineRequest {
            custom_labels: [("zone".to_owned(), "a".to_owned())].into(),
            ..QueryBaselineRequest::default()
        };
        let ask = || {
            let containers = index.baseline(&"b-1".parse().unwrap(), "http", "east", &request)?;
            Some(containers.into_iter().map(|container| container.name).collect::<Vec<_>>())
        };
        feed.added(deployment("cart", 1, &["a"], 1)).await.unwrap();
        assert_eq!(ask(), None, "an empty or partial list would be wrong");
        let identity = Identity::of::<Deployment>(None, "all".into(), "all".into());
        feed.trigger(BaselinesComplete(identity)).await.unwrap();
        assert_eq!(ask(), Some(vec!["cart".to_owned()]));
        feed.deleted(deployment("cart", 1, &["a"], 1)).await.unwrap();
        assert_eq!(ask(), Some(Vec::new()), "there is none for it");
    }
}
