//! Chooses the events whose traces are exported.

use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};

use super::traced::EVENT;

/// Samples a share of the events, and all spans within a sampled event. Other spans are dropped.
#[derive(Clone, Debug)]
pub(super) struct EventSampler(Sampler);

impl EventSampler {
    /// Creates a sampler that samples the share `ratio` of the events, from 0 to 1.
    pub(super) fn new(ratio: f64) -> Self {
        Self(Sampler::TraceIdRatioBased(ratio))
    }
}

impl ShouldSample for EventSampler {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let decision = match parent.filter(|parent| parent.has_active_span()) {
            Some(parent) if parent.span().span_context().is_sampled() => SamplingDecision::RecordAndSample,
            None if name == EVENT => {
                return self.0.should_sample(None, trace_id, name, kind, attributes, links);
            }
            _ => SamplingDecision::Drop,
        };
        SamplingResult { decision, attributes: Vec::new(), trace_state: TraceState::default() }
    }
}
