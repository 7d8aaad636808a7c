//! Chooses the events whose traces are exported.

use opentelemetry::trace::{Link, SpanKind, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};

use super::traced::EVENT;

/// Samples a share of the events. Other spans without a parent are dropped.
#[derive(Clone, Debug)]
pub(super) struct EventSampler(Sampler);

impl EventSampler {
    /// Creates a sampler that samples the share `ratio` of the events, from 0 to 1, and all spans within a sampled event.
    pub(super) fn with_children(ratio: f64) -> Sampler {
        Sampler::ParentBased(Box::new(Self(Sampler::TraceIdRatioBased(ratio))))
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
        if name == EVENT {
            return self.0.should_sample(parent, trace_id, name, kind, attributes, links);
        }
        let (decision, trace_state) = (SamplingDecision::Drop, TraceState::default());
        SamplingResult { decision, attributes: Vec::new(), trace_state }
    }
}
