//! The client of the Kubernetes API as the program uses it: the one that it was given, in layers.

mod fence;
mod measured;
mod rehearse;
mod silence;

use std::sync::Arc;

use kube::Client;
use kube::client::ClientBuilder;
use tower::layer::layer_fn;
use tower::service_fn;

use crate::leadership::Term;
use crate::metrics::Requests;
use fence::FenceLayer;
use measured::Measured;
pub(crate) use rehearse::{Echo, Echoes, rehearsed};
pub(crate) use silence::Silence;

/// Puts every layer around `client` at once: each wrap costs a queue of its own, a layer within one costs nothing.
///
/// The first layer is next to the server: what a later one refuses or answers itself was never asked, and counts as no
/// request. Nothing is written before `term` begins or after it ends.
pub(crate) fn wrap(client: Client, requests: &Arc<Requests>, silence: &Arc<Silence>, term: &Term) -> Client {
    let namespace = client.default_namespace().to_owned();
    let valid_until = *client.valid_until();
    let server = service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    ClientBuilder::new(server, namespace)
        .with_layer(&layer_fn(|inner| Measured::new(inner, requests, silence)))
        .with_layer(&FenceLayer::new(term.clone()))
        .with_valid_until(valid_until)
        .build()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use tokio::time::advance;

    use super::*;

    /// Answers by what the path says.
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
        requests: Arc<Requests>,
        silence: Arc<Silence>,
    }

    fn wrapped() -> Wrapped {
        let (requests, silence) = (Arc::new(Requests::new("server")), Arc::<Silence>::default());
        Wrapped { client: wrap(server(), &requests, &silence, &Term::for_ever()), requests, silence }
    }

    impl Wrapped {
        async fn ask(&self, method: &str, path: &str) -> Result<Response<Body>, kube::Error> {
            self.client.send(Request::builder().method(method).uri(path).body(Body::empty()).unwrap()).await
        }
    }

    #[tokio::test]
    async fn an_answer_and_an_error_pass_as_they_are() {
        let wrapped = wrapped();
        assert_eq!(wrapped.client.default_namespace(), "home");
        assert_eq!(wrapped.ask("GET", "/made").await.unwrap().status(), StatusCode::CREATED);
        let error = wrapped.ask("GET", "/gone").await.expect_err("nobody answers");
        assert!(matches!(&error, kube::Error::Service(source) if source.to_string() == "nobody is there"));
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_is_counted_once_by_what_came_of_it() {
        let wrapped = wrapped();
        for (method, path) in [("POST", "/made"), ("PATCH", "/made"), ("PATCH", "/odd"), ("TRACE", "/made")] {
            drop(wrapped.ask(method, path).await.unwrap());
        }
        wrapped.ask("GET", "/gone").await.expect_err("nobody answers");
        let limit = Duration::from_secs(1);
        tokio::time::timeout(limit, wrapped.ask("GET", "/silent")).await.expect_err("there is no answer");
        let counted = |method: &str, code: &str| wrapped.requests.counted(method, code);
        assert_eq!((counted("POST", "201"), counted("PATCH", "201"), counted("OTHER", "201")), (1, 1, 1));
        assert_eq!(
            (counted("PATCH", "<other>"), counted("GET", "<error>"), counted("GET", "200")),
            (1, 2, 0)
        );
    }

    #[tokio::test]
    async fn a_request_lasts_until_its_answer_is_read_and_a_watch_until_it_begins() {
        let wrapped = wrapped();
        let counted = || wrapped.requests.counted("GET", "201");
        let answer = wrapped.ask("GET", "/made").await.unwrap();
        assert_eq!(counted(), 0);
        assert_eq!(answer.into_body().collect_bytes().await.unwrap(), "{}");
        assert_eq!(counted(), 1);
        let watch = wrapped.ask("GET", "/watched?&watch=true").await.unwrap();
        assert_eq!(counted(), 2);
        drop(watch);
        assert_eq!(counted(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_watch_says_ends_the_silence_and_a_refusal_or_another_request_does_not() {
        let wrapped = wrapped();
        for path in ["/watched", "/odd"] {
            wrapped.silence.listen(path);
        }
        let silent = |path: &str| wrapped.silence.last_heard(path).map(|heard| heard.elapsed().as_secs());
        advance(Duration::from_secs(10)).await;
        for path in ["/watched", "/odd?watch=true", "/gone?watch=true"] {
            drop(wrapped.ask("GET", path).await);
        }
        assert_eq!((silent("/watched"), silent("/odd"), silent("/gone")), (Some(10), Some(10), None));
        let answer = wrapped.ask("GET", "/watched?&watch=true").await.unwrap();
        assert_eq!(silent("/watched"), Some(0), "it begins");
        advance(Duration::from_secs(10)).await;
        answer.into_body().collect_bytes().await.unwrap();
        assert_eq!(silent("/watched"), Some(0), "it says something");
        assert_eq!(wrapped.silence.reached("/watched"), 0);
        advance(Duration::from_secs(10)).await;
        drop(
            wrapped.ask("GET", "/watched?&watch=true&resourceVersion=1000&timeoutSeconds=60").await.unwrap(),
        );
        assert_eq!((wrapped.silence.reached("/watched"), wrapped.silence.reached("/odd")), (1000, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_asked_for_as_soon_as_the_last_one_began_is_an_error_and_no_request() {
        let wrapped = wrapped();
        wrapped.silence.listen("/watched");
        let asked = || wrapped.requests.counted("GET", "201");
        wrapped.ask("GET", "/watched?&watch=true").await.unwrap();
        let error = wrapped.ask("GET", "/watched?&watch=true").await.expect_err("it is too soon");
        assert!(error.to_string().contains("the watch ended at once"), "{error}");
        assert!(staffetta_handler::Failure::transient(&error));
        drop(wrapped.ask("GET", "/watched").await.unwrap());
        drop(wrapped.ask("GET", "/made?watch=true").await.unwrap());
        drop(wrapped.ask("GET", "/made?watch=true").await.unwrap());
        assert_eq!(asked(), 4, "a list, and watches to which nobody listens, are asked for at any time");
        advance(Duration::from_secs(1)).await;
        wrapped.ask("GET", "/watched?&watch=true").await.unwrap();
        assert_eq!(asked(), 5);
    }
}
