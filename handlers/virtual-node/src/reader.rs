//! Reads the machines: one task a node, so that one that hangs delays no other.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, join3};
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{HandlerError, Outlet, Source, causes};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::back_end::{NodeBackEnd, Reply};
use crate::error::VirtualNodeError;
use crate::figures::Read;
use crate::machine::Machine;
use crate::notes::{reached_note, unreachable_note};
use crate::reach::knock;
use crate::shared::Shared;
use crate::signals::NodeDue;
use crate::source::Intake;

/// The source of all signals of a handler: its nodes come and go, their machines are read, leases fall due, and pods whose time
/// has come are called.
pub(crate) struct Readers(pub(crate) Arc<Shared>);

impl Source for Readers {
    async fn run(&self, outlet: Outlet) -> Result<(), HandlerError> {
        let shared = &self.0;
        shared.fleet.speaks_to(&outlet);
        tokio::select! {
            result = shared.source.run(Intake(Arc::clone(&shared.fleet))) => result,
            () = self.call(&outlet) => Ok(()),
            () = self.read(&outlet) => Ok(()),
        }
    }

    /// Each machine is looked at once; what is due at the start is due then.
    async fn rehearse(&self, outlet: Outlet) -> Result<(), HandlerError> {
        let shared = &self.0;
        shared.fleet.speaks_to(&outlet);
        tokio::select! {
            result = shared.source.run(Intake(Arc::clone(&shared.fleet))) => result?,
            () = shared.fleet.completed() => {}
        }
        let machines = shared.fleet.all();
        let looks = machines.iter().map(|machine| look_once(shared, machine, &outlet));
        let unread: Vec<_> = join_all(looks).await.into_iter().flatten().collect();
        self.strays();
        if unread.is_empty() { Ok(()) } else { Err(VirtualNodeError::Unread(unread.join("; ")).into()) }
    }
}

impl Readers {
    async fn call(&self, outlet: &Outlet) {
        loop {
            outlet.signal(self.0.agenda.next().await);
        }
    }

    /// One task for each node that exists.
    async fn read(&self, outlet: &Outlet) {
        let mut tasks = JoinSet::new();
        let mut readers: HashMap<Arc<str>, (Arc<Machine>, AbortHandle)> = HashMap::new();
        loop {
            while tasks.try_join_next().is_some() {}
            let fleet = &self.0.fleet;
            readers.retain(|name, (machine, task)| {
                let same = fleet.get(name).is_some_and(|now| Arc::ptr_eq(&now, machine));
                if !same {
                    task.abort();
                    // What its pods have on the one before is nothing that another machine has lost.
                    for owner in self.0.cluster.owners_on(name) {
                        self.0.records.remove(&owner.uid);
                    }
                }
                same && !task.is_finished()
            });
            self.0.environments.expire();
            self.0.cluster.expire(|name| fleet.get(name).is_some() || fleet.is_unread(name));
            for machine in fleet.all() {
                if !readers.contains_key(machine.name()) {
                    let (shared, outlet) = (Arc::clone(&self.0), outlet.clone());
                    let of = Arc::clone(&machine);
                    let task = tasks.spawn(async move {
                        join3(answer(&shared, &of), beat(&shared, &of, &outlet), watch_over(&shared, &of))
                            .await;
                    });
                    readers.insert(Arc::clone(machine.name()), (machine, task));
                }
            }
            if fleet.is_complete() {
                self.strays();
            }
            // A task that panicked is started again with the next turnover, and nodes without a machine may need their lease.
            let _ = tokio::time::timeout(self.0.policy.lease_interval, fleet.turnover.notified()).await;
        }
    }

    /// Node objects of ours of which no source says that they exist.
    fn strays(&self) {
        for name in self.0.cluster.nodes_of(self.0.keeper()) {
            if self.0.fleet.get(&name).is_none() {
                self.0.fleet.node_due(&name);
            }
        }
    }
}

/// Reads a machine. Answers why that was not possible, if it was not.
async fn look_once(shared: &Shared, machine: &Machine, outlet: &Outlet) -> Option<String> {
    if let Some(kubelets) = &shared.kubelets {
        machine.answers_at(kubelets.expected(shared.cluster.node(machine.name()).as_deref()));
    }
    outlet.signal(NodeDue::new(machine.name()));
    match bounded_read(shared, machine, &mut Instant::now()).await {
        Ok(()) => {
            machine.reached();
            None
        }
        Err(error) => {
            let message = causes(&error);
            machine.missed(error.reason().name(), message.clone(), refuses(&error));
            Some(format!("{}: {message}", machine.name()))
        }
    }
}

/// The lease of a node is due, again and again; nodes that came together are spread over the interval.
async fn beat(shared: &Shared, machine: &Machine, outlet: &Outlet) {
    let interval = shared.policy.lease_interval;
    outlet.signal(NodeDue::new(machine.name()));
    let mut turn = 0;
    loop {
        tokio::time::sleep(spread(interval, machine.name(), turn)).await;
        outlet.signal(NodeDue::new(machine.name()));
        turn += 1;
    }
}

/// Answers the kubelet API of a node, where this process does.
async fn answer(shared: &Shared, machine: &Arc<Machine>) {
    if let Some(kubelets) = &shared.kubelets {
        kubelets.serve(machine, &shared.cluster, &shared.counts).await;
    }
}

/// Reads one machine, for ever.
async fn watch_over(shared: &Shared, machine: &Machine) {
    let (mut health_due, mut failed, mut turn) = (Instant::now(), 0, 0);
    loop {
        let wait = match bounded_read(shared, machine, &mut health_due).await {
            Ok(()) => {
                failed = 0;
                shared.counts.read(Read::Success);
                if machine.reached() {
                    shared.notes.tell(reached_note(shared.handler, machine));
                }
                shared.policy.poll_interval
            }
            Err(error) => {
                failed += 1;
                health_due = Instant::now();
                let refused = refuses(&error);
                shared.counts.read(if refused { Read::Refused } else { Read::Failure });
                if refused {
                    machine.closed();
                }
                let message = causes(&error);
                if machine.missed(error.reason().name(), message.clone(), refused) {
                    shared.notes.tell(unreachable_note(shared.handler, machine, &message));
                }
                let wait = knock(failed, refused, &shared.policy);
                error.retry_after().map_or(wait, |after| after.max(wait))
            }
        };
        turn += 1;
        let wait = spread(wait, machine.name(), turn);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // Another way to the machine, which nobody has tried yet.
            () = machine.moved.notified() => failed = 0,
            // What somebody else wants to know is no reason to knock more often.
            () = machine.poked.notified(), if failed == 0 => {}
        }
    }
}

/// Whether the machine answered, and will not answer otherwise for being asked again.
fn refuses(error: &DriverError) -> bool {
    matches!(error.reason(), Reason::Refused | Reason::Unsupported | Reason::NotFound)
}

async fn bounded_read(
    shared: &Shared,
    machine: &Machine,
    health_due: &mut Instant,
) -> Result<(), DriverError> {
    let limit = shared.policy.read_timeout;
    let answered = || machine.back_end().and_then(|back_end| back_end.last_answer());
    let read = patiently(limit, answered, read(shared, machine, health_due)).await;
    read.unwrap_or_else(|| {
        let detail = format!("no answer within {} s", limit.as_secs());
        Err(DriverError::new(Reason::Unavailable, "read the machine").detail(detail))
    })
}

/// What comes of `work`, if that comes within `limit`, or within `limit` of the last answer that the machine gave to somebody: who
/// waits for others to be answered does not wait for the machine.
async fn patiently<T>(
    limit: Duration,
    answered: impl Fn() -> Option<Instant>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut until = Instant::now() + limit;
    loop {
        if let Ok(done) = tokio::time::timeout_at(until, &mut work).await {
            return Some(done);
        }
        until = answered().map(|at| at + limit).filter(|later| *later > until)?;
    }
}

async fn read(shared: &Shared, machine: &Machine, health_due: &mut Instant) -> Result<(), DriverError> {
    let back_end = back_end(shared, machine).await?;
    if *health_due <= Instant::now() {
        if let Reply::Now(health) = back_end.health().await? {
            machine.told_health(health);
        }
        *health_due = Instant::now() + shared.policy.health_interval;
    }
    if let Reply::Now(workloads) = back_end.inventory().await? {
        machine.told_inventory(workloads);
    }
    Ok(())
}

async fn back_end(shared: &Shared, machine: &Machine) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
    if let Some(open) = machine.back_end() {
        return Ok(open);
    }
    loop {
        let spec = machine.spec();
        let opened = shared.source.open(&spec).await?;
        if machine.opened(spec.session, &opened) {
            return Ok(opened);
        }
    }
}

/// A time up to a tenth shorter or longer than `wait`, other for each node and each turn, so that many that began together do
/// not go on together.
fn spread(wait: Duration, name: &str, turn: u32) -> Duration {
    use std::hash::{Hash, Hasher};
    let mut digest = std::hash::DefaultHasher::new();
    (name, turn).hash(&mut digest);
    let tenth = u32::try_from(digest.finish() % 201).unwrap_or(100);
    wait * (900 + tenth) / 1000
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use staffetta_driver::memory::{
        AppHostingMethod, Fault, MemoryAppHostingDriver, MemoryDevice, MemoryDevices,
    };
    use staffetta_handler::{Note, Notebook, Notes};

    use super::*;
    use crate::app_hosting::DeviceBackEnd;
    use crate::handler::tests::{idle, wiring};
    use crate::handler::{VirtualNodes, Wiring};
    use crate::node::NodeSpec;
    use crate::source::NodeSource;

    #[tokio::test(start_paused = true)]
    async fn what_was_read_for_a_pod_is_forgotten_with_it_or_when_its_time_is_over() {
        let shared = idle().shared();
        shared.environments.keep("gone");
        shared.environments.keep("stays");
        shared.forget(&"gone".into());
        assert_eq!(shared.environments.kept(), 1);
        let readers = Readers(Arc::clone(&shared));
        let run =
            |seconds| tokio::time::timeout(Duration::from_secs(seconds), readers.run(Outlet::new(|_| ())));
        assert!(run(50).await.is_err());
        assert_eq!(shared.environments.kept(), 1);
        assert!(run(30).await.is_err());
        assert_eq!(shared.environments.kept(), 0, "nobody asked for it once more");
    }

    /// A device in memory is behind the one node.
    struct OneDevice(Arc<MemoryDevice>);

    #[async_trait]
    impl NodeSource for OneDevice {
        async fn run(&self, intake: Intake) -> Result<(), HandlerError> {
            intake.exists(NodeSpec::bare("r1"));
            intake.complete();
            std::future::pending().await
        }

        async fn open(&self, _: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
            let driver = MemoryAppHostingDriver::new(Arc::clone(&self.0), "east".into());
            Ok(Arc::new(DeviceBackEnd::new(Arc::new(driver), None)))
        }
    }

    /// What was told.
    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<Note>>>);

    impl Notebook for Heard {
        fn tell(&self, note: Note) {
            self.0.lock().unwrap().push(note);
        }
    }

    impl Heard {
        /// What was told in the next minutes, as reasons and texts.
        async fn in_minutes(&self, minutes: u64) -> Vec<(&'static str, String)> {
            tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
            self.0.lock().unwrap().drain(..).map(|note| (note.reason, note.text)).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_refuses_us_after_an_outage_is_told_anew_and_its_first_answer_is_no_news() {
        let (device, heard) = (MemoryDevices::default().device("r1"), Heard::default());
        let source = Arc::new(OneDevice(Arc::clone(&device)));
        let wiring = Wiring { source, notes: Notes::new(heard.clone()), ..wiring() };
        let readers = Readers(VirtualNodes::new(wiring).shared());
        let reading = tokio::spawn(async move { readers.run(Outlet::new(|_| ())).await });
        assert_eq!(heard.in_minutes(5).await, [], "it was reached at the start");
        device.set_reachable(false);
        let told = heard.in_minutes(5).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0 == "MachineUnreachable" && told[0].1.contains("switched off"), "{told:?}");
        let refusal = DriverError::new(Reason::Refused, "log in").detail("401");
        device.faults().inject(AppHostingMethod::Resources, 1000, Fault::Fail(refusal));
        let told = heard.in_minutes(60).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0 == "MachineUnreachable" && told[0].1.contains("it was refused: 401"), "{told:?}");
        device.faults().clear();
        device.set_reachable(true);
        let told = heard.in_minutes(15).await;
        assert_eq!(told.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), ["MachineReached"]);
        reading.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_behind_others_has_patience_as_long_as_the_machine_answers_them() {
        const LIMIT: Duration = Duration::from_secs(30);
        let (began, sleep) = (Instant::now(), |seconds| tokio::time::sleep(Duration::from_secs(seconds)));
        assert_eq!(patiently(LIMIT, || None, sleep(29)).await, Some(()));
        assert_eq!(patiently(LIMIT, || None, sleep(31)).await, None);
        assert_eq!(patiently(LIMIT, || Some(began), sleep(31)).await, None, "that was long ago");
        assert_eq!(patiently(LIMIT, || Some(Instant::now()), sleep(300)).await, Some(()));
        let silent_after = Instant::now() + Duration::from_secs(100);
        let answered = || Some(Instant::now().min(silent_after));
        let begun = Instant::now();
        assert_eq!(patiently(LIMIT, answered, sleep(1000)).await, None);
        assert_eq!(begun.elapsed(), Duration::from_secs(130));
    }

    #[test]
    fn nodes_that_came_together_do_not_go_on_together() {
        let wait = Duration::from_secs(10);
        let mut waits: Vec<_> = (0..1000).map(|node| spread(wait, &format!("n{node}"), 1)).collect();
        waits.sort_unstable();
        assert!(waits[0] >= Duration::from_secs(9) && waits[999] <= Duration::from_secs(11));
        waits.dedup();
        assert!(waits.len() > 100, "{} different times", waits.len());
    }
}
