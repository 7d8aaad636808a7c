//! What all worlds have in common: steps at their times, the end of the faults, the convergence after them, and the rest after that.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use crate::choices::Draw;
use crate::replica::{self, Command, Options};
use crate::world::World;

/// The time in which faults happen, and the longest time until everything has converged after it.
const STORM: Duration = Duration::from_secs(300);
const CONVERGENCE: Duration = Duration::from_secs(420);
/// Two sweeps, in which nothing changes any more.
const REST: Duration = Duration::from_secs(130);
/// The number of names of objects, several of which are created again.
pub(crate) const NAMES: usize = 8;
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/staffetta";

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<H> {
    pub(crate) at: Duration,
    /// The number of the object.
    pub(crate) object: usize,
    pub(crate) what: H,
}

/// A fault of a replica or of the API server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    DeleteLease,
    /// The API server forgets its history.
    Forget,
    Replica(usize, Command),
}

/// Returns the duration of something that ends by itself.
pub(crate) fn some_time(draw: &mut Draw) -> Duration {
    draw.time(Duration::from_secs(5), Duration::from_secs(60))
}

impl Fault {
    pub(crate) fn of(draw: &mut Draw, replicas: usize) -> Self {
        let replica = draw.below(replicas);
        match draw.below(11) {
            0 => Self::DeleteLease,
            1 => Self::Forget,
            2..6 => Self::Replica(replica, Command::Crash),
            6..8 => Self::Replica(replica, Command::Stop),
            _ => Self::Replica(replica, Command::Part(some_time(draw))),
        }
    }

    pub(crate) async fn happen(self, world: &World, replicas: &[mpsc::Sender<Command>]) {
        match self {
            Self::DeleteLease => {
                world.request("tenant", Method::DELETE, LEASE, &Value::Null).await;
            }
            Self::Forget => world.server.trim_event_log(),
            Self::Replica(number, command) => {
                // A replica that starts again gets the command then.
                let _ = replicas[number].try_send(command);
            }
        }
    }
}

/// A world: what happens to its objects, and when it has converged.
pub(crate) trait Scene: Sync {
    /// The operations on an object.
    type Happening: Clone + Copy + Debug + Send + Sync;

    /// Lets something happen to the object with this number.
    async fn happen(&self, world: &Arc<World>, object: usize, what: Self::Happening);

    /// Does what the Events ask people to do, to the objects that are known to need it. Called when the controller has had time to mend
    /// all that it can.
    async fn follow_events(&self, world: &Arc<World>);

    /// Returns the first reason why the world has not converged; `None` if it has.
    fn unsettled(&self, world: &World) -> Option<String>;
}

/// The operation of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation<H> {
    Fault(Fault),
    Object(H),
}

/// Returns the steps of a seed: the operations `create` on each object, and then 8 to 19 others, which `choose` draws; `None` stands for a
/// fault.
pub(crate) fn steps<H>(
    world: &World,
    replicas: usize,
    create: impl Fn(&mut Draw) -> Vec<H>,
    choose: impl Fn(&mut Draw) -> Option<H>,
) -> Vec<Step<Operation<H>>> {
    let mut steps = Vec::new();
    for object in 0..NAMES {
        let mut draw = world.choices.at("create");
        let at = draw.time(Duration::ZERO, STORM / 3);
        steps.extend(create(&mut draw).into_iter().map(|what| Step {
            at,
            object,
            what: Operation::Object(what),
        }));
    }
    for _ in 0..8 + world.choices.at("number of steps").below(12) {
        let mut draw = world.choices.at("step");
        let at = draw.time(Duration::from_secs(20), STORM);
        let object = draw.below(NAMES);
        let what = match choose(&mut draw) {
            Some(what) => Operation::Object(what),
            None => Operation::Fault(Fault::of(&mut draw, replicas)),
        };
        steps.push(Step { at, object, what });
    }
    steps
}

/// Runs the steps, without those whose numbers are in `without`, and waits for the convergence.
pub(crate) async fn run<S: Scene>(
    world: &Arc<World>,
    scene: &S,
    replicas: usize,
    options: Options,
    steps: &[Step<Operation<S::Happening>>],
    without: &[usize],
) {
    world.note(
        "world",
        &format!("{replicas} replicas, handlers {}, pool: {}", options.handlers, options.pool),
    );
    let replicas = replica::start_all(world, replicas, options);
    let begin = Instant::now();
    let mut in_time: Vec<_> =
        steps.iter().enumerate().filter(|(number, _)| !without.contains(number)).collect();
    in_time.sort_by_key(|(_, step)| step.at);
    for (number, Step { at, object, what }) in in_time {
        sleep_until(begin + *at).await;
        world.note("adversary", &format!("step {number}: {what:?} of {object}"));
        match *what {
            Operation::Fault(fault) => fault.happen(world, &replicas).await,
            Operation::Object(what) => scene.happen(world, *object, what).await,
        }
    }
    sleep_until(begin + STORM).await;
    world.end_storm();
    sleep(REST).await;
    scene.follow_events(world).await;
    converge(world, scene).await;
}

/// Waits until everything has converged, and then, that nothing changes any more.
async fn converge(world: &World, scene: &impl Scene) {
    let deadline = Instant::now() + CONVERGENCE;
    while let Some(reason) = scene.unsettled(world) {
        if Instant::now() > deadline {
            return world.violated(&format!("no convergence: {reason}"));
        }
        sleep(Duration::from_secs(5)).await;
    }
    world.note("world", "everything has converged");
    // A pool is refilled, or loses its surplus, after that.
    sleep(REST).await;
    let before = world.changes();
    sleep(REST).await;
    let changes = world.changes() - before;
    if changes > 0 {
        world.violated(&format!("{changes} changes although everything has converged"));
    }
    if let Some(reason) = scene.unsettled(world) {
        world.violated(&format!("it has converged, and does not stay so: {reason}"));
    }
}
