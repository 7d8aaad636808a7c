//! The API for handlers of staffetta: events, the chain of wrappers that passes events to a handler, and the registry of handlers and
//! drivers.
//!
//! To write a handler in your own crate, you need [`ResourceEventHandler`] (reacts to the events of one kind), [`Failure`] (an error
//! that states whether a retry may help), and [`Registration`] and [`Registry`] (make the handler known to the program). [`testing`]
//! delivers test events to a handler, without a cluster.
//!
//! For events that do not come from Kubernetes, implement a [`Source`]. It sends [`Trigger`]s, which pass through the same chain.
//!
//! Optional parts of a handler:
//!
//! - [`Index`]: keeps data of other objects that the handler needs, fed by their watch.
//! - [`GarbageCollector`]: finds resources in external systems whose Kubernetes object was deleted, so that the handler releases them.
//! - [`Writer`]: patches annotations, finalizers and the status of an object.
//! - [`Setup::diagnosis`]: adds a check that `kubectl staffetta check` shows.
//! - [`DryRunPlan`]: records the calls that a driver would make, for `staffetta run --dry-run`.
//!
//! | module | holds |
//! |---|---|
//! | `event` | [`Event`], [`AnyEvent`], [`Trigger`], [`Identity`], and the decoding of watched objects |
//! | `chain` | [`EventHandler`] and its wrappers: [`Dispatcher`], [`Async`], [`LogExceptions`], [`Retry`], [`Limit`], [`Timeout`] |
//! | `failure` | [`Failure`], [`HandlerError`], and the errors that the chain adds to those of a handler: [`Panicked`], [`TimedOut`] |
//! | `backoff` | [`BackoffPolicy`] and [`Backoff`]: the delays of everything that is repeated |
//! | `clock` | [`BootTime`]: the clock that measures leases |
//! | `registry` | [`ResourceEventHandler`], [`Interest`], [`Registration`], [`Index`], [`Source`], [`GarbageCollector`], [`Registry`], [`Setup`], [`Finding`], [`DryRunPlan`] |
//! | `write` | [`Writer`] and [`MetadataPatch`] |

mod backoff;
mod chain;
mod clock;
mod event;
mod failure;
mod pages;
mod registry;
pub mod testing;
mod write;

pub use backoff::{Backoff, BackoffPolicy};
pub use chain::{
    Action, Async, Context, Dispatcher, EventHandler, Failures, LastError, Limit, LogExceptions, Phase,
    QueueEntry, QueueMetrics, Report, Retry, Timeout, Why,
};
pub use clock::BootTime;
pub use event::{
    AnyEvent, Change, Event, Identity, Kind, Message, Object, ObjectRef, OrderingKey, Tombstone, Trigger,
    Undecodable, WatchItem, WatchResult, full_name, truncated,
};
pub use failure::{Failure, HandlerError, Panicked, Pending, TimedOut, bounded, causes};
pub use pages::{each_living_pod, each_metadata};
pub use registry::{
    CLUSTER_ANNOTATION, CLUSTER_LABEL, Check, CheckResult, DriverEntry, DriverId, DriverTrait, DryRunPlan,
    EventNote, Finding, GarbageCollector, HANDLER_LABEL, HandlerEntry, Index, Interest, KindIndex,
    PlannedCall, Recorder, Registration, Registry, Resolved, ResourceEventHandler, Section, SectionError,
    Setup, SetupError, Source, TriggerHandler, TriggerSender, deliver,
};
pub use write::{MetadataPatch, Stale, WriteError, Writer, Written};

// The integration tests share `test_message`, which therefore names this crate `staffetta_handler`.
#[cfg(test)]
extern crate self as staffetta_handler;
#[cfg(test)]
#[path = "../tests/guarantees/message.rs"]
mod test_message;
