//! The metrics that are read from the current state of the controller.

use std::fmt;

use staffetta_handler::Change;

use super::{ControllerState, PhaseName, QueueState};
use crate::metrics::{MetricsPage, names};
use crate::watcher::WatchStatus;

impl ControllerState {
    /// Returns all metrics in the text format of OpenMetrics 1.0.
    pub(crate) fn metrics_page(&self) -> Result<String, fmt::Error> {
        self.metrics.page(|page| {
            page.counts(&names::READY, [([], u64::from(self.is_ready()))]);
            let leadership = (self.leadership)();
            let name = [leadership.name.as_str()];
            page.counts(&names::LEADER_STATUS, [(name, u64::from(leadership.leads))]);
            page.counts(&names::LEADER_SLOWPATH, [(name, leadership.slow_renewals)]);
            page.counts(&names::LEADERSHIP_LOSSES, [(name, leadership.losses)]);
            show_watches(page, &self.watches());
            show_queues(page, &self.queues());
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

/// Adds the numbers of queued objects of each handler to `page`.
fn show_queues(page: &mut MetricsPage, queues: &[QueueState]) {
    let handlers = || queues.iter().map(|queue| ([&*queue.handler], queue));
    let objects = handlers().flat_map(|([handler], queue)| {
        PhaseName::ALL.map(|phase| ([handler, phase.as_str()], phase.count(&queue.counts)))
    });
    page.counts(&names::OBJECTS, objects);
    let waiting = |queue: &QueueState| queue.counts.held + queue.counts.queued;
    page.counts(&names::WORKQUEUE_DEPTH, handlers().map(|(handler, queue)| (handler, waiting(queue))));
    let unfinished = handlers().map(|(handler, queue)| (handler, queue.counts.unfinished.as_secs_f64()));
    page.values(&names::WORKQUEUE_UNFINISHED, unfinished);
    let longest =
        |queue: &QueueState| queue.counts.oldest_running.map_or(0.0, |since| since.elapsed().as_secs_f64());
    page.values(&names::WORKQUEUE_LONGEST, handlers().map(|(handler, queue)| (handler, longest(queue))));
    page.counts(&names::QUEUE_OVERFLOWS, handlers().map(|(handler, queue)| (handler, queue.overflows)));
}
