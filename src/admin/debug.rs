//! `/debug/state`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;

use crate::state::{self, Document, MAX_LIMIT};

/// How the program is, and the objects that the query asks for.
pub(super) async fn state(
    State(state): State<Arc<state::State>>,
    query: Result<Query<state::Query>, QueryRejection>,
) -> Result<Json<Document>, (StatusCode, String)> {
    let Query(query) = query.map_err(|rejection| refused(&rejection.body_text()))?;
    if query.limit() > MAX_LIMIT {
        return Err(refused(&format!("`limit` is at most {MAX_LIMIT}")));
    }
    let handlers: Vec<_> = state.figures.handlers().collect();
    if let Some(handler) = query.handler.as_deref().filter(|handler| !handlers.contains(handler)) {
        let known = handlers.join("`, `");
        return Err(refused(&format!("the handler `{handler}` is not enabled; those are: `{known}`")));
    }
    Ok(Json(state.document(&query)))
}

fn refused(why: &str) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, format!("{why}\n"))
}
