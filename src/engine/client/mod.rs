//! The client of the Kubernetes API that handlers use. It counts and records requests, and rejects writes outside the leadership term.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use staffetta_driver::RequestRecord;
use tokio::time::Instant;
use tower::{BoxError, service_fn};

use crate::base::metrics::ApiRequestMetrics;
use crate::engine::term::Term;

/// The URL parameter by which the watch requests of kube are recognized.
const WATCH: &str = "watch=true";

/// The response header with the id of the request in the audit log of the API server.
const AUDIT_ID: &str = "audit-id";

/// Wraps `client` so that each request is counted in `metrics`, and requests that can change something are only sent while `term` is
/// active. A write that still waits for a connection when the term ends is not sent.
pub(crate) fn wrap(client: Client, metrics: &Arc<ApiRequestMetrics>, term: &Term) -> Client {
    let namespace = client.default_namespace().to_owned();
    let valid_until = *client.valid_until();
    let (metrics, term) = (Arc::clone(metrics), term.clone());
    let service = service_fn(move |request: Request<Body>| {
        let (reads, term) = (reads(request.method()), term.clone());
        let response = send(client.clone(), Arc::clone(&metrics), request);
        async move { if reads { response.await } else { term.run(response).await? } }
    });
    ClientBuilder::new(service, namespace).with_valid_until(valid_until).build()
}

/// Returns `true` if a request with this method changes nothing.
fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Sends a request, and measures its duration until the response was read or dropped. The duration of a watch ends when the response
/// begins.
async fn send(
    client: Client,
    metrics: Arc<ApiRequestMetrics>,
    request: Request<Body>,
) -> Result<
    Response<impl http_body::Body<Data = <Body as http_body::Body>::Data, Error = kube::Error>>,
    BoxError,
> {
    let is_watch = request.uri().query().is_some_and(|query| query.split('&').any(|part| part == WATCH));
    let (method, started) = (request.method().clone(), Instant::now());
    let record = RequestRecord::start(method.as_str(), request.uri().path(), !reads(&method));
    let mut pending = PendingRequest { metrics, method, started, code: None, record };
    let response = client.send(request).await?;
    pending.code = Some(response.status());
    pending.record.set_status(response.status().as_u16());
    if let Some(id) = response.headers().get(AUDIT_ID).and_then(|id| id.to_str().ok()) {
        pending.record.set_request_id(id);
    }
    let pending = (!is_watch).then_some(pending);
    Ok(response.map(|body| {
        body.map_frame(move |frame| {
            // The response is being read: the request lasts until the body is dropped.
            let _: &Option<PendingRequest> = &pending;
            frame
        })
    }))
}

/// A request that has not ended. It is counted when this value is dropped. A request without a response is counted with the code
/// `<error>`.
struct PendingRequest {
    metrics: Arc<ApiRequestMetrics>,
    method: Method,
    started: Instant,
    code: Option<StatusCode>,
    /// The record of the request in the attempt of the handler that sent it; `staffetta explain` shows the requests of an attempt.
    record: RequestRecord,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.metrics.ended(&self.method, self.code, self.started.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
    use staffetta_handler::causes;

    use super::*;
    use staffetta_handler::BootTime;

    /// A server that responds according to the path.
    fn server() -> Client {
        Client::new(
            service_fn(|request: Request<Body>| async move {
                let answer =
                    |code| Response::builder().status(code).body(Body::from(b"{}".to_vec())).unwrap();
                match request.uri().path() {
                    "/made" | "/watched" => Ok(answer(StatusCode::CREATED)),
                    "/odd" => Ok(answer(StatusCode::IM_A_TEAPOT)),
                    "/silent" => std::future::pending().await,
                    _ => Err(io::Error::other("nobody is there")),
                }
            }),
            "home",
        )
    }

    struct Wrapped {
        client: Client,
        requests: Arc<ApiRequestMetrics>,
    }

    fn wrapped() -> Wrapped {
        let requests = Arc::new(ApiRequestMetrics::new("server"));
        Wrapped { client: wrap(server(), &requests, &Term::unlimited()), requests }
    }

    impl Wrapped {
        async fn request(&self, method: &str, path: &str) -> Result<Response<Body>, kube::Error> {
            self.client.send(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
        }
    }

    #[tokio::test]
    async fn a_response_and_an_error_are_passed_on_unchanged() {
        let wrapped = wrapped();
        assert_eq!(wrapped.client.default_namespace(), "home");
        assert_eq!(wrapped.request("GET", "/made").await.unwrap().status(), StatusCode::CREATED);
        let error = wrapped.request("GET", "/gone").await.expect_err("nobody answers");
        assert!(matches!(&error, kube::Error::Service(source) if source.to_string() == "nobody is there"));
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_is_counted_once_by_its_outcome() {
        let wrapped = wrapped();
        for (method, path) in [("POST", "/made"), ("PATCH", "/made"), ("PATCH", "/odd"), ("TRACE", "/made")] {
            drop(wrapped.request(method, path).await.unwrap());
        }
        wrapped.request("GET", "/gone").await.expect_err("nobody answers");
        let limit = Duration::from_secs(1);
        tokio::time::timeout(limit, wrapped.request("GET", "/silent")).await.expect_err("there is no answer");
        let counted = |method: &str, code: &str| wrapped.requests.count(method, code);
        assert_eq!((counted("POST", "201"), counted("PATCH", "201"), counted("OTHER", "201")), (1, 1, 1));
        assert_eq!(
            (counted("PATCH", "<other>"), counted("GET", "<error>"), counted("GET", "200")),
            (1, 2, 0)
        );
    }

    #[tokio::test]
    async fn a_request_ends_when_its_response_is_read_and_a_watch_when_it_begins() {
        let wrapped = wrapped();
        let counted = || wrapped.requests.count("GET", "201");
        let answer = wrapped.request("GET", "/made").await.unwrap();
        assert_eq!(counted(), 0);
        assert_eq!(answer.into_body().collect_bytes().await.unwrap(), "{}");
        assert_eq!(counted(), 1);
        let watch = wrapped.request("GET", "/watched?&watch=true").await.unwrap();
        assert_eq!(counted(), 2);
        drop(watch);
        assert_eq!(counted(), 2);
    }

    /// Returns a client that writes while `term` is active. Its server counts writes in `sent`, and responds to everything with an
    /// empty pod.
    fn fenced(term: &Term, sent: &Arc<AtomicUsize>) -> Client {
        let sent = Arc::clone(sent);
        let server = service_fn(move |request: Request<Body>| {
            sent.fetch_add(usize::from(request.method() != Method::GET), Relaxed);
            async { Ok::<_, BoxError>(Response::new(Body::from(b"{\"metadata\":{}}".to_vec()))) }
        });
        wrap(Client::new(server, "default"), &Arc::new(ApiRequestMetrics::new("server")), term)
    }

    async fn writes(pods: &Api<Pod>) -> Vec<Result<(), kube::Error>> {
        let patch = Patch::Merge(serde_json::json!({}));
        vec![
            pods.create(&PostParams::default(), &Pod::default()).await.map(drop),
            pods.patch("web", &PatchParams::default(), &patch).await.map(drop),
            pods.replace("web", &PostParams::default(), &Pod::default()).await.map(drop),
            pods.delete("web", &DeleteParams::default()).await.map(drop),
        ]
    }

    #[tokio::test]
    async fn a_process_that_does_not_lead_only_reads() {
        let (term, sent) = (Term::pending(), Arc::new(AtomicUsize::new(0)));
        let pods = Api::<Pod>::default_namespaced(fenced(&term, &sent));
        let refused = async |when: &str| {
            let before = sent.load(Relaxed);
            pods.get("web").await.unwrap_or_else(|error| panic!("{when}: {error}"));
            for written in writes(&pods).await {
                let error = causes(&written.expect_err(when));
                assert!(error.contains("this process does not hold the leader lease"), "{error}");
            }
            assert_eq!(sent.load(Relaxed), before, "{when}");
        };
        refused("before its term").await;
        term.extend(BootTime::now() + Duration::from_secs(3600));
        assert!(writes(&pods).await.iter().all(Result::is_ok));
        assert_eq!(sent.load(Relaxed), 4);
        term.extend(BootTime::now());
        refused("after its deadline").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waits_for_a_connection_while_the_term_ends_is_not_sent() {
        for ended_by_release in [false, true] {
            let (term, sent) = (Term::lasting(Duration::from_secs(3600)), Arc::new(AtomicUsize::new(0)));
            let (connected, count) = (Arc::new(tokio::sync::Notify::new()), Arc::clone(&sent));
            let waits = Arc::clone(&connected);
            let server = service_fn(move |_: Request<Body>| {
                let (waits, count) = (Arc::clone(&waits), Arc::clone(&count));
                async move {
                    waits.notified().await;
                    count.fetch_add(1, Relaxed);
                    Ok::<_, BoxError>(Response::new(Body::from(b"{\"metadata\":{}}".to_vec())))
                }
            });
            let client = Client::new(server, "default");
            let pods = Api::<Pod>::default_namespaced(wrap(
                client,
                &Arc::new(ApiRequestMetrics::new("server")),
                &term,
            ));
            let write = tokio::spawn(async move { writes(&pods).await });
            tokio::task::yield_now().await;
            if ended_by_release {
                term.end();
            } else {
                term.extend(BootTime::now());
            }
            connected.notify_one();
            let written = write.await.unwrap();
            assert!(written.iter().all(Result::is_err) && sent.load(Relaxed) == 0, "{ended_by_release}");
        }
    }
}
