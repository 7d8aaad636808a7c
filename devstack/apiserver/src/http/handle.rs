//! Handles a request to the embedded cluster.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, StatusCode};

use super::call::Call;
use super::object::perform;
use super::sent::Sent;
use super::{review, watch};
use crate::front::{Asked, Backend, Fixed, Query, Question, answer};
use crate::shared::Shared;
use crate::status::Status;
use crate::{discovery, openapi};

/// The largest body that is read, as on a real server.
const BODY_BYTES: usize = 3 * 1024 * 1024;

/// The cluster of this process, as the one who answers.
pub(crate) struct Embedded(pub(crate) Arc<Shared>);

impl Backend for Embedded {
    async fn answer(&self, asked: &Result<Asked, Status>, request: Request) -> Option<Response> {
        let answered = match asked {
            Ok(Asked::Objects(question)) => {
                let (parts, body) = request.into_parts();
                about_objects(&self.0, question, &parts, body).await
            }
            Ok(Asked::Fixed(path)) => fixed(&self.0, path),
            Err(status) => Err(status.clone()),
        };
        Some(answered.unwrap_or_else(|status| answer::refusal(&status)))
    }
}

/// The paths that show what there is.
fn fixed(shared: &Shared, path: &Fixed) -> Result<Response, Status> {
    let found = shared.with(|cluster| {
        let catalog = &cluster.catalog;
        match path {
            Fixed::Version => Some(discovery::version()),
            Fixed::CoreVersions => Some(discovery::core_versions()),
            Fixed::Groups => Some(discovery::group_list(catalog)),
            Fixed::Group(group) => discovery::group(catalog, group),
            Fixed::Resources(group, version) => discovery::resource_list(catalog, group, version),
            Fixed::OpenApiIndex => Some(openapi::index(catalog)),
            Fixed::OpenApi(group_version) => openapi::document(catalog, group_version),
            Fixed::Health => None,
        }
    });
    match (path, found) {
        (Fixed::Health, _) => Ok(answer::text("ok")),
        (_, Some(body)) => Ok(answer::json(StatusCode::OK, body.to_string())),
        (_, None) => Err(Status::no_such_path()),
    }
}

async fn about_objects(
    shared: &Arc<Shared>,
    question: &Question,
    parts: &Parts,
    body: Body,
) -> Result<Response, Status> {
    let body = to_bytes(body, BODY_BYTES)
        .await
        .map_err(|_| Status::of_code(413, format!("Request entity too large: limit is {BODY_BYTES}")))?;
    let target = &question.target;
    let is_review = ["subjectaccessreviews", "selfsubjectaccessreviews"].contains(&&*target.plural);
    if is_review && (question.verb, &*target.group) == ("create", "authorization.k8s.io") {
        let review = Sent { content_type: header(&parts.headers, &CONTENT_TYPE), bytes: &body }.json()?;
        let review = shared.with(|cluster| review::subject_access(cluster, review));
        return Ok(answer::json(StatusCode::CREATED, review.to_string()));
    }
    let call = Call::new(shared, question, Query::of(&parts.uri)?, header(&parts.headers, &ACCEPT))?;
    let content_type = header(&parts.headers, &CONTENT_TYPE);
    if question.verb == "watch" {
        return watch::begin(shared, &call);
    }
    let sent = Sent { content_type, bytes: &body };
    let done = shared.with(|cluster| perform(cluster, &call, &sent))?;
    Ok(answer::json(done.code, done.body(&call)))
}

fn header<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
