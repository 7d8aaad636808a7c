//! An OpenTelemetry collector, which keeps the spans that it receives.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// The collector, and the spans that it has received.
pub(crate) struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    /// Starts a collector on a free port.
    pub(crate) async fn start() -> Self {
        let spans = Arc::<Mutex<Vec<Span>>>::default();
        let received = Arc::clone(&spans);
        let traces = post(async move |body: Bytes| {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            received.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/v1/traces", traces);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, spans }
    }

    /// The URL for `traces.otlp_endpoint`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The spans of the trace that begins with `root`.
    pub(crate) fn trace(&self, root: &Span) -> Vec<Span> {
        let mut spans = self.spans();
        spans.retain(|span| span.trace_id == root.trace_id);
        spans
    }

    /// All spans received so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.lock().unwrap().clone()
    }

    /// The first spans of all traces of the object with this name.
    pub(crate) fn roots(&self, object: &str) -> Vec<Span> {
        let mut spans = self.spans();
        spans.retain(|span| span.parent_span_id.is_empty() && attribute(span, "k8s.object.name") == object);
        spans
    }
}

/// The value of an attribute of a span, as text; empty without the attribute.
pub(crate) fn attribute(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|KeyValue { value, .. }| value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// The names of the spans from the root of the trace to `span`, joined with ` > `.
pub(crate) fn path(trace: &[Span], span: &Span) -> String {
    match trace.iter().find(|other| other.span_id == span.parent_span_id) {
        Some(parent) => format!("{} > {}", path(trace, parent), span.name),
        None => span.name.clone(),
    }
}
