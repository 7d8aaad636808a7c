//! The requests to OpenStack.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;
use staffetta_driver::{RequestObserver, RequestOutcome};

use super::exposition::write;
use super::histogram::Histogram;
use super::names;

/// The services, by the types that the catalogue of a cloud gives them.
const SERVICES: [&str; 3] = ["identity", "network", "load-balancer"];

/// The methods that are used.
const METHODS: [&str; 4] = ["GET", "POST", "PUT", "DELETE"];

/// Counts the requests to OpenStack by service, method and what came of them.
#[derive(Default)]
pub(crate) struct CloudRequests([[Counted; METHODS.len()]; SERVICES.len()]);

#[derive(Default)]
struct Counted {
    outcomes: [AtomicU64; RequestOutcome::ALL.len()],
    durations: Histogram,
}

impl CloudRequests {
    /// Every service and method, with what is counted of them.
    fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, &Counted)> {
        let of_service = |(service, counted)| {
            METHODS.iter().zip(counted).map(move |(method, counted)| (service, *method, counted))
        };
        SERVICES.into_iter().zip(&self.0).flat_map(of_service)
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        write(encoder, &names::OPENSTACK_REQUESTS, |series| {
            for (service, method, counted) in self.all() {
                for (outcome, count) in RequestOutcome::ALL.iter().zip(&counted.outcomes) {
                    series.counter(&[service, method, outcome.name()], count.load(Ordering::Relaxed))?;
                }
            }
            Ok(())
        })?;
        write(encoder, &names::OPENSTACK_DURATION, |series| {
            self.all().try_for_each(|(service, method, counted)| {
                series.histogram(&[service, method], &counted.durations.snapshot())
            })
        })
    }
}

impl RequestObserver for CloudRequests {
    fn ended(&self, service: &'static str, method: &'static str, outcome: RequestOutcome, time: Duration) {
        let place = |all: &[&str], name: &str| all.iter().position(|known| *known == name);
        let (Some(service), Some(method)) = (place(&SERVICES, service), place(&METHODS, method)) else {
            return;
        };
        let counted = &self.0[service][method];
        counted.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
        counted.durations.observe(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_where_it_belongs() {
        let requests = CloudRequests::default();
        for (outcome, times) in [(RequestOutcome::Success, 2), (RequestOutcome::Conflict, 1)] {
            for _ in 0..times {
                requests.ended("network", "POST", outcome, Duration::from_millis(5));
            }
        }
        requests.ended("image", "POST", RequestOutcome::Success, Duration::ZERO);
        let counted: Vec<_> = requests
            .all()
            .flat_map(|(service, method, counted)| {
                RequestOutcome::ALL.iter().zip(&counted.outcomes).map(move |(outcome, count)| {
                    (service, method, outcome.name(), count.load(Ordering::Relaxed))
                })
            })
            .filter(|(.., count)| *count > 0)
            .collect();
        assert_eq!(counted, [("network", "POST", "success", 2), ("network", "POST", "conflict", 1)]);
    }
}
