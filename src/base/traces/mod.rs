//! Traces of the handling of events, which are exported to an OpenTelemetry collector.
//!
//! A trace begins when the watch receives an event, and ends when the handler has succeeded or given up. Its spans are the wait in the
//! queue, each attempt of the handler, and each request of a driver and of the client of the Kubernetes API. Drivers create their spans
//! with the crate `tracing`. Spans outside of the handling of an event, such as those of polls and of watches, are not exported.

mod export;
mod traced;

use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider,
};
use tokio::runtime::Handle;
use tracing::subscriber::Interest;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{DynFilterFn, LevelFilter};
use tracing_subscriber::registry::LookupSpan;

use crate::base::config::TraceOptions;
use export::CollectorClient;
use traced::HANDLE;
pub(crate) use traced::{EventTrace, Traces};

/// The time that the last export may take at the end of the program.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum number of spans in an export. Four times as many take a sixth more CPU time, since they do not fit into the cache.
const BATCH_SIZE: usize = 128;
/// The crate whose spans of level `debug` are the requests to the API server.
const KUBE_CLIENT: &str = "kube_client";

/// The OpenTelemetry provider of the tracers of this process; empty if traces are not exported.
static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// The reason why traces cannot be exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// The HTTP client of the exporter cannot be built.
    #[error("cannot build the HTTP client for the collector (`traces.otlp_endpoint`)")]
    Client(#[from] reqwest::Error),
    /// The exporter rejects its options.
    #[error("cannot export traces (`traces.otlp_endpoint`)")]
    Exporter(#[from] ExporterBuildError),
}

/// Starts to export traces, and returns the layer that records the spans of the crate `tracing`; `None` if no collector is configured.
/// Requests to the collector run on `runtime`. Fails if the exporter cannot be built.
pub(crate) fn start<S>(
    options: &TraceOptions,
    runtime: &Handle,
) -> Result<Option<impl Layer<S> + use<S>>, TraceError>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let Some(endpoint) = &options.otlp_endpoint else { return Ok(None) };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(CollectorClient::new(runtime.clone())?)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .build()?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_service_name("staffetta").with_attribute(version);
    let batches = BatchConfigBuilder::default().with_max_export_batch_size(BATCH_SIZE);
    let provider = SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches.build()).build())
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(options.sample_ratio))))
        .with_resource(resource.build())
        .build();
    let tracer = provider.tracer("staffetta");
    // The log, of which the layer is a part, can be started only once in a process.
    let _ = PROVIDER.set(provider);
    // Threads, busy times and lines of code say little about an event, and would cost a quarter more CPU time.
    let layer = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false);
    // Outside of a sampled event, no span is created.
    let filter = DynFilterFn::new(|metadata, context| {
        !interest(metadata).is_never() && (metadata.name() == HANDLE || context.lookup_current().is_some())
    });
    let filter = filter.with_callsite_filter(interest).with_max_level_hint(LevelFilter::DEBUG);
    Ok(Some(layer.with_filter(filter)))
}

/// Returns `Interest::sometimes` for spans and log entries that traces may contain: those of level `info` and above, and the requests
/// of [`KUBE_CLIENT`].
fn interest(metadata: &Metadata<'_>) -> Interest {
    let level = if metadata.is_span() && metadata.target().starts_with(KUBE_CLIENT) {
        LevelFilter::DEBUG
    } else {
        LevelFilter::INFO
    };
    if *metadata.level() <= level { Interest::sometimes() } else { Interest::never() }
}

/// Returns the tracer of this process; `None` if traces are not exported.
pub(crate) fn tracer() -> Option<SdkTracer> {
    PROVIDER.get().map(|provider| provider.tracer("staffetta"))
}

/// Exports the remaining spans, which takes at most [`SHUTDOWN_TIMEOUT`]. It must not be called on a thread of the runtime.
pub(crate) fn shut_down() {
    if let Some(provider) = PROVIDER.get() {
        // The exporter has logged the error.
        let _ = provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT);
    }
}
