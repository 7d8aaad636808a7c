//! The trace of the handling of an event.

use std::time::SystemTime;

use opentelemetry::trace::{Span as _, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context as TraceContext, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;
use staffetta_handler::{Action, AnyEvent, Context, Message, ObjectRef};
use tracing::{Instrument, Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The name of the first span of a trace, which lasts from the arrival of the event to the end of its handling.
const EVENT: &str = "event";
/// The name of the span of the handler, which contains the spans of its attempts and requests.
pub(super) const HANDLE: &str = "handle";
/// The name of the span of the time for which the event waited in a queue.
const QUEUE: &str = "queue";

/// The traces of one handler.
pub(crate) struct Traces {
    handler: String,
    tracer: Option<SdkTracer>,
}

/// The trace of one event: from its arrival until the handler has succeeded or given up. It ends when its last clone is dropped.
#[derive(Clone)]
pub(crate) struct EventTrace {
    trace: TraceContext,
    /// The span of the handler.
    span: Span,
}

impl EventTrace {
    /// Runs an attempt of the handler within its span.
    pub(crate) async fn record<T>(&self, attempt: impl Future<Output = T>) -> T {
        attempt.instrument(self.span.clone()).await
    }

    /// Marks the trace as failed if `action` says that the attempts ended with a failure. Returns `true` if so.
    pub(crate) fn end_if_failed(&self, action: &Action) -> bool {
        let failure = action.failure();
        if let Some(failure) = failure {
            self.trace.span().set_status(Status::error(failure.error.to_string()));
        }
        failure.is_some()
    }
}

impl Traces {
    /// Creates the traces of the handler with the name `handler`. Without a `tracer`, no traces are recorded.
    pub(crate) fn new(handler: &str, tracer: Option<SdkTracer>) -> Self {
        Self { handler: handler.to_owned(), tracer }
    }

    /// Starts the trace of an event, and records its time in the queue. Returns `None` if the event is not sampled.
    pub(crate) fn start(&self, event: &AnyEvent, context: &Context<'_>) -> Option<EventTrace> {
        let tracer = self.tracer.as_ref()?;
        let arrived = SystemTime::now() - context.queued_since().elapsed();
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
        let span = info_span!(parent: None, HANDLE);
        // An error means that no layer records the span.
        let _ = span.set_parent(trace.clone());
        Some(EventTrace { trace, span })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use staffetta_handler::Event;
    use staffetta_handler::testing::pod;
    use tracing::instrument::WithSubscriber;

    use super::*;

    #[tokio::test]
    async fn only_a_tracer_creates_spans() {
        let event = Event::Added(Arc::new(pod("default", "web"))).erase();
        let tracer = SdkTracerProvider::default().tracer("test");
        for (tracer, traced) in [(None, false), (Some(tracer), true)] {
            let traces = Traces::new("vif", tracer);
            let attempt = async {
                match traces.start(&event, &Context::detached()) {
                    Some(trace) => trace.record(async { !Span::current().is_none() }).await,
                    None => !Span::current().is_none(),
                }
            };
            // It records all spans.
            assert_eq!(attempt.with_subscriber(tracing_subscriber::registry()).await, traced);
        }
    }
}
