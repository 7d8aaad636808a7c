//! `/livez` and `/readyz`.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;

use crate::health::Condition;
use crate::state;

/// Returns an error if a task of the program is stuck.
pub(super) async fn livez(State(state): State<Arc<state::ControllerState>>) -> (StatusCode, String) {
    liveness(&state.stuck())
}

fn liveness(stuck: &[String]) -> (StatusCode, String) {
    if stuck.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    (StatusCode::INTERNAL_SERVER_ERROR, format!("stuck: {}\n", stuck.join(", ")))
}

/// Returns the unmet conditions, or with `?verbose` each condition on a line of its own as kube-apiserver does.
pub(super) async fn readyz(
    State(state): State<Arc<state::ControllerState>>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let conditions = state.conditions();
    let ready = conditions.iter().all(|condition| condition.reason.is_none());
    let verbose = query
        .is_some_and(|query| query.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    let body =
        if verbose { all_conditions(&conditions, ready) } else { unmet_conditions(&conditions, ready) };
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
}

fn all_conditions(conditions: &[Condition], ready: bool) -> String {
    let mut body = String::new();
    for Condition { name, reason } in conditions {
        let _ = match reason {
            None => writeln!(body, "[+]{name} ok"),
            Some(reason) => writeln!(body, "[-]{name}: {reason}"),
        };
    }
    body + if ready { "readyz check passed\n" } else { "readyz check failed\n" }
}

fn unmet_conditions(conditions: &[Condition], ready: bool) -> String {
    if ready {
        return "ok\n".into();
    }
    let mut body = String::from("not ready\n");
    for Condition { name, reason } in conditions {
        if let Some(reason) = reason {
            let _ = writeln!(body, "{name}: {reason}");
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;
    use crate::metrics::Metrics;
    use crate::state::LeadershipSummary;

    fn state(health: Health) -> Arc<state::ControllerState> {
        let (health, metrics) = (Arc::new(health), Arc::new(Metrics::new("server", &[])));
        let leadership = LeadershipSummary::unopposed;
        Arc::new(state::ControllerState::new("here".into(), Vec::new(), &health, &metrics, leadership))
    }

    #[tokio::test]
    async fn a_stuck_task_fails_the_liveness_probe_and_an_unmet_condition_does_not() {
        let health = Health::default();
        health.set_unmet("driver a", "no answer");
        assert_eq!(livez(State(state(health))).await, (StatusCode::OK, "ok\n".into()));
        let dead =
            (StatusCode::INTERNAL_SERVER_ERROR, "stuck: watch Pod: its task ended unexpectedly\n".into());
        assert_eq!(liveness(&["watch Pod: its task ended unexpectedly".to_owned()]), dead);
    }
}
