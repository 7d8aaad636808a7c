//! The metrics that are read from the current state of the controller.

use std::fmt;

use staffetta_handler::Change;

use super::queue_counts::QueueCounts;
use super::{ControllerState, PhaseName};
use crate::base::metrics::{MetricsPage, names};
use crate::engine::watcher::WatchStatus;

impl ControllerState {
    /// Returns all metrics in the text format of OpenMetrics 1.0. Fails if a metric cannot be formatted.
    pub(crate) fn metrics_page(&self) -> Result<String, fmt::Error> {
        self.metrics.page(|page| {
            page.counts(&names::READY, [([], u64::from(self.is_ready()))]);
            let leadership = (self.leadership)();
            let name = [leadership.name.as_str()];
            page.counts(&names::LEADER_STATUS, [(name, u64::from(leadership.leads))]);
            page.counts(&names::LEADER_SLOWPATH, [(name, leadership.slow_renewals)]);
            page.counts(&names::LEADERSHIP_LOSSES, [(name, leadership.losses)]);
            show_watches(page, &self.watches());
            let queues = self.chains().into_iter().map(|(name, running)| {
                let chain = running.as_ref().map(|(_, handler)| &handler.chain);
                ([name], QueueCounts::of(chain))
            });
            show_queues(page, &queues.collect::<Vec<_>>());
        })
    }
}

/// Adds the metrics of the watches to `page`.
fn show_watches(page: &mut MetricsPage, watches: &[WatchStatus]) {
    let kinds = || watches.iter().map(|watch| ([&*watch.kind.name], watch));
    let events = kinds().flat_map(|([kind], watch)| {
        Change::ALL.iter().zip(watch.counts.events).map(move |(change, count)| ([kind, change.name()], count))
    });
    page.counts(&names::EVENTS_RECEIVED, events);
    page.counts(&names::WATCHED_OBJECTS, kinds().map(|(kind, watch)| (kind, watch.objects)));
    page.counts(&names::UNDECODABLE_OBJECTS, kinds().map(|(kind, watch)| (kind, watch.undecodable)));
    page.counts(&names::LISTS, kinds().map(|(kind, watch)| (kind, watch.counts.lists)));
    page.counts(&names::WATCH_ERRORS, kinds().map(|(kind, watch)| (kind, watch.counts.errors)));
    let idle = kinds().map(|(kind, watch)| (kind, watch.last_activity.elapsed().as_secs_f64()));
    page.values(&names::WATCH_IDLE, idle);
}

/// Adds the numbers of queued objects of each handler to `page`. `queues` are the names of the handlers and the counts of their queues.
fn show_queues(page: &mut MetricsPage, queues: &[([&str; 1], QueueCounts)]) {
    let objects = queues.iter().flat_map(|([handler], counts)| {
        counts.by_phase.iter().map(|(phase, count)| ([*handler, phase.as_str()], *count))
    });
    page.counts(&names::OBJECTS, objects);
    page.counts(&names::FAILING_OBJECTS, queues.iter().map(|(handler, counts)| (*handler, counts.failing)));
    let waiting = queues.iter().map(|(handler, QueueCounts { by_phase, .. })| {
        (*handler, by_phase[&PhaseName::Held] + by_phase[&PhaseName::Queued])
    });
    page.counts(&names::WORKQUEUE_DEPTH, waiting);
    let unfinished = queues.iter().map(|(handler, counts)| (*handler, counts.unfinished.as_secs_f64()));
    page.values(&names::WORKQUEUE_UNFINISHED, unfinished);
    let longest = queues.iter().map(|(handler, counts)| (*handler, counts.longest.as_secs_f64()));
    page.values(&names::WORKQUEUE_LONGEST, longest);
}
