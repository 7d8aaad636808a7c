//! The thin shell around each controller: asks what is due, does it, waits for a change.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tracing::{debug, warn};

use crate::call::{Call, Verb};
use crate::view::Changes;

/// How many calls of one controller are under way at a time.
const CONCURRENCY: usize = 16;

/// The wait before a call that failed is decided upon anew.
const RETRY: Duration = Duration::from_millis(500);

/// What is due.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) calls: Vec<Call>,
    /// After how long to ask again even if nothing changes.
    pub(crate) wake: Option<Duration>,
}

impl Plan {
    /// Asks again after `delay`, or earlier.
    pub(crate) fn wake_after(&mut self, delay: Duration) {
        self.wake = Some(self.wake.map_or(delay, |wake| wake.min(delay)));
    }
}

impl Extend<Call> for Plan {
    fn extend<T: IntoIterator<Item = Call>>(&mut self, calls: T) {
        self.calls.extend(calls);
    }
}

/// Does what `decide` says, whenever something changed, until a watch ends.
pub(crate) async fn run(client: Client, mut changes: Changes, mut decide: impl FnMut(Timestamp) -> Plan) {
    if !changes.listed().await {
        return;
    }
    let mut settled = Vec::new();
    loop {
        let mut plan = decide(Timestamp::now());
        if perform(&client, plan.calls.split_off(0), &mut settled).await.is_err() {
            plan.wake_after(RETRY);
        }
        let waited = tokio::select! {
            alive = changes.next() => alive,
            () = sleep(plan.wake) => true,
        };
        if !waited {
            return;
        }
    }
}

/// At least one call failed and is to be made again.
struct Failed;

/// Makes the calls. One that was made the last time, for the object as it still looks, is not made again: its effect has
/// not been heard of yet.
async fn perform(client: &Client, calls: Vec<Call>, settled: &mut Vec<Call>) -> Result<(), Failed> {
    let (waiting, due): (Vec<_>, Vec<_>) =
        calls.into_iter().partition(|call| call.seen.is_some() && settled.contains(call));
    *settled = waiting;
    let mut answers = stream::iter(due)
        .map(|call| async move {
            let made = make(client, &call).await;
            (call, made)
        })
        .buffer_unordered(CONCURRENCY);
    let mut result = Ok(());
    while let Some((call, made)) = answers.next().await {
        match made {
            Ok(()) => settled.push(call),
            Err(error) if outdated(&call, &error) => {
                debug!(kind = call.resource.kind, call.name, %error, "the view was behind; its next change follows");
                settled.push(call);
            }
            Err(error) => {
                warn!(kind = call.resource.kind, namespace = call.namespace, call.name, %error, "a call failed");
                result = Err(Failed);
            }
        }
    }
    result
}

async fn make(client: &Client, call: &Call) -> Result<(), kube::Error> {
    let request = call.request().map_err(kube::Error::BuildRequest)?;
    client.request_text(request).await.map(drop)
}

/// Whether the object is not any more as it was seen, so that its own change is what to wait for.
fn outdated(call: &Call, error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    match status.code {
        409 => true,
        404 => !matches!(call.verb, Verb::Create(_)),
        _ => causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating"),
    }
}

async fn sleep(delay: Option<Duration>) {
    match delay {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}
