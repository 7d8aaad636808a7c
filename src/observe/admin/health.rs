//! The endpoints `/livez` and `/readyz` of the admin server.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;

use crate::base::health::Condition;
use crate::observe::state;

/// Returns 200, or 500 with a description of each watch that is stuck because of a bug in the program.
pub(super) async fn livez(State(state): State<Arc<state::ControllerState>>) -> (StatusCode, String) {
    match state.stuck().as_slice() {
        [] => (StatusCode::OK, "ok\n".into()),
        stuck => (StatusCode::INTERNAL_SERVER_ERROR, format!("stuck: {}\n", stuck.join(", "))),
    }
}

/// Returns 200 if all conditions of readiness are met, else 503 with the unmet conditions. With `?verbose`, it lists all conditions,
/// one on each line, in the form of kube-apiserver.
pub(super) async fn readyz(
    State(state): State<Arc<state::ControllerState>>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let conditions = state.conditions();
    let ready = conditions.iter().all(|condition| condition.reason.is_none());
    let verbose = query
        .is_some_and(|query| query.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    let line = |Condition { name, reason }: &Condition| match reason {
        Some(reason) if verbose => format!("[-]{name}: {reason}\n"),
        Some(reason) => format!("{name}: {reason}\n"),
        None if !verbose => String::new(),
        // A driver is checked until it answers once: later failures are those of objects.
        None => match name.strip_prefix("driver ").map(|driver| state.metrics.last_requests(driver)) {
            Some(requests) => {
                let parts: Vec<_> = std::iter::once("ok at the start".to_owned()).chain(requests).collect();
                format!("[+]{name} {}\n", parts.join("; "))
            }
            None => format!("[+]{name} ok\n"),
        },
    };
    let lines: String = conditions.iter().map(line).collect();
    let body = match (verbose, ready) {
        (true, true) => lines + "readyz check passed\n",
        (true, false) => lines + "readyz check failed\n",
        (false, true) => "ok\n".to_owned(),
        (false, false) => format!("not ready\n{lines}"),
    };
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Client;
    use kube::client::Body;
    use staffetta_driver::{RequestObserver, RequestOutcome};
    use staffetta_handler::{Registration, ResourceEventHandler};
    use tower::service_fn;

    use super::*;
    use crate::base::config::RelayOptions;
    use crate::base::health::Health;
    use crate::base::metrics::Metrics;
    use crate::engine::pipeline::{self, HandlerReports};
    use crate::engine::term::Term;
    use crate::engine::watcher::Watcher;
    use crate::observe::check::Diagnostics;
    use crate::observe::state::{LeadershipSummary, RunningHandlers};

    struct Idle;

    impl ResourceEventHandler<Pod> for Idle {
        type Error = Infallible;
    }

    /// A client that panics in the task of the watch.
    fn defect() -> Client {
        let answer = async |_: Request<Body>| -> Result<Response<Body>, Infallible> { panic!("as ordered") };
        Client::new(service_fn(answer), "default")
    }

    fn state(health: &Arc<Health>) -> state::ControllerState {
        let leadership = || LeadershipSummary {
            name: "staffetta".into(),
            leads: true,
            role: "unopposed".into(),
            slow_renewals: 0,
            losses: 0,
        };
        let metrics = Arc::new(Metrics::new("server", &[]));
        state::ControllerState::new("here".into(), Vec::new(), health, &metrics, leadership)
    }

    #[tokio::test(start_paused = true)]
    async fn readyz_shows_when_the_services_of_a_driver_last_answered() {
        let health = Arc::default();
        for driver in ["driver mqtt", "driver octavia", "driver openstack"] {
            Health::set_met(&health, driver);
        }
        let state = Arc::new(state(&health));
        let (cloud, time) = (Arc::clone(&state.metrics.cloud_requests), Duration::ZERO);
        let lines = async || readyz(State(Arc::clone(&state)), RawQuery(Some("verbose".into()))).await.1;
        let begun = "[+]driver mqtt ok at the start\n[+]driver octavia ok at the start\n[+]driver openstack ok at the start";
        assert_eq!(lines().await, format!("{begun}\nreadyz check passed\n"));
        cloud.ended("identity", "POST", RequestOutcome::Success, time);
        cloud.ended("network", "GET", RequestOutcome::NotFound, time);
        tokio::time::advance(Duration::from_secs(38)).await;
        cloud.ended("identity", "POST", RequestOutcome::Unanswered, time);
        tokio::time::advance(Duration::from_secs(2)).await;
        let identity = "identity: last request 2 s ago, unanswered; it last worked 40 s ago";
        let network = "network: last request 40 s ago, not_found";
        assert_eq!(lines().await, format!("{begun}; {identity}; {network}\nreadyz check passed\n"));
    }

    #[tokio::test]
    async fn a_stuck_watch_fails_the_liveness_probe_and_an_unmet_condition_does_not() {
        let health = Arc::default();
        Health::set_unmet(&health, "driver a", "no answer");
        let state = Arc::new(state(&health));
        let handler = Registration::new(Idle).on::<Pod>().erase();
        let handlers = vec![("idle".to_owned(), handler)];
        let pipeline = pipeline::build(
            handlers,
            &RelayOptions::default(),
            &Term::unlimited(),
            &HandlerReports::default(),
        );
        let pipeline = Arc::new(pipeline);
        let watcher = Arc::new(Watcher::new(defect(), Arc::clone(&pipeline)));
        let diagnostics = Arc::new(Diagnostics::new((Vec::new(), Vec::new())));
        let scope = pipeline::HandlerScope::Leader;
        let running = Arc::new(RunningHandlers { scope, pipeline, watcher, diagnostics });
        state.set_running(&running);
        assert_eq!(livez(State(Arc::clone(&state))).await, (StatusCode::OK, "ok\n".into()));
        running.watcher.add(&running.pipeline.kinds()[0]);
        let stuck = async {
            while state.stuck().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), stuck).await.expect("the task of the watch ends");
        let dead =
            (StatusCode::INTERNAL_SERVER_ERROR, "stuck: watch Pod: its task ended unexpectedly\n".into());
        assert_eq!(livez(State(state)).await, dead);
    }
}
