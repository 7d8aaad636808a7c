//! The shell that runs each controller: it computes the due calls, sends them, and waits for a change.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tracing::{debug, warn};

use crate::call::{Call, Verb};
use crate::view::Changes;

/// The maximum number of concurrent calls of one controller.
const CONCURRENCY: usize = 16;

/// The wait before a call that failed is decided upon anew.
const RETRY: Duration = Duration::from_millis(500);

/// Calls that are due.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) calls: Vec<Call>,
    /// The delay before the next round even if nothing changes.
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
    let mut done = Vec::new();
    loop {
        let mut plan = decide(Timestamp::now());
        if perform(&client, std::mem::take(&mut plan.calls), &mut done).await.is_err() {
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

/// The calls whose effect has not been heard of yet, and those that are to be made: one that was settled the last time,
/// for the object as it still looks, is not made again.
fn divide(calls: Vec<Call>, done: &[Call]) -> (Vec<Call>, Vec<Call>) {
    calls.into_iter().partition(|call| call.seen.is_some() && done.contains(call))
}

/// Makes the calls that are to be made.
async fn perform(client: &Client, calls: Vec<Call>, done: &mut Vec<Call>) -> Result<(), Failed> {
    let (unheard, due) = divide(calls, done);
    *done = unheard;
    let mut answers = stream::iter(due)
        .map(|call| async move {
            let made = make(client, &call).await;
            (call, made)
        })
        .buffer_unordered(CONCURRENCY);
    let mut result = Ok(());
    while let Some((call, made)) = answers.next().await {
        match made {
            Ok(()) => done.push(call),
            Err(error) if outdated(&call, &error) => {
                debug!(kind = call.resource.kind, call.name, %error, "the view was behind; its next change follows");
                done.push(call);
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

/// Returns `true` if the object changed meanwhile, so that the event of that change is awaited.
fn outdated(call: &Call, error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    match (&call.verb, status.code) {
        // Any other conflict of a new object, such as one about a quota, passes.
        (Verb::Create(_), 409) => status.reason == "AlreadyExists",
        (Verb::Create(_), 404) => false,
        (_, 404 | 409) => true,
        _ => causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating"),
    }
}

async fn sleep(delay: Option<Duration>) {
    match delay {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use crate::testing::{object, pod};

    fn status_call(version: &str, phase: &str) -> Call {
        let pod =
            pod(json!({ "metadata": { "namespace": "shop", "name": "web", "resourceVersion": version } }));
        Call::status(&pod, json!({ "phase": phase }))
    }

    fn create_call() -> Call {
        Call::create(&pod(json!({ "metadata": { "namespace": "shop", "name": "web" } })))
    }

    fn answer(status: serde_json::Value) -> kube::Error {
        kube::Error::Api(object::<Status>(status).boxed())
    }

    #[test]
    fn a_call_is_not_made_again_for_the_object_as_it_still_looks() {
        let done = [status_call("1", "Running"), create_call()];
        let calls = vec![
            status_call("1", "Running"),
            status_call("2", "Running"),
            status_call("1", "Failed"),
            create_call(),
        ];
        let (unheard, due) = divide(calls.clone(), &done);
        assert_eq!((unheard, due), (calls[..1].to_vec(), calls[1..].to_vec()), "a name may be free again");
    }

    #[test]
    fn a_late_view_is_no_failure() {
        let (create, change) = (create_call(), status_call("1", "Running"));
        assert!(outdated(&change, &answer(json!({ "code": 409, "reason": "Conflict" }))));
        assert!(outdated(&change, &answer(json!({ "code": 404, "reason": "NotFound" }))));
        assert!(outdated(&create, &answer(json!({ "code": 409, "reason": "AlreadyExists" }))));
        let causes = json!([{ "reason": "NamespaceTerminating" }]);
        assert!(outdated(&create, &answer(json!({ "code": 403, "details": { "causes": causes } }))));
        assert!(!outdated(&create, &answer(json!({ "code": 409, "reason": "Conflict" }))), "a quota is busy");
        assert!(!outdated(&create, &answer(json!({ "code": 404 }))), "its namespace is not there yet");
        assert!(!outdated(&change, &answer(json!({ "code": 500 }))));
    }
}
