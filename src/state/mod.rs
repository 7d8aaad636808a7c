//! What the program can be asked about itself while it runs: how it is, and which object is where in the chain.

mod clock;
mod document;
mod query;
mod report;

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use staffetta_handler::{Tally, Undecodable};
use tokio::time::Instant;

use crate::health::Health;
use crate::lock::lock;
use crate::metrics::Figures;
use crate::pipeline::Pipeline;
use crate::watcher::{Sight, Watcher};

pub(crate) use document::{Document, Handler, Leadership, Object, Watch};
pub(crate) use query::{MAX_LIMIT, PhaseName, Query};

/// What the program can be asked about itself. It keeps nothing alive of what runs.
pub(crate) struct State {
    /// The name of this process among its replicas.
    identity: String,
    started: Instant,
    /// Whether it lives, and whether it is ready.
    pub(crate) health: Arc<Health>,
    /// What is counted.
    pub(crate) figures: Arc<Figures>,
    sources: Sources,
    running: Mutex<Running>,
}

/// Who is asked for what others know.
pub(crate) struct Sources {
    /// What the election of a leader says.
    pub(crate) leadership: Box<dyn Fn() -> Leadership + Send + Sync>,
    /// What became of Kubernetes Events: each outcome with how often it came to that.
    pub(crate) kubernetes_events: Box<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>,
}

/// What runs, once it does.
#[derive(Default)]
struct Running {
    pipeline: Weak<Pipeline>,
    watcher: Weak<Watcher<Pipeline>>,
}

/// How it stands with one enabled handler.
pub(crate) struct HandlerSight {
    /// Its name.
    pub(crate) name: String,
    /// How many events do or wait for what.
    pub(crate) tally: Tally,
    /// How many waiting changes a full queue replaced.
    pub(crate) overflowed: u64,
    /// What it waits for before it gets its first event.
    pub(crate) waits: Vec<String>,
}

impl State {
    /// Nothing runs yet.
    pub(crate) fn new(
        identity: String,
        health: &Arc<Health>,
        figures: &Arc<Figures>,
        sources: Sources,
    ) -> Self {
        Self {
            identity,
            started: Instant::now(),
            health: Arc::clone(health),
            figures: Arc::clone(figures),
            sources,
            running: Mutex::default(),
        }
    }

    /// The chains and the watches run from now on.
    pub(crate) fn runs(&self, pipeline: &Arc<Pipeline>, watcher: &Arc<Watcher<Pipeline>>) {
        *self.running() = Running { pipeline: Arc::downgrade(pipeline), watcher: Arc::downgrade(watcher) };
    }

    /// Whether all is well that must be.
    pub(crate) fn ready(&self) -> bool {
        self.health.conditions().iter().all(|condition| condition.reason.is_none())
    }

    /// What the election of a leader says.
    pub(crate) fn leadership(&self) -> Leadership {
        (self.sources.leadership)()
    }

    /// What became of Kubernetes Events.
    pub(crate) fn kubernetes_events(&self) -> Vec<(&'static str, u64)> {
        (self.sources.kubernetes_events)()
    }

    /// How each watch is; none before there are any.
    pub(crate) fn watches(&self) -> Vec<Sight> {
        let watcher = self.running().watcher.upgrade();
        watcher.map(|watcher| watcher.sights()).unwrap_or_default()
    }

    /// The objects that cannot be decoded.
    pub(crate) fn undecodable(&self) -> Vec<Undecodable> {
        let watcher = self.running().watcher.upgrade();
        watcher.map(|watcher| watcher.undecodable()).unwrap_or_default()
    }

    /// Whether a watch knows an object that is called as one asks; none where nobody asks for a name, or nothing is watched.
    pub(crate) fn knows(&self, query: &Query) -> Option<bool> {
        let (watcher, name) = (self.running().watcher.upgrade()?, query.name.as_deref()?);
        Some(watcher.knows(query.kind.as_deref(), query.namespace.as_deref(), name))
    }

    /// How it stands with each enabled handler, in the order in which they are enabled.
    pub(crate) fn handlers(&self) -> Vec<HandlerSight> {
        let pipeline = self.pipeline();
        let names = self.figures.handlers();
        names.map(|name| sight(name, pipeline.as_deref())).collect()
    }

    fn pipeline(&self) -> Option<Arc<Pipeline>> {
        self.running().pipeline.upgrade()
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        lock(&self.running)
    }
}

fn sight(name: &str, pipeline: Option<&Pipeline>) -> HandlerSight {
    let relay = pipeline.and_then(|pipeline| pipeline.relays().iter().find(|relay| relay.name == name));
    let Some((pipeline, relay)) = pipeline.zip(relay) else {
        let waits = vec!["it is not made yet".to_owned()];
        return HandlerSight { name: name.to_owned(), tally: Tally::default(), overflowed: 0, waits };
    };
    HandlerSight {
        name: name.to_owned(),
        tally: relay.tally(),
        overflowed: relay.chain.overflowed(),
        waits: pipeline.awaited(relay),
    }
}
