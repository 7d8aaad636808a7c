//! The contract of a staffetta handler: events, the wrappers they pass through, and the registry.
//!
//! An outside author needs [`ResourceEventHandler`] (what happens to an object), [`Failure`] (an error that says whether
//! repeating may help), [`Registration`] and [`Registry`] (how the program finds the handler), and [`testing`] (feeds
//! events to it without a cluster). What happens elsewhere than in the cluster comes from a [`Source`], as a [`Signal`],
//! through the same chain.
//!
//! The chain, from the outside in; each wrapper is usable alone:
//!
//! | wrapper | what it adds |
//! |---|---|
//! | [`Dispatcher`] | each message to those who registered for it |
//! | [`Async`] | a queue for each ordering key, so that nobody waits for somebody else; it tells what stands in it ([`Tally`], [`Standing`]) and what passes ([`Meter`]) |
//! | [`LogExceptions`] | the end of every failure, at a [`Report`] |
//! | [`Retry`] | another attempt, when the error says that it may help; the [`Report`] hears of that too |
//! | [`Limit`] | a bound on what runs at a time |
//! | [`Timeout`] | a bound on how long it runs, and the measure of it |

mod any_event;
mod backoff;
mod clock;
mod compose;
mod crew;
mod digest;
mod dispatcher;
mod erased;
mod event;
mod failure;
mod handler;
mod index;
mod keeper;
mod kind;
mod lane;
mod limit;
mod log_exceptions;
mod message;
mod meter;
mod note;
mod object;
mod past;
mod patch;
mod plan;
mod queues;
mod registration;
mod registry;
mod report;
mod resource;
mod retry;
mod run;
mod setup;
mod sighting;
mod signal;
mod source;
mod standing;
mod survey;
mod sweep;
pub mod testing;
mod timeout;
mod turn;
mod write;

pub use any_event::AnyEvent;
pub use backoff::{Backoff, BackoffPolicy};
pub use compose::Compose;
pub use dispatcher::{Dispatcher, Predicate};
pub use event::{Event, Tombstone};
pub use failure::{Failure, HandlerError, causes, shortened};
pub use handler::EventHandler;
pub use index::Index;
pub use keeper::HANDLER_LABEL;
pub use kind::{Kind, WatchResult};
pub use lane::QueuePolicy;
pub use limit::Limit;
pub use log_exceptions::{LogExceptions, Panicked};
pub use message::{Change, Message, OrderingKey, Subject};
pub use meter::{Meter, Unmetered};
pub use note::{Note, Notebook, Notes};
pub use object::{Identity, Object};
pub use patch::MetadataPatch;
pub use plan::{ObjectPlan, Particular, Plan, PlannedObject, PlannedStep, Step, Verdict};
pub use queues::Async;
pub use registration::{ErasedHandler, KindIndex, Registration, Superseded};
pub use registry::{DriverEntry, HandlerEntry, Interface, NewInterface, Registry, Section};
pub use report::{LogReport, Report, ResyncPolicy};
pub use resource::{ResourceEventHandler, deliver};
pub use retry::{Retry, RetryPolicy};
pub use setup::{Check, CheckFn, Setup, SetupError};
pub use sighting::{Sighting, Undecodable};
pub use signal::{Signal, SignalHandler};
pub use source::{ErasedSource, Outlet, Source};
pub use standing::{Phase, Standing, Trouble};
pub use survey::Tally;
pub use sweep::{ErasedSweep, Sweep};
pub use timeout::{TimedOut, Timeout, bounded};
pub use turn::Turn;
pub use write::{Stale, WriteError, Writer, Written};
