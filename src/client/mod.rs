//! The client of the Kubernetes API as the program uses it: the one that it was given, in layers.

mod measured;
mod silence;

use std::sync::Arc;

use kube::Client;
use kube::client::ClientBuilder;
use tower::layer::layer_fn;
use tower::service_fn;

use crate::metrics::Requests;
use measured::Measured;
pub(crate) use silence::Silence;

/// Puts every layer around `client` at once: each wrap costs a queue of its own, a layer within one costs nothing.
///
/// The first layer is next to the server: what a later one refuses or answers itself was never asked, and counts as no
/// request.
pub(crate) fn wrap(client: Client, requests: &Arc<Requests>, silence: &Arc<Silence>) -> Client {
    let namespace = client.default_namespace().to_owned();
    let valid_until = *client.valid_until();
    let server = service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    ClientBuilder::new(server, namespace)
        .with_layer(&layer_fn(|inner| Measured::new(inner, requests, silence)))
        .with_valid_until(valid_until)
        .build()
}

#[cfg(test)]
mod tests {
    use std::io;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn an_answer_and_an_error_pass_as_they_are() {
        let server = service_fn(|request: Request<Body>| async move {
            match request.uri().path() {
                "/ok" => Ok(Response::builder().status(StatusCode::CREATED).body(Body::empty()).unwrap()),
                _ => Err(io::Error::other("nobody is there")),
            }
        });
        let client = wrap(Client::new(server, "home"), &Arc::default());
        assert_eq!(client.default_namespace(), "home");
        let ask = async |path: &str| client.send(Request::get(path).body(Body::empty()).unwrap()).await;
        assert_eq!(ask("/ok").await.unwrap().status(), StatusCode::CREATED);
        let error = ask("/gone").await.expect_err("nobody answers");
        assert!(matches!(&error, kube::Error::Service(source) if source.to_string() == "nobody is there"));
    }
}
