//! staffetta is a Kubernetes controller. It passes the events of a cluster through a chain of handlers. The handlers call drivers of
//! external systems, and write the results back to the Kubernetes objects.
//!
//! This library assembles the program. To build a program with your own handlers or drivers, you need [`assembly::registry`], which
//! returns all handlers, drivers and configuration sections of staffetta by name, and [`run()`], which parses the command line and runs
//! the program.
//!
//! The path of an event: [`watcher`] lists and watches the objects of all kinds that the enabled handlers need, and [`pipeline`] passes
//! each event to the chain of each handler.
//!
//! Each of the five folders uses, outside of tests, only those below it:
//!
//! | folder | content |
//! |---|---|
//! | `operate` | the commands: [`cli`] parses the command line, [`dry_run`] plans changes without making them, [`cleanup`] releases external resources that another cluster left, [`uninstall`] removes finalizers, and [`migrate`] takes a cluster over from Kuryr |
//! | `control` | [`assembly`] creates handlers and drivers by name, [`controller`] starts all parts and elects the leader, `run` and `cni_daemon` are the two services |
//! | `observe` | `state` is what a controller shows, `admin` serves it, `check` checks an installation |
//! | `engine` | [`watcher`], [`pipeline`], `client` and `events`, which write only during the leader's [`term`], and the admission webhook |
//! | `base` | [`config`] loads the options, [`connect`] connects to the API server; metrics, the log, traces, health |

#![cfg_attr(
    not(all(
        feature = "cni",
        feature = "completion",
        feature = "ec2",
        feature = "iosxe",
        feature = "koupleless",
        feature = "memory",
        feature = "openstack",
        feature = "policy",
        feature = "process-metrics",
        feature = "remote",
        feature = "top",
        feature = "traces",
        feature = "webhook",
    )),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        unused_mut,
        unused_variables,
        reason = "a program with only some of the features leaves parts unused that others share"
    )
)]

mod base;
mod control;
mod engine;
mod observe;
mod operate;

pub use base::{config, connect};
pub use control::run::RunError;
pub use control::{assembly, controller};
pub use engine::{pipeline, term, watcher};
pub use operate::cli::main as run;
#[cfg(feature = "network")]
pub use operate::migrate;
pub use operate::{cleanup, cli, dry_run, uninstall};
