//! The endpoint `/debug/log-level` of the admin server: `GET` returns the filter of the log, `PUT` replaces it until the program ends.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

use crate::base::telemetry::{self, FilterError};

/// Returns the route of `/debug/log-level`. If the server does not listen on a loopback address (`loopback` is `false`), everyone who
/// reaches it could silence the log, so `PUT` is rejected.
pub(super) fn routes<S: Clone + Send + Sync + 'static>(loopback: bool) -> Router<S> {
    let route = get(async || result(telemetry::log_filter().map(|filter| filter + "\n")));
    let route = if loopback { route.put(put) } else { route.put(async || REJECTED) };
    Router::new().route("/debug/log-level", route)
}

const REJECTED: (StatusCode, &str) =
    (StatusCode::FORBIDDEN, "the log level can be changed only where `admin.listen` is a loopback address\n");

/// Replaces the filter of the log by the body of a request, such as `debug`.
async fn put(filter: String) -> (StatusCode, String) {
    result(telemetry::set_log_filter(filter.trim()).map(|()| String::new()))
}

/// Converts the result of reading or replacing the filter to a response: 200, 400 for an invalid filter, 503 for any other error.
fn result(result: Result<String, FilterError>) -> (StatusCode, String) {
    match result {
        Ok(body) => (StatusCode::OK, body),
        Err(error @ FilterError::Invalid(_)) => (StatusCode::BAD_REQUEST, format!("{error}\n")),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn only_a_server_on_loopback_lets_clients_change_the_log_level() {
        for (loopback, code) in [(false, StatusCode::FORBIDDEN), (true, StatusCode::BAD_REQUEST)] {
            let request = Request::put("/debug/log-level").body(Body::from("odd")).unwrap();
            assert_eq!(routes::<()>(loopback).oneshot(request).await.unwrap().status(), code);
        }
    }
}
