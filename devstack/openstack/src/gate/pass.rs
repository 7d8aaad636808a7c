//! Forwards a request to a service, and its response to the client.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};

use super::fault::Fault;
use super::{Seen, Shared, lock, tags};

/// An error that closes the connection without an answer.
type Cut = io::Error;

/// Passes a call on; an error cuts its connection.
pub(super) async fn pass(
    shared: &Arc<Shared>,
    url: &str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Cut> {
    let under_way = UnderWay::begin(shared);
    let came = Instant::now();
    let (parts, body) = request.into_parts();
    let asked = parts.uri.path_and_query().map_or("/", |asked| asked.as_str()).to_owned();
    let place = shared.note(Seen {
        method: parts.method.clone(),
        path_and_query: asked.clone(),
        came,
        answered: None,
    });
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    if asked.starts_with("/network") {
        let token = parts.headers.get("X-Auth-Token").and_then(|token| token.to_str().ok());
        token.map(|token| lock(&shared.token).replace(token.to_owned()));
    }
    let (shared, url) = (Arc::clone(shared), url.to_owned());
    // A service goes on with what it has begun, whatever becomes of who asked for it.
    let answer = tokio::spawn(async move {
        let answer = shared.answer(&url, &parts.method, &asked, parts.headers, body).await?;
        lock(&shared.seen)[place].answered = Some((Instant::now(), answer.status()));
        drop(under_way);
        Ok(answer)
    });
    answer.await.unwrap_or_else(|_| Err(cut()))
}

impl Shared {
    fn note(&self, seen: Seen) -> usize {
        let mut all = lock(&self.seen);
        all.push(seen);
        all.len() - 1
    }

    async fn answer(
        self: &Arc<Self>,
        url: &str,
        method: &Method,
        asked: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Full<Bytes>>, Cut> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(cut());
        }
        let missing = self.tags_missing.load(Ordering::Relaxed) && asked.starts_with("/network");
        let refusal = missing.then(|| tags::refusal(method, asked, &body)).flatten();
        match refusal.or_else(|| self.plan.take(method, asked)) {
            Some(Fault::Answer { status, retry_after, body }) => {
                return Ok(answered(status, retry_after, body));
            }
            Some(Fault::Late(delay)) => {
                tokio::time::sleep(delay).await;
                drop(self.forward(url, method, asked, headers, body, missing).await);
                return std::future::pending().await;
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Cut) => return Err(cut()),
            Some(Fault::CutAfter) => {
                self.forward(url, method, asked, headers, body, missing).await?;
                return Err(cut());
            }
            Some(Fault::Delay(delay)) => tokio::time::sleep(delay).await,
            None => {}
        }
        self.forward(url, method, asked, headers, body, missing).await
    }

    /// Asks the service. One that cannot be reached is a connection that is cut.
    async fn forward(
        &self,
        url: &str,
        method: &Method,
        asked: &str,
        mut headers: HeaderMap,
        body: Bytes,
        tags_missing: bool,
    ) -> Result<Response<Full<Bytes>>, Cut> {
        let found = self.services.iter().find_map(|(name, to)| Some((to, asked.strip_prefix(name)?)));
        let Some((to, path)) = found else {
            return Ok(answered(StatusCode::NOT_FOUND, None, "there is no such service".into()));
        };
        for name in [header::HOST, header::CONTENT_LENGTH, header::CONNECTION, header::ACCEPT_ENCODING] {
            headers.remove(name);
        }
        let request = self.http.request(method.clone(), format!("{to}{path}")).headers(headers).body(body);
        let answer = request.send().await.map_err(io::Error::other)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut body = answer.bytes().await.map_err(io::Error::other)?.to_vec();
        if tags_missing {
            body = tags::strip(&body).unwrap_or(body);
        }
        let mut back = Response::builder().status(status);
        for (name, value) in &headers {
            if ![header::CONTENT_LENGTH, header::CONNECTION, header::TRANSFER_ENCODING].contains(name) {
                back = back.header(name, value);
            }
        }
        Ok(back.body(Full::from(self.named(url, body))).expect("the headers were valid before"))
    }

    /// The body with this gate in the place of the services: in the catalogue, and in the links of pages.
    fn named(&self, url: &str, body: Vec<u8>) -> Vec<u8> {
        let Ok(mut text) = String::from_utf8(body.clone()) else { return body };
        for (name, to) in &self.services {
            if text.contains(to.as_str()) {
                text = text.replace(to.as_str(), &format!("{url}{name}"));
            }
        }
        text.into_bytes()
    }
}

fn answered(status: StatusCode, retry_after: Option<u64>, body: String) -> Response<Full<Bytes>> {
    let kind = if body.starts_with('{') { "application/json" } else { "text/html" };
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

/// A call that is not done yet.
struct UnderWay(Arc<Shared>);

impl UnderWay {
    fn begin(shared: &Arc<Shared>) -> Self {
        shared.under_way.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

fn cut() -> Cut {
    io::Error::other("cut on purpose")
}
