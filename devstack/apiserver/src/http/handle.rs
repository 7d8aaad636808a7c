//! One request from end to end: path, faults, body, engine, record.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};

use super::call::Call;
use super::object::perform;
use super::path::{Path, Target};
use super::query::Query;
use super::sent::Sent;
use super::{answer, path, watch};
use crate::audit::RequestRecord;
use crate::connections::Socket;
use crate::plan::{Asked, Fault};
use crate::shared::Shared;
use crate::status::Status;
use crate::{discovery, openapi};

/// The largest body that is read, as on a real server.
const BODY_BYTES: usize = 3 * 1024 * 1024;

/// Answers a request.
pub(crate) async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(socket): ConnectInfo<Socket>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    match path::parse(parts.uri.path()) {
        None => answer::refusal(&Status::no_such_path()),
        Some(Path::Target(target)) => of_target(&shared, &socket, target, &parts, body).await,
        Some(path) if parts.method == Method::GET => fixed(&shared, &path),
        Some(_) => answer::refusal(&Status::method_not_allowed()),
    }
}

/// The paths that show what there is.
fn fixed(shared: &Shared, path: &Path) -> Response {
    let found = shared.with(|cluster| {
        let catalog = &cluster.catalog;
        match path {
            Path::Version => Some(discovery::version()),
            Path::CoreVersions => Some(discovery::core_versions()),
            Path::Groups => Some(discovery::group_list(catalog)),
            Path::Group(group) => discovery::group(catalog, group),
            Path::Resources(group, version) => discovery::resource_list(catalog, group, version),
            Path::OpenApiIndex => Some(openapi::index(catalog)),
            Path::OpenApi(group_version) => openapi::document(catalog, group_version),
            Path::Health | Path::Target(_) => None,
        }
    });
    match (path, found) {
        (Path::Health, _) => answer::text("ok"),
        (_, Some(body)) => answer::json(StatusCode::OK, body.to_string()),
        (_, None) => answer::refusal(&Status::no_such_path()),
    }
}

async fn of_target(
    shared: &Arc<Shared>,
    socket: &Socket,
    target: Target,
    parts: &Parts,
    body: Body,
) -> Response {
    let verb = match verb(&parts.method, &target, &parts.uri) {
        Ok(verb) => verb,
        Err(status) => return answer::refusal(&status),
    };
    let fault = shared.plan.meet(&Asked {
        verb,
        resource: &target.plural,
        subresource: target.subresource.as_deref().unwrap_or_default(),
        namespace: target.namespace.as_deref().unwrap_or_default(),
        name: target.name.as_deref().unwrap_or_default(),
    });
    let record = |code| shared.audit.push(record(verb, &target, parts, code));
    match fault {
        Some(Fault::Hang) => {
            record(0);
            return std::future::pending().await;
        }
        Some(Fault::Cut) => {
            record(0);
            return cut(socket).await;
        }
        Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
        Some(Fault::Refuse { code, retry_after }) => {
            record(code);
            return answer::refusal(&Fault::refusal(code, retry_after));
        }
        Some(Fault::CutAfter) | None => {}
    }
    let response = answered(shared, verb, &target, parts, body).await.unwrap_or_else(|s| answer::refusal(&s));
    if fault == Some(Fault::CutAfter) {
        record(0);
        return cut(socket).await;
    }
    record(response.status().as_u16());
    response
}

/// Ends the connection; what is returned is never sent.
async fn cut(socket: &Socket) -> Response {
    if let Some(wire) = &socket.0 {
        wire.cut();
    }
    std::future::pending().await
}

async fn answered(
    shared: &Arc<Shared>,
    verb: &'static str,
    target: &Target,
    parts: &Parts,
    body: Body,
) -> Result<Response, Status> {
    let body = to_bytes(body, BODY_BYTES)
        .await
        .map_err(|_| Status::of_code(413, format!("Request entity too large: limit is {BODY_BYTES}")))?;
    let call = Call::new(shared, verb, target, Query::of(&parts.uri)?, header(&parts.headers, &ACCEPT))?;
    let content_type = header(&parts.headers, &CONTENT_TYPE);
    if verb == "watch" {
        return watch::begin(shared, &call);
    }
    let sent = Sent { content_type, bytes: &body };
    let done = shared.with(|cluster| perform(cluster, &call, &sent))?;
    Ok(answer::json(done.code, done.body(&call)))
}

fn verb(method: &Method, target: &Target, uri: &http::Uri) -> Result<&'static str, Status> {
    let watches = Query::of(uri)?.flag("watch")?;
    match (method.as_str(), target.name.is_some()) {
        ("GET", true) => Ok("get"),
        ("GET", false) if watches => Ok("watch"),
        ("GET", false) => Ok("list"),
        ("POST", _) => Ok("create"),
        ("PUT", true) => Ok("update"),
        ("PATCH", true) => Ok("patch"),
        ("DELETE", true) => Ok("delete"),
        ("DELETE", false) => Ok("deletecollection"),
        _ => Err(Status::method_not_allowed()),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn record(verb: &str, target: &Target, parts: &Parts, code: u16) -> RequestRecord {
    RequestRecord {
        verb: verb.into(),
        resource: target.plural.clone(),
        subresource: target.subresource.clone().unwrap_or_default(),
        namespace: target.namespace.clone().unwrap_or_default(),
        name: target.name.clone().unwrap_or_default(),
        dry_run: Query::of(&parts.uri).is_ok_and(|query| query.values("dryRun") == ["All"]),
        user_agent: header(&parts.headers, &USER_AGENT).into(),
        code,
    }
}
