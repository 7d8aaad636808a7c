//! The wrapper that makes a trace of the handling of an event.

use std::pin::pin;
use std::time::SystemTime;

use opentelemetry::trace::{Span, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context as TraceContext, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;
use staffetta_handler::{AnyEvent, Context, EventHandler, HandlerError, Message, ObjectRef};
use tracing::{Instrument, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The name of the first span of a trace, which lasts from the arrival of the event to the end of its handling.
const EVENT: &str = "event";
/// The name of the span of the handler, which contains the spans of its attempts and requests.
pub(super) const HANDLE: &str = "handle";
/// The name of the span of the time for which the event waited in a queue.
const QUEUE: &str = "queue";

/// A wrapper that records an OpenTelemetry trace of the handling of each sampled event, if there is a tracer.
pub struct Traced<H> {
    inner: H,
    handler: String,
    tracer: Option<SdkTracer>,
}

impl<H> Traced<H> {
    /// Wraps the chain `inner` of the handler with the name `handler`. Without a `tracer`, no traces are recorded.
    pub(crate) fn new(inner: H, handler: &str, tracer: Option<SdkTracer>) -> Self {
        Self { inner, handler: handler.to_owned(), tracer }
    }

    /// Starts the trace of an event that arrived at `arrived`, and records its time in the queue. Returns `None` if the event is not
    /// sampled.
    fn start(&self, tracer: &SdkTracer, event: &AnyEvent, arrived: SystemTime) -> Option<TraceContext> {
        let builder = tracer.span_builder(EVENT).with_kind(SpanKind::Consumer).with_start_time(arrived);
        let mut root = builder.start_with_context(tracer, &TraceContext::new());
        if !root.is_recording() {
            return None;
        }
        let ObjectRef { kind, namespace, name, uid } = event.object_ref();
        root.update_name(format!("{}: {kind}", self.handler));
        root.set_attributes([
            KeyValue::new("handler", self.handler.clone()),
            KeyValue::new("change", format!("{:?}", event.change())),
            KeyValue::new("k8s.object.kind", kind.to_string()),
            KeyValue::new("k8s.object.name", name.to_owned()),
            KeyValue::new("k8s.object.uid", uid.to_owned()),
        ]);
        if let Some(namespace) = namespace {
            root.set_attribute(KeyValue::new("k8s.namespace.name", namespace.to_owned()));
        }
        let trace = TraceContext::new().with_span(root);
        tracer.span_builder(QUEUE).with_start_time(arrived).start_with_context(tracer, &trace).end();
        Some(trace)
    }
}

impl<H: EventHandler<AnyEvent>> EventHandler<AnyEvent> for Traced<H> {
    async fn handle(&self, event: &AnyEvent, context: &Context<'_>) -> Result<(), HandlerError> {
        // Pinned here, because an argument of an `async fn` takes up twice its size in the future of every message.
        let handled = pin!(self.inner.handle(event, context));
        let Some(tracer) = &self.tracer else { return handled.await };
        let arrived = SystemTime::now() - context.queued_since().elapsed();
        let Some(trace) = self.start(tracer, event, arrived) else { return handled.await };
        let span = info_span!(parent: None, HANDLE);
        // An error means that no layer records the span.
        let _ = span.set_parent(trace.clone());
        let result = handled.instrument(span).await;
        if let Err(error) = &result {
            trace.span().set_status(Status::error(error.to_string()));
        }
        trace.span().end();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use staffetta_handler::Event;
    use staffetta_handler::testing::{Fault, pod};
    use tracing::Span;
    use tracing::instrument::WithSubscriber;

    use super::*;

    /// A handler that fails when it runs in a span.
    struct Outside;

    impl EventHandler<AnyEvent> for Outside {
        async fn handle(&self, _: &AnyEvent, _: &Context<'_>) -> Result<(), HandlerError> {
            if Span::current().is_none() { Ok(()) } else { Err(Fault::permanent("in a span").into()) }
        }
    }

    #[tokio::test]
    async fn only_a_tracer_creates_spans() {
        let event = Event::Added(Arc::new(pod("default", "web"))).erase();
        let tracer = SdkTracerProvider::default().tracer("test");
        for (tracer, outside) in [(None, true), (Some(tracer), false)] {
            let traced = Traced::new(Outside, "vif", tracer);
            // It records all spans.
            let subscriber = tracing_subscriber::registry();
            let handled = traced.handle(&event, &Context::detached()).with_subscriber(subscriber).await;
            assert_eq!(handled.is_ok(), outside);
        }
    }
}
