//! The chain that ships: one function builds it, and nothing else does.

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use crate::config;
use crate::leadership::{InTerm, Term};
use crate::observers::{Observers, OnUndecodable};
use crate::watcher::Sink;
use staffetta_handler::{
    AnyEvent, Async, Compose, Dispatcher, ErasedHandler, ErasedSource, ErasedSweep, EventHandler,
    HandlerError, Kind, KindIndex, Limit, LogExceptions, Message, QueuePolicy, Registration, ResyncPolicy,
    Retry, RetryPolicy, Standing, Tally, Timeout, Turn, Undecodable,
};
use tokio::sync::watch;

/// The chain of one handler, from the outside in.
pub type Chain = Async<AnyEvent, LogExceptions<Links, AnyEvent>>;

type Links = Retry<Limit<Timeout<InTerm<Arc<ErasedHandler>>>, AnyEvent>, AnyEvent>;

/// How the chains behave: the options of the section `[relay]`, and for how long.
#[derive(Clone, Debug)]
pub struct Policy {
    /// How many invocations of one handler run at a time; where it names groups, of each group.
    pub max_concurrency: usize,
    /// How long one invocation may take.
    pub handler_timeout: Duration,
    /// How what fails for a passing reason is repeated.
    pub retry: RetryPolicy,
    /// Whether a waiting `Modified` may be replaced by a newer one of the same object.
    pub coalesce: bool,
    /// Without coalescing: how many events of a key may wait.
    pub queue_depth: usize,
    /// When an event that failed for good is pushed again.
    pub resync: ResyncPolicy,
    /// How many objects may have something to do before the next ones of a list are taken in.
    pub first_list_backlog: usize,
    /// For how long this process may act. Handlers work while it holds.
    pub term: Term,
}

impl Default for Policy {
    /// As the section `[relay]` says when nothing is set.
    fn default() -> Self {
        Self::from(&config::Relay::default())
    }
}

impl From<&config::Relay> for Policy {
    fn from(options: &config::Relay) -> Self {
        Self {
            max_concurrency: options.max_concurrency.get(),
            handler_timeout: options.handler_timeout.into(),
            retry: RetryPolicy {
                interval: options.retry_interval.into(),
                max_interval: options.retry_max_interval.into(),
                timeout: options.retry_timeout.into(),
            },
            coalesce: options.coalesce,
            queue_depth: options.queue_depth.get(),
            resync: ResyncPolicy {
                initial: options.failed_resync.into(),
                max: options.failed_resync_max.into(),
            },
            first_list_backlog: options.first_list_backlog.get(),
            term: Term::for_ever(),
        }
    }
}

/// One enabled handler with its chain.
pub struct Relay {
    /// The handler's name.
    pub name: String,
    /// Its chain; closed until all that it waits for is there.
    pub chain: Chain,
    /// How its ownership marks are read, if it makes things outside.
    pub sweep: Option<Box<dyn ErasedSweep>>,
    /// Where its events come from that no watch tells of.
    pub sources: Vec<Box<dyn ErasedSource>>,
    awaits: watch::Sender<HashSet<Awaited>>,
}

/// What must have happened before a handler gets its first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Awaited {
    /// An index is complete: the kind was listed once.
    Listed(TypeId),
    /// The ownership marks were read.
    Recovered,
}

/// Which part of the backlog of a first list may be left when next to all of it is done. Those that wait for their next attempt
/// are not of it: nobody could say when they are done.
const NEXT_TO_ALL: usize = 10;

/// All enabled handlers behind one dispatcher. Events go in with [`EventHandler::handle`].
pub struct Pipeline {
    dispatcher: Dispatcher<AnyEvent, Chain>,
    indexes: HashMap<TypeId, Vec<KindIndex>>,
    kinds: Vec<Kind>,
    relays: Vec<Relay>,
    first_list_backlog: usize,
    undecodable: OnUndecodable,
}

/// Builds the chain of each handler, in the order in which they are given:
/// `Dispatcher -> for each: Async(LogExceptions(Retry(Limit(Timeout(InTerm(handler))))))`. What happens in it is told to `observers`.
pub fn build(handlers: Vec<(String, Registration)>, policy: &Policy, observers: &dyn Observers) -> Pipeline {
    let mut pipeline = Pipeline {
        dispatcher: Dispatcher::default(),
        indexes: HashMap::new(),
        kinds: Vec::new(),
        relays: Vec::new(),
        first_list_backlog: policy.first_list_backlog,
        undecodable: observers.undecodable(),
    };
    for (name, registration) in handlers {
        pipeline.add(name, registration, policy, observers);
    }
    pipeline
}

fn chain(name: &str, handler: &Arc<ErasedHandler>, policy: &Policy, observers: &dyn Observers) -> Chain {
    let report = observers.report(name, policy.resync);
    let queues = QueuePolicy {
        coalesce: policy.coalesce,
        depth: policy.queue_depth,
        superseded: handler.superseded(),
    };
    let groups = Arc::clone(handler);
    let links = InTerm::new(Arc::clone(handler), policy.term.clone())
        .timeout(policy.handler_timeout)
        .limit(policy.max_concurrency)
        .per(move |event| groups.group(event))
        .retry(policy.retry)
        .reported(Arc::clone(&report))
        .log_exceptions(report);
    let keys = Arc::clone(handler);
    Async::metered(links, queues, move |event| keys.key(event), observers.meter(name))
}

impl Pipeline {
    fn add(
        &mut self,
        name: String,
        mut registration: Registration,
        policy: &Policy,
        observers: &dyn Observers,
    ) {
        let sources = registration.take_sources();
        let (handler, indexes, sweep) = registration.into_parts();
        let handler = Arc::new(handler);
        let mut awaits: HashSet<_> =
            indexes.iter().map(|index| Awaited::Listed(index.kind.type_id)).collect();
        if sweep.is_some() {
            awaits.insert(Awaited::Recovered);
        }
        let mut chain = chain(&name, &handler, policy, observers);
        if !awaits.is_empty() {
            chain = chain.closed();
        }
        for kind in handler.kinds() {
            self.watch(kind);
            let wants = Arc::clone(&handler);
            self.dispatcher.add(kind.type_id, move |event| wants.wants(event), chain.clone());
        }
        for signal in handler.signals() {
            let wants = Arc::clone(&handler);
            self.dispatcher.add(signal, move |event| wants.wants(event), chain.clone());
        }
        for index in indexes {
            self.watch(&index.kind);
            self.indexes.entry(index.kind.type_id).or_default().push(index);
        }
        self.relays.push(Relay { name, chain, sweep, sources, awaits: watch::Sender::new(awaits) });
    }

    fn watch(&mut self, kind: &Kind) {
        if self.kinds.iter().all(|known| known.type_id != kind.type_id) {
            self.kinds.push(kind.clone());
        }
    }

    /// The kinds to watch: one watch each, however many handlers want it.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The enabled handlers.
    pub fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// What `relay` waits for before its handler gets its first event, in words; nothing once it does.
    pub fn awaited(&self, relay: &Relay) -> Vec<String> {
        let mut awaited: Vec<_> = relay.awaits.borrow().iter().map(|what| self.words(*what)).collect();
        awaited.sort_unstable();
        awaited
    }

    fn words(&self, what: Awaited) -> String {
        match what {
            Awaited::Recovered => "the ownership marks are not read yet".to_owned(),
            Awaited::Listed(kind) => {
                let kind = self.kinds.iter().find(|known| known.type_id == kind);
                let kind = kind.map(|kind| &*kind.name).unwrap_or_default();
                format!("not all objects of kind {kind} are listed yet")
            }
        }
    }

    /// Ends when at most `most` objects have something to do, over all handlers that already get events.
    pub async fn fallen_to(&self, most: usize) {
        for relay in self.relays.iter().filter(|relay| relay.is_open()) {
            relay.chain.fallen_to(most).await;
        }
    }

    /// Ends all retries and gives what runs and waits at most `grace`. Answers whether all of it was done.
    pub async fn drain(&self, grace: Duration) -> bool {
        let drains = self.relays.iter().map(|relay| relay.chain.drain(grace));
        futures_util::future::join_all(drains).await.into_iter().all(|done| done)
    }

    /// Ends all retries, lets go what waits, and waits at most `grace` for what runs. Answers whether all of it has ended.
    pub async fn halt(&self, grace: Duration) -> bool {
        let halts = self.relays.iter().map(|relay| relay.chain.halt(grace));
        futures_util::future::join_all(halts).await.into_iter().all(|ended| ended)
    }
}

impl Relay {
    /// The handler's ownership marks were read.
    pub fn recovered(&self) {
        self.happened(Awaited::Recovered);
    }

    /// Whether the handler gets events already.
    pub fn is_open(&self) -> bool {
        self.awaits.borrow().is_empty()
    }

    /// Ends when the handler gets events.
    pub async fn until_open(&self) {
        // It fails only once the sender is dropped, which `self` keeps.
        let _ = self.awaits.subscribe().wait_for(HashSet::is_empty).await;
    }

    /// How many events do or wait for what in its queues.
    pub fn tally(&self) -> Tally {
        self.chain.tally()
    }

    /// At most `limit` events that are not handled yet, those in trouble first.
    pub fn standings(&self, limit: usize) -> Vec<Standing> {
        self.chain.standings(limit)
    }

    fn happened(&self, what: Awaited) {
        self.awaits.send_if_modified(|awaits| {
            let news = awaits.remove(&what);
            if news && awaits.is_empty() {
                self.chain.open();
            }
            news
        });
    }
}

impl EventHandler<AnyEvent> for Pipeline {
    /// Feeds the indexes, then hands the event to the queues; never waits.
    async fn handle(&self, event: &AnyEvent, turn: &Turn<'_>) -> Result<(), HandlerError> {
        for index in self.indexes.get(&event.route()).into_iter().flatten() {
            (index.apply)(event);
        }
        self.dispatcher.handle(event, turn).await
    }
}

impl Sink for Pipeline {
    fn listed(&self, kind: TypeId) {
        for relay in &self.relays {
            relay.happened(Awaited::Listed(kind));
        }
    }

    async fn room(&self) {
        self.fallen_to(self.first_list_backlog).await;
    }

    async fn settled(&self) {
        self.fallen_to(self.first_list_backlog / NEXT_TO_ALL).await;
    }

    fn undecodable(&self, object: &Undecodable) {
        (self.undecodable)(object);
    }
}
