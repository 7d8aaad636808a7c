//! The queries of bases for their baseline (the modules with which they start) that wait for an answer.

use std::collections::HashMap;
use std::time::Duration;

use staffetta_driver::tunnel::{NodeId, QueryBaselineRequest, TunnelSender};
use tokio::task::{self, JoinSet};
use tracing::warn;

use super::link::{LinkClient, LinkError};
use super::message::DropReason;
use crate::module::Module;

/// The maximum number of baseline queries that wait for their answer at the same time.
const WAITING: usize = 10_000;

/// The baseline queries that wait for their answer, at most one of each base. Dropping it cancels them.
#[derive(Default)]
pub(super) struct BaselineQueries {
    tasks: JoinSet<NodeId>,
    /// The id of the task that answers the query of each base.
    bases: HashMap<NodeId, task::Id>,
}

impl BaselineQueries {
    /// Starts a task that asks the handler for the baseline of a base and publishes the answer to `topic`, with `expiry` over MQTT 5.
    /// Nothing is published if the baseline is not known. Fails if a query of the same base waits already, or if [`WAITING`] queries wait.
    pub(super) fn ask(
        &mut self,
        base: NodeId,
        request: QueryBaselineRequest,
        (topic, expiry): (String, Duration),
        client: &LinkClient,
        sender: &TunnelSender,
    ) -> Result<(), DropReason> {
        if self.bases.len() >= WAITING || self.bases.contains_key(&base) {
            return Err("earlier baseline queries still wait".to_owned());
        }
        let (id, client, sender) = (base.clone(), client.clone(), sender.clone());
        let task = self.tasks.spawn(async move {
            if let Err(error) = answer(&client, &sender, &base, request, topic, expiry).await {
                warn!(%base, error, "a base does not get its baseline");
            }
            base
        });
        self.bases.insert(id, task.id());
        Ok(())
    }

    /// Waits until the task of a baseline query has ended, with or without an answer. Never completes while no query waits.
    pub(super) async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(Ok(base)) => drop(self.bases.remove(&base)),
            Some(Err(panicked)) => self.bases.retain(|_, task| *task != panicked.id()),
            None => std::future::pending().await,
        }
    }
}

/// Asks the handler for the baseline of `base`, and queues the answer for publication to `topic`. Over MQTT 5, the broker drops the answer
/// if the base has not received it within `expiry`.
async fn answer(
    client: &LinkClient,
    sender: &TunnelSender,
    base: &NodeId,
    request: QueryBaselineRequest,
    topic: String,
    expiry: Duration,
) -> Result<(), LinkError> {
    let containers = sender.query_baseline(base, request).await?;
    let payload = serde_json::to_vec(&Module::of_all(&containers, base))?;
    client.publish(topic, payload, expiry).map(drop)
}

#[cfg(test)]
mod tests {
    use staffetta_virtual_node::vnode::{TunnelLimits, channel};

    use super::super::link;
    use super::super::options::MqttTunnelOptions;
    use super::*;

    #[tokio::test]
    async fn each_of_many_bases_that_start_at_once_has_one_query_that_waits() {
        let (client, _events) = link::open(&MqttTunnelOptions::default(), None, "test");
        let (sender, _receiver) = channel(TunnelLimits::default());
        let mut queries = BaselineQueries::default();
        let mut ask = |number: usize| {
            let (base, to) = (format!("b-{number}").parse().unwrap(), ("topic".to_owned(), Duration::ZERO));
            queries.ask(base, QueryBaselineRequest::default(), to, &client, &sender)
        };
        assert!((0..500).all(|number| ask(number).is_ok()));
        assert!(ask(7).is_err(), "it has asked already");
    }
}
