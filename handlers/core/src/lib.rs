//! The contract of a staffetta handler: events, the chain of wrappers they pass through, and the registry.
//!
//! An outside author needs [`ResourceEventHandler`] (reacts to the events of one kind), [`Failure`] (an error that says
//! whether a retry may help), [`Registration`] and [`Registry`] (make the handler known to the program), and [`testing`]
//! (feeds events to a handler without a cluster). Events from outside the cluster come from a [`Source`], as a [`Trigger`],
//! through the same chain.
//!
//! | module | holds |
//! |---|---|
//! | `event` | [`Event`], [`AnyEvent`], [`Trigger`], [`Identity`], and the decoding of watched objects |
//! | `chain` | [`EventHandler`] and its wrappers: [`Dispatcher`], [`Async`], [`LogExceptions`], [`Retry`], [`Limit`], [`Timeout`] |
//! | `registry` | [`ResourceEventHandler`], [`Registration`], [`Index`], [`Source`], [`GarbageCollector`], [`Registry`], [`Setup`], [`DryRunPlan`] |
//! | `write` | [`Writer`] and [`MetadataPatch`] |

mod chain;
mod event;
mod registry;
pub mod testing;
mod write;

pub use chain::{
    Async, Backoff, BackoffPolicy, Context, Dispatcher, EventHandler, Failure, HandlerError, LastError,
    Limit, LogExceptions, LogReport, NoMetrics, Panicked, Pending, Phase, QueueCounts, QueueEntry,
    QueueMetrics, QueuePolicy, Report, Retry, Superseded, TimedOut, Timeout, bounded, causes,
};
pub use event::{
    AnyEvent, Change, Event, Identity, Kind, Message, Object, ObjectRef, OrderingKey, Tombstone, Trigger,
    Undecodable, WatchItem, WatchResult, truncated,
};
pub use registry::{
    Check, CheckFn, DriverEntry, DriverTrait, DryRunPlan, ErasedHandler, EventNote, EventRecorder,
    GarbageCollector, HANDLER_LABEL, HandlerEntry, Index, KindIndex, NewDriverTrait, PlannedCall, Recorder,
    Registration, Registry, ResourceEventHandler, Section, SectionError, Setup, SetupError, Source,
    TriggerHandler, TriggerSender, deliver,
};
pub use write::{MetadataPatch, Stale, WriteError, Writer, Written};
