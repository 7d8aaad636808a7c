//! Creates ports of pods. While few calls are in flight, each port is requested by a call of its own. Ports that are requested when more
//! calls are in flight wait, and share the next bulk call.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use parking_lot::Mutex;
use staffetta_driver::{DriverError, Reason, RequestLog};
use tokio::sync::oneshot;

use super::api::NeutronApi;
use super::wire::{NewPort, PortBody};
use crate::error::{OpenStackError, Result};

/// The maximum number of ports that one call creates. A larger one takes Neutron hardly less time per port, and all other calls wait longer.
const MAX_BATCH: usize = 16;
/// The minimum number of ports in a batch, unless fewer are waiting: up to this number of waiting ports are requested by one call instead
/// of several.
const MIN_BATCH: usize = 8;
/// The maximum number of calls in flight is divided by this number to get the maximum number of batches of ports in flight. A batch makes
/// up to two calls at a time, so at most a quarter of the calls are creations of ports. More of them would wait for the workers of Neutron,
/// and the polls of the ports that were created behind them.
const CREATION_DIVISOR: usize = 8;
/// The maximum number of calls in flight that create the ports of one batch singly, after the bulk call of the batch was rejected.
const MAX_SINGLE_CALLS: usize = 2;
const STEP: &str = "create a port";

/// The result of the creation of one port.
type Created = Result<PortBody>;

/// A creator of the ports of pods. Each caller waits for its own port.
///
/// While few calls are in flight, a port is requested at once. Later ports wait and share the next bulk call, which takes Neutron about
/// half as long per port as single calls. A call goes on if one of its callers is cancelled, so that no port of another caller is created
/// twice.
#[derive(Clone, Debug)]
pub(crate) struct PortCreator {
    neutron: NeutronApi,
    /// The maximum number of batches of ports in flight, each of which is a call, or [`MAX_SINGLE_CALLS`] single calls at a time
    /// after a rejected bulk call.
    max_calls: usize,
    queue: Arc<Mutex<CreationQueue>>,
}

/// The ports that wait to be requested, and the number of batches in flight.
#[derive(Debug, Default)]
struct CreationQueue {
    waiting: VecDeque<PendingPort>,
    /// The number of batches of ports in flight, each of which makes one or two calls at a time.
    calls: usize,
}

/// A port, the channel to the caller that waits for it, and the log of that caller's requests. If the caller is cancelled after the call
/// was sent, the port is found later by its ownership mark.
type PendingPort = (NewPort, oneshot::Sender<Created>, Arc<RequestLog>);

impl PortCreator {
    /// Creates the port creator, with an empty queue.
    pub(crate) fn new(neutron: NeutronApi) -> Self {
        let max_calls = neutron.service.max_concurrency().div_ceil(CREATION_DIVISOR);
        Self { neutron, max_calls, queue: Arc::default() }
    }

    /// Creates a port, by a call of its own or together with other ports.
    pub(crate) async fn create(&self, port: NewPort) -> Created {
        let (caller, created) = oneshot::channel();
        let starts = {
            let mut queue = self.queue.lock();
            queue.waiting.push_back((port, caller, RequestLog::current()));
            let starts = queue.calls < self.max_calls;
            queue.calls += usize::from(starts);
            starts
        };
        if starts {
            tokio::spawn(self.clone().run());
        }
        created.await.unwrap_or_else(|_| Err(unanswered("the call was cancelled")))
    }

    /// Creates batches of ports, one after the other, while ports are waiting.
    async fn run(self) {
        while let Some(batch) = self.next_batch() {
            let this = self.clone();
            // A panic ends this batch, and not the next one.
            drop(tokio::spawn(async move { this.create_batch(batch).await }).await);
        }
    }

    /// Returns the ports of the next batch. If no ports are waiting, records that one batch fewer is in flight and returns `None`.
    fn next_batch(&self) -> Option<Vec<PendingPort>> {
        let mut queue = self.queue.lock();
        queue.waiting.retain(|(_, caller, _)| !caller.is_closed());
        let size = batch_size(queue.waiting.len(), self.max_calls);
        if size == 0 {
            queue.calls -= 1;
            return None;
        }
        Some(queue.waiting.drain(..size).collect())
    }

    /// Creates the ports by one call, and sends each caller its result. If the call is rejected, and the cause may be one of the ports,
    /// creates each port by a call of its own.
    async fn create_batch(&self, batch: Vec<PendingPort>) {
        if batch.len() == 1 {
            return self.create_each(batch).await;
        }
        let ports: Vec<&NewPort> = batch.iter().map(|(port, _, _)| port).collect();
        let shared = Arc::<RequestLog>::default();
        let created = shared.collect(self.neutron.create_ports("create ports of pods", &ports)).await;
        for (_, _, log) in &batch {
            log.extend(&shared);
        }
        match created {
            Ok(created) => distribute(batch, created),
            Err(error) if may_be_caused_by_one_port(&error) => self.create_each(batch).await,
            Err(error) => {
                for (_, caller, _) in batch {
                    drop(caller.send(Err(error.clone())));
                }
            }
        }
    }

    /// Creates each port by a call of its own, so that only the caller of an invalid port gets the error. After an error because a quota or
    /// a subnet is exhausted, the ports with the same project and subnets are not requested any more: their callers get the same error.
    async fn create_each(&self, batch: Vec<PendingPort>) {
        let exhausted = Mutex::new(Vec::<(NewPort, OpenStackError)>::new());
        let create = async |(port, caller, log): PendingPort| {
            let is_same = |(other, _): &&(NewPort, _)| {
                other.project_id == port.project_id && other.fixed_ips == port.fixed_ips
            };
            let known = exhausted.lock().iter().find(is_same).map(|(_, error)| error.clone());
            if let Some(error) = known {
                return drop(caller.send(Err(error)));
            }
            let created = log.collect(self.neutron.create_port(STEP, &port)).await;
            if let Err(error) = &created
                && has_no_room(error)
            {
                exhausted.lock().push((port, error.clone()));
            }
            drop(caller.send(created));
        };
        let waiting = batch.into_iter().filter(|(_, caller, _)| !caller.is_closed());
        stream::iter(waiting).for_each_concurrent(MAX_SINGLE_CALLS, create).await;
    }
}

/// Returns `true` if a request for ports was rejected because a quota or a subnet is exhausted, so that a request for fewer may succeed.
/// Returns `false` if the error is ambiguous.
pub(super) fn has_no_room(error: &DriverError) -> bool {
    matches!(error.reason(), Reason::Quota | Reason::NoAddress) && !error.ambiguous()
}

/// Returns the number of ports in the next call while `waiting` ports wait: an equal share of them for each of `calls` calls, but at least
/// [`MIN_BATCH`] (or all that wait, if they are fewer) and at most [`MAX_BATCH`].
fn batch_size(waiting: usize, calls: usize) -> usize {
    waiting.div_ceil(calls.max(1)).clamp(MIN_BATCH, MAX_BATCH).min(waiting)
}

/// Returns `true` if the cause of the rejection may be a single port, or the number of ports. A rejection with `Retry-After` has another
/// cause: the service did not check the ports.
fn may_be_caused_by_one_port(error: &OpenStackError) -> bool {
    let was_examined = |status| {
        (400..500).contains(&status) && ![401, 408, 429].contains(&status) && error.retry_after().is_none()
    };
    !error.ambiguous() && error.status().is_some_and(was_examined)
}

/// Sends each caller the created port that has the description and the network of the caller's request, because the order of the response
/// is not specified.
fn distribute(batch: Vec<PendingPort>, mut created: Vec<PortBody>) {
    for (NewPort { description, network_id, .. }, caller, _) in batch {
        let is_its = |port: &PortBody| port.description == description && port.network_id == network_id;
        let port = created.iter().position(is_its).map(|index| created.swap_remove(index));
        drop(caller.send(port.ok_or_else(|| unanswered("the response lacks this port"))));
    }
}

/// Returns the error of a port whose creation no response confirms. It is ambiguous: the port may have been created.
fn unanswered(reason: &str) -> OpenStackError {
    OpenStackError::unavailable(STEP, reason).maybe_applied(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ports_are_divided_among_calls_where_that_is_worth_it() {
        assert_eq!(
            [0, 1, 8, 9, 32, 33, 40, 64, 1000].map(|waiting| batch_size(waiting, 4)),
            [0, 1, 8, 8, 8, 9, 10, 16, 16]
        );
        assert_eq!([7, 12, 90].map(|waiting| batch_size(waiting, 1)), [7, 12, 16]);
    }

    #[test]
    fn only_after_errors_that_one_port_may_cause_each_is_created_alone() {
        let rejected = |status| OpenStackError::rejected(STEP, status, br#"{"NeutronError":"no"}"#);
        for (status, one) in
            [(400, true), (404, true), (409, true), (413, true), (401, false), (429, false), (503, false)]
        {
            assert_eq!(may_be_caused_by_one_port(&rejected(status)), one, "{status}");
        }
        let throttled = rejected(413).after(std::time::Duration::from_secs(7));
        assert!(!may_be_caused_by_one_port(&throttled), "the rate was exceeded, not the size");
        assert!(!may_be_caused_by_one_port(&rejected(409).maybe_applied(true)));
        assert!(!may_be_caused_by_one_port(&unanswered("the connection was closed")));
    }
}
