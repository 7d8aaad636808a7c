//! What stands around the client of the Kubernetes API.

mod fence;

use kube::Client;
use kube::client::ClientBuilder;
use tower::service_fn;

use crate::leadership::Term;
use fence::FenceLayer;

/// The client of whoever may write only while `term` holds.
pub(crate) fn fenced(client: Client, term: &Term) -> Client {
    let namespace = client.default_namespace().to_owned();
    let valid_until = *client.valid_until();
    let server = service_fn(move |request| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    ClientBuilder::new(server, namespace)
        .with_layer(&FenceLayer::new(term.clone()))
        .with_valid_until(valid_until)
        .build()
}
