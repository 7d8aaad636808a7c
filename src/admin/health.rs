//! `/livez` and `/readyz`.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;

use crate::health::Condition;
use crate::state;

pub(super) async fn livez(State(state): State<Arc<state::State>>) -> (StatusCode, String) {
    let stuck = state.health.stuck();
    if stuck.is_empty() {
        return (StatusCode::OK, "ok\n".into());
    }
    (StatusCode::INTERNAL_SERVER_ERROR, format!("stuck: {}\n", stuck.join(", ")))
}

/// With `?verbose` each condition on a line of its own, as kube-apiserver writes it; without it those that are not met.
pub(super) async fn readyz(
    State(state): State<Arc<state::State>>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let conditions = state.health.conditions();
    let ready = conditions.iter().all(|condition| condition.reason.is_none());
    let verbose = query
        .is_some_and(|query| query.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    let body = if verbose { each(&conditions, ready) } else { unmet(&conditions, ready) };
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, body)
}

fn each(conditions: &[Condition], ready: bool) -> String {
    let mut body = String::new();
    for Condition { name, reason } in conditions {
        let _ = match reason {
            None => writeln!(body, "[+]{name} ok"),
            Some(reason) => writeln!(body, "[-]{name}: {reason}"),
        };
    }
    body + if ready { "readyz check passed\n" } else { "readyz check failed\n" }
}

fn unmet(conditions: &[Condition], ready: bool) -> String {
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
    use crate::metrics::Figures;
    use crate::state::{Leadership, Sources};

    fn state(health: Health) -> Arc<state::State> {
        let sources =
            Sources { leadership: Box::new(Leadership::unopposed), kubernetes_events: Box::new(Vec::new) };
        let figures = Arc::new(Figures::new("server", &[]));
        Arc::new(state::State::new("here".into(), &Arc::new(health), &figures, sources))
    }

    #[tokio::test]
    async fn what_is_stuck_ends_the_life_and_what_waits_does_not() {
        let health = Health::default();
        health.waits("driver a", "no answer");
        let stuck = Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = Arc::clone(&stuck);
        health.watch_over(move || told.lock().unwrap().clone());
        let state = state(health);
        assert_eq!(livez(State(Arc::clone(&state))).await, (StatusCode::OK, "ok\n".into()));
        stuck.lock().unwrap().push("watch Pod: it ended by itself".to_owned());
        let dead = (StatusCode::INTERNAL_SERVER_ERROR, "stuck: watch Pod: it ended by itself\n".into());
        assert_eq!(livez(State(state)).await, dead);
    }
}
