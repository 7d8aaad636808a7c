//! Everything that `/metrics` answers.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use staffetta_handler::{Change, Tally};
use tokio::time::Instant;

use super::exposition::write;
use super::{names, process, virtual_nodes};
use crate::state::{HandlerSight, PhaseName, State};
use crate::watcher::Sight;

/// All figures at this moment, in the text form of OpenMetrics 1.0.
pub(crate) fn page(state: &Arc<State>) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Page(Arc::clone(state))));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

struct Page(Arc<State>);

impl fmt::Debug for Page {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Page")
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let encoder = &mut encoder;
        self.program(encoder)?;
        self.watches(&self.0.watches(), encoder)?;
        objects(&self.0.handlers(), encoder)?;
        self.handlers(encoder)?;
        self.0.figures.pools.encode(encoder)?;
        virtual_nodes::encode(&self.0.figures.virtual_nodes, encoder)?;
        self.0.figures.requests.encode(encoder)?;
        self.0.figures.cloud_requests.encode(encoder)?;
        process::encode(encoder)
    }
}

impl Page {
    fn program(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let leadership = self.0.leadership();
        let events = self.0.kubernetes_events();
        write(encoder, &names::BUILD_INFO, |series| series.info(&[env!("CARGO_PKG_VERSION")]))?;
        write(encoder, &names::READY, |series| series.gauge(&[], u32::from(self.0.ready())))?;
        write(encoder, &names::LEADER_STATUS, |series| {
            series.gauge(&[&leadership.name], u32::from(leadership.leads))
        })?;
        write(encoder, &names::LEADER_SLOWPATH, |series| {
            series.counter(&[&leadership.name], leadership.slow_renewals)
        })?;
        write(encoder, &names::LEADERSHIP_LOSSES, |series| {
            series.counter(&[&leadership.name], leadership.losses)
        })?;
        write(encoder, &names::KUBERNETES_EVENTS, |series| {
            events.iter().try_for_each(|(outcome, count)| series.counter(&[outcome], *count))
        })
    }

    fn watches(&self, sights: &[Sight], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        write(encoder, &names::EVENTS_RECEIVED, |series| {
            for sight in sights {
                for (change, count) in Change::ALL.iter().zip(sight.so_far.events) {
                    series.counter(&[&sight.kind.name, change.name()], count)?;
                }
            }
            Ok(())
        })?;
        write(encoder, &names::WATCHED_OBJECTS, |series| {
            sights.iter().try_for_each(|sight| series.gauge(&[&sight.kind.name], sight.objects))
        })?;
        write(encoder, &names::UNDECODABLE_OBJECTS, |series| {
            sights.iter().try_for_each(|sight| series.gauge(&[&sight.kind.name], sight.undecodable))
        })?;
        write(encoder, &names::LISTS, |series| {
            sights.iter().try_for_each(|sight| series.counter(&[&sight.kind.name], sight.so_far.lists))
        })?;
        write(encoder, &names::WATCH_ERRORS, |series| {
            sights.iter().try_for_each(|sight| series.counter(&[&sight.kind.name], sight.so_far.errors))
        })?;
        write(encoder, &names::WATCH_SILENCE, |series| {
            for sight in sights {
                if let Some(heard) = self.0.figures.silence.last_heard(&sight.kind.path) {
                    series.gauge(&[&sight.kind.name], heard.elapsed().as_secs_f64())?;
                }
            }
            Ok(())
        })
    }

    fn handlers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let handlers = self.0.figures.each();
        write(encoder, &names::WORKQUEUE_ADDS, |series| {
            handlers.iter().try_for_each(|handler| series.counter(&[&handler.name], handler.meter.adds()))
        })?;
        write(encoder, &names::WORKQUEUE_QUEUE_DURATION, |series| {
            handlers.iter().try_for_each(|handler| series.histogram(&[&handler.name], &handler.meter.waits()))
        })?;
        write(encoder, &names::WORKQUEUE_WORK_DURATION, |series| {
            handlers.iter().try_for_each(|handler| series.histogram(&[&handler.name], &handler.meter.works()))
        })?;
        write(encoder, &names::WORKQUEUE_RETRIES, |series| {
            handlers.iter().try_for_each(|handler| series.counter(&[&handler.name], handler.meter.retries()))
        })?;
        write(encoder, &names::FAILURES, |series| {
            for handler in handlers {
                for (outcome, count) in handler.failures.counts() {
                    series.counter(&[&handler.name, outcome], count)?;
                }
            }
            Ok(())
        })?;
        write(encoder, &names::SWEEPS, |series| {
            for handler in handlers {
                for (outcome, count) in handler.sweeps.counts() {
                    series.counter(&[&handler.name, outcome], count)?;
                }
            }
            Ok(())
        })?;
        write(encoder, &names::SWEEP_LAST_SUCCESS, |series| {
            handlers
                .iter()
                .try_for_each(|handler| series.gauge(&[&handler.name], handler.sweeps.last_success()))
        })?;
        write(encoder, &names::SWEEP_ORPHANS, |series| {
            handlers.iter().try_for_each(|handler| series.counter(&[&handler.name], handler.sweeps.orphans()))
        })
    }
}

/// What follows from how the queues are at this moment.
fn objects(sights: &[HandlerSight], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    write(encoder, &names::OBJECTS, |series| {
        for sight in sights {
            for phase in PhaseName::ALL {
                series.gauge(&[&sight.name, phase.as_str()], phase.count(&sight.tally))?;
            }
        }
        Ok(())
    })?;
    write(encoder, &names::WORKQUEUE_DEPTH, |series| {
        sights
            .iter()
            .try_for_each(|sight| series.gauge(&[&sight.name], sight.tally.held + sight.tally.queued))
    })?;
    write(encoder, &names::WORKQUEUE_UNFINISHED, |series| {
        sights.iter().try_for_each(|sight| series.gauge(&[&sight.name], sight.tally.unfinished.as_secs_f64()))
    })?;
    write(encoder, &names::WORKQUEUE_LONGEST, |series| {
        sights.iter().try_for_each(|sight| series.gauge(&[&sight.name], longest(&sight.tally)))
    })?;
    write(encoder, &names::QUEUE_OVERFLOWS, |series| {
        sights.iter().try_for_each(|sight| series.counter(&[&sight.name], sight.overflowed))
    })
}

/// For how many seconds the invocation has run that began first.
fn longest(tally: &Tally) -> f64 {
    let now = Instant::now();
    tally.oldest_running.map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64())
}
