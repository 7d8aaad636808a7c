//! The last look before a write: who does not lead changes nothing.

use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Method, Request};
use tower::{BoxError, Layer, Service};

use crate::leadership::{NotLeading, Term};

/// Refuses every request that could change something while the term does not hold. One that still waits for its connection
/// when the term ends is not sent either.
#[derive(Clone)]
pub(crate) struct FenceLayer(Term);

impl FenceLayer {
    /// Lets writes pass while `term` holds.
    pub(crate) fn new(term: Term) -> Self {
        Self(term)
    }
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fence<S>;

    fn layer(&self, inner: S) -> Fence<S> {
        Fence { inner, term: self.0.clone() }
    }
}

/// See [`FenceLayer`].
#[derive(Clone)]
pub(crate) struct Fence<S> {
    inner: S,
    term: Term,
}

impl<S, B> Service<Request<B>> for Fence<S>
where
    S: Service<Request<B>>,
    S::Response: 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !reads && !self.term.holds() {
            return Box::pin(async { Err(NotLeading.into()) });
        }
        let answer = self.inner.call(request);
        let term = self.term.clone();
        Box::pin(async move {
            let answer = if reads { answer.await } else { term.during(answer).await? };
            answer.map_err(Into::into)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
    use kube::client::Body;
    use kube::{Client, Error};
    use staffetta_handler::causes;

    use super::*;
    use crate::leadership::BootTime;

    /// A client behind a fence. Its server answers everything with an empty pod, and counts.
    fn client(term: &Term) -> Client {
        let server = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, BoxError>(http::Response::new(Body::from(b"{\"metadata\":{}}".to_vec())))
        });
        Client::new(FenceLayer::new(term.clone()).layer(server), "default")
    }

    async fn writes(pods: &Api<Pod>) -> Vec<Result<(), Error>> {
        let patch = Patch::Merge(serde_json::json!({}));
        vec![
            pods.create(&PostParams::default(), &Pod::default()).await.map(drop),
            pods.patch("web", &PatchParams::default(), &patch).await.map(drop),
            pods.replace("web", &PostParams::default(), &Pod::default()).await.map(drop),
            pods.delete("web", &DeleteParams::default()).await.map(drop),
        ]
    }

    #[tokio::test]
    async fn who_does_not_lead_reads_and_writes_nothing() {
        let term = Term::not_begun();
        let pods = Api::<Pod>::default_namespaced(client(&term));
        let refused = async |when: &str| {
            pods.get("web").await.unwrap_or_else(|error| panic!("{when}: {error}"));
            for written in writes(&pods).await {
                let error = causes(&written.expect_err(when));
                assert!(error.contains("this process does not hold the lease of the leader"), "{error}");
            }
        };
        refused("before its term").await;
        term.lasts_until(BootTime::now() + Duration::from_secs(3600));
        assert!(writes(&pods).await.iter().all(Result::is_ok));
        term.lasts_until(BootTime::now());
        refused("after its deadline").await;
    }
}
