//! The endpoint `/debug/check` of the admin server: `POST` runs the checks of the handlers and drivers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use staffetta_handler::Finding;
use tokio::sync::Semaphore;

use crate::base::health::Condition;
use crate::observe::check::{CheckReport, Diagnostics};
use crate::observe::state::ControllerState;

const NOT_ON_LOOPBACK: (StatusCode, &str) =
    (StatusCode::FORBIDDEN, "checks run only where `admin.listen` is a loopback address\n");
const BUSY: (StatusCode, &str) = (StatusCode::TOO_MANY_REQUESTS, "another check runs; try again\n");

/// Returns the route of `/debug/check`. The checks send requests to external systems, so they run for one `POST` at a time, and only if the
/// server listens on a loopback address (`loopback` is `true`); otherwise `POST` is rejected.
pub(super) fn routes(loopback: bool) -> Router<Arc<ControllerState>> {
    let permits = Arc::new(Semaphore::new(1));
    let route = if loopback {
        post(async move |State(controller): State<Arc<ControllerState>>| {
            alone(&permits, check(&controller)).await.map(Json)
        })
    } else {
        post(async || NOT_ON_LOOPBACK)
    };
    Router::new().route("/debug/check", route)
}

/// Runs `check`, or returns [`BUSY`] while another one runs.
async fn alone(
    permits: &Semaphore,
    check: impl Future<Output = CheckReport>,
) -> Result<CheckReport, (StatusCode, &'static str)> {
    let Ok(_permit) = permits.try_acquire() else { return Err(BUSY) };
    Ok(check.await)
}

/// Runs the readiness checks and the checks of all handlers and drivers, and returns their findings.
async fn check(controller: &ControllerState) -> CheckReport {
    let mut report = CheckReport { one_of: controller.replica_identity(), ..CheckReport::default() };
    report.add("readiness", controller.conditions().into_iter().map(condition));
    Diagnostics::run_all(&controller.diagnostics(), &mut report).await;
    report
}

/// Converts a condition of readiness to a finding.
fn condition(Condition { name, reason }: Condition) -> Finding {
    let remedy = "the controller tries again by itself; correct what the message names";
    match reason {
        None => Finding::ok(name, ""),
        Some(reason) => Finding::failed(name, reason, remedy),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use axum::body::Body;
    use futures_util::FutureExt;
    use http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::base::health::Health;
    use crate::base::metrics::Metrics;
    use crate::observe::state::LeadershipSummary;

    fn controller() -> Arc<ControllerState> {
        let (health, metrics) = (Arc::<Health>::default(), Arc::new(Metrics::new("server", &[])));
        Health::set_unmet(&health, "leadership", "taking over");
        let leadership = || LeadershipSummary {
            name: "staffetta".into(),
            leads: true,
            role: "leader".into(),
            slow_renewals: 0,
            losses: 0,
        };
        Arc::new(ControllerState::new("here".into(), Vec::new(), &health, &metrics, leadership))
    }

    async fn asked(router: Router) -> StatusCode {
        router.oneshot(Request::post("/debug/check").body(Body::empty()).unwrap()).await.unwrap().status()
    }

    #[tokio::test]
    async fn one_check_runs_at_a_time_until_it_ends_or_its_client_goes() {
        let permits = Semaphore::new(1);
        let mut first = Box::pin(alone(&permits, pending()));
        assert!((&mut first).now_or_never().is_none());
        assert_eq!(alone(&permits, async { CheckReport::default() }).await.unwrap_err(), BUSY);
        drop(first);
        for _ in 0..2 {
            assert!(alone(&permits, async { CheckReport::default() }).await.is_ok());
        }
    }

    #[tokio::test]
    async fn only_a_server_on_loopback_runs_checks() {
        for (loopback, code) in [(false, StatusCode::FORBIDDEN), (true, StatusCode::OK)] {
            assert_eq!(asked(routes(loopback).with_state(controller())).await, code);
        }
    }
}
