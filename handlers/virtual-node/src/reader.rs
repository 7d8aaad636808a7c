//! Reads the machines: one task per node, so that a machine that hangs does not delay the others.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{join_all, join3};
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{HandlerError, Source, TriggerSender, causes};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::back_end::{NodeBackEnd, Reply};
use crate::counters::Read;
use crate::error::VirtualNodeError;
use crate::machine::Machine;
use crate::pod::node_of;
use crate::reach::{MISDESCRIBED, MachineOutage, ReadFailure, retry_delay};
use crate::recorder::EventReason;
use crate::reports::ReportVerdict;
use crate::shared::Shared;
use crate::triggers::NodeDue;

/// The minimum number of nodes at which the silence of most machines is taken for a network failure of this process, so that
/// [`MASS_PATIENCE`] applies.
const MASS_MINIMUM: usize = 4;

/// The maximum interval at which the running tasks, one per node, are compared with the nodes: tasks are started for new nodes and stopped
/// for removed ones.
const TASK_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The factor by which the interval between reads of a machine's health is extended while its heartbeats arrive and its workloads stay
/// the same.
const READS_PER_HEALTH: u32 = 5;

/// The factor by which `Policy::gone_after` is extended while most machines are silent, because then this process probably cannot reach
/// them.
const MASS_PATIENCE: u32 = 5;

/// The trigger source of the handler. It runs the [`NodeSource`](crate::NodeSource) and one task per node, and sends a
/// trigger when a node is added or removed, when the state of a machine changes, when the lease of a node is to be
/// renewed, and when a pod is to be reconciled after a delay.
pub(crate) struct MachineReaders(pub(crate) Arc<Shared>);

#[async_trait]
impl Source for MachineReaders {
    async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        let shared = &self.0;
        shared.node_store.notifier.connect(&sender);
        tokio::select! {
            result = shared.config.source.run(Arc::clone(&shared.node_store)) => result,
            () = self.send_due_pods(&sender) => Ok(()),
            () = self.run_tasks(&sender) => Ok(()),
        }
    }

    async fn drain(&self) {
        self.0.config.source.drain().await;
    }

    async fn release(&self) {
        self.0.config.source.release().await;
    }

    /// Reads each machine once, for a dry run. Returns an error with the names of the machines that could not be read.
    async fn run_once(&self, sender: TriggerSender) -> Result<(), HandlerError> {
        let shared = &self.0;
        shared.node_store.notifier.connect(&sender);
        tokio::select! {
            result = shared.config.source.run(Arc::clone(&shared.node_store)) => result?,
            () = shared.node_store.completed() => {}
        }
        let machines = shared.node_store.all();
        let reads = machines.iter().map(|machine| read_once(shared, machine, &sender));
        let unread: Vec<_> = join_all(reads).await.into_iter().flatten().collect();
        self.trigger_orphaned_nodes();
        if unread.is_empty() { Ok(()) } else { Err(VirtualNodeError::Unread(unread.join("; ")).into()) }
    }
}

impl MachineReaders {
    /// Sends a trigger for each pod in the delay queue at the time for which its reconciliation is scheduled.
    async fn send_due_pods(&self, sender: &TriggerSender) {
        loop {
            sender.send(self.0.delay_queue.next().await);
        }
    }

    /// Runs one task per node, which serves its kubelet API, triggers the renewals of its lease, and reads its machine.
    async fn run_tasks(&self, sender: &TriggerSender) {
        let mut tasks = JoinSet::new();
        let mut readers: HashMap<Arc<str>, (Arc<Machine>, AbortHandle)> = HashMap::new();
        loop {
            while tasks.try_join_next().is_some() {}
            let node_store = &self.0.node_store;
            let mut ended = HashSet::new();
            readers.retain(|name, (machine, task)| {
                let same = node_store.get(name).is_some_and(|now| Arc::ptr_eq(&now, machine));
                if !same {
                    task.abort();
                    // What its pods have on the one before is nothing that another machine has lost.
                    for owner in self.0.cluster.owners_on(name) {
                        self.0.records.remove(&owner.uid);
                    }
                    ended.insert(Arc::clone(name));
                }
                same && !task.is_finished()
            });
            if !ended.is_empty() {
                let ends = |pod: &Arc<Pod>| ended.contains(node_of(pod));
                self.0.records.retain(|_, record| !record.deleted.as_ref().is_some_and(ends));
            }
            self.0.environments.expire();
            self.0.cluster.expire(|name| node_store.contains(name) || node_store.is_unreadable(name));
            for machine in node_store.all() {
                if !readers.contains_key(&machine.name) {
                    let (shared, of, sender) = (Arc::clone(&self.0), Arc::clone(&machine), sender.clone());
                    let task = tasks.spawn(async move {
                        let kubelet_api = serve_kubelet_api(&shared, &of);
                        join3(kubelet_api, renew_leases(&shared, &of, &sender), read_loop(&shared, &of))
                            .await;
                    });
                    readers.insert(Arc::clone(&machine.name), (machine, task));
                }
            }
            if node_store.is_complete() {
                self.trigger_orphaned_nodes();
            }
            // A task that panicked is started again with the next turnover, and nodes without a machine may need their lease.
            let _ = tokio::time::timeout(TASK_CHECK_INTERVAL, node_store.turnover.notified()).await;
        }
    }

    /// Triggers a reconciliation of each Node object that this handler owns and the node source does not list, if this process
    /// may act for the node.
    fn trigger_orphaned_nodes(&self) {
        let Shared { cluster, node_store, config, .. } = &*self.0;
        for name in cluster.nodes_of(self.0.node_owner(), |_| false) {
            if !node_store.contains(&name) && config.source.may_act(&name) {
                node_store.notifier.node_due(&name);
            }
        }
    }
}

/// Triggers a reconciliation of the node of a machine and reads the machine once, for a dry run. Returns why its state is not known (an
/// error, or an answer that comes later); `None` if the read succeeded.
async fn read_once(shared: &Shared, machine: &Machine, sender: &TriggerSender) -> Option<String> {
    if let Some(kubelets) = &shared.config.kubelets {
        machine.set_kubelet_endpoint(kubelets.expected(shared.cluster.node(&machine.name).as_deref()));
    }
    sender.send(NodeDue::new(&machine.name));
    match bounded_read(shared, machine, &mut ReadTimes::now()).await {
        Ok(true) => {
            machine.read_succeeded();
            None
        }
        Ok(false) => Some(format!("{}: its answer comes later", machine.name)),
        Err(error) => {
            let message = causes(&error);
            machine.read_failed(reason(machine, &error), message.clone(), refuses(&error));
            Some(format!("{}: {message}", machine.name))
        }
    }
}

/// Triggers a reconciliation of the node for each renewal of its lease. The times vary by up to a tenth of the
/// interval, so that nodes that were added together do not renew their leases together.
async fn renew_leases(shared: &Shared, machine: &Machine, sender: &TriggerSender) {
    let interval = shared.config.policy.lease_interval;
    sender.send(NodeDue::new(&machine.name));
    let mut round = 0;
    loop {
        tokio::time::sleep(spread(interval, &machine.name, round)).await;
        sender.send(NodeDue::new(&machine.name));
        round += 1;
    }
}

/// Serves the kubelet API of a node, if kubelet APIs are enabled.
async fn serve_kubelet_api(shared: &Shared, machine: &Arc<Machine>) {
    if let Some(kubelets) = &shared.config.kubelets {
        kubelets.serve(machine, &shared.cluster, &shared.counts, &shared.config.client).await;
    }
}

/// The time of the last read of a machine's health, and the latest time of the next read of its workloads.
struct ReadTimes {
    /// The time of the last read of the machine's health; `None` if the health is to be read with the next read.
    health: Option<Instant>,
    /// The time by which the machine's workloads are read even if its heartbeats arrive.
    workloads: Instant,
}

impl ReadTimes {
    /// Returns the times of a machine of which everything is to be read now.
    fn now() -> Self {
        Self { health: None, workloads: Instant::now() }
    }
}

/// Reads a machine at intervals, reports the start and the end of an outage as Events, and removes the node of a machine that is gone.
async fn read_loop(shared: &Shared, machine: &Machine) {
    let (mut times, mut failed, mut round, mut overslept) = (ReadTimes::now(), 0, 0, false);
    // The credentials that the machine accepted last.
    let mut accepted = None;
    loop {
        if overslept || machine.back_end().is_some_and(|back_end| !back_end.receives_reports()) {
            machine.reports(|reports, _| reports.reports_cannot_arrive());
        }
        machine.reports(|reports, _| reports.asked());
        let wait = match bounded_read(shared, machine, &mut times).await {
            Ok(answered) => {
                failed = 0;
                if answered {
                    shared.counts.read(Read::Success);
                    accepted = machine.back_end().and_then(|back_end| back_end.credentials());
                }
                let reached = machine.take_reached();
                if (answered && machine.read_succeeded()) || reached {
                    let text = "the machine behind this node can be reached";
                    shared.note_node(&machine.name, EventReason::Reached, text);
                }
                // What arrived while this process was suspended, or is the answer to this read, is still to be taken.
                if !answered && !overslept {
                    judge_reports(shared, machine);
                }
                shared.config.policy.poll_interval
            }
            Err(error) => {
                failed += 1;
                times = ReadTimes::now();
                let (reason, refused) = (reason(machine, &error), refuses(&error));
                shared.counts.read(if refused { Read::Refused } else { Read::Failure });
                let credentials = machine.back_end().and_then(|back_end| back_end.credentials());
                let kind = match (refused, credentials) {
                    (false, _) => ReadFailure::Unanswered,
                    (true, Some(credentials)) if accepted == Some(credentials) => ReadFailure::RefusedAnew,
                    (true, _) => ReadFailure::Refused,
                };
                if refused {
                    machine.drop_connection();
                }
                let message = causes(&error);
                if machine.read_failed(reason, message, refused) {
                    report_outage(shared, machine);
                }
                if machine.report_verdict() == ReportVerdict::Gone {
                    shared.machine_is_gone(machine);
                }
                let wait = retry_delay(failed, kind, &shared.config.policy);
                error.retry_after().map_or(wait, |after| after.max(wait))
            }
        };
        round += 1;
        let next_read = Instant::now() + spread(wait, &machine.name, round);
        let mut planned = next_read;
        tokio::select! {
            () = until_due(machine, &mut planned, times.workloads), if failed == 0 => {}
            () = tokio::time::sleep_until(next_read), if failed > 0 => {}
            // A new connection, which was not tried yet.
            () = machine.retry_now.notified() => failed = 0,
            // A machine that does not answer is not read more often because of its pods.
            () = machine.wake.notified(), if failed == 0 => {}
        }
        overslept = Instant::now() > planned + shared.config.policy.poll_interval;
    }
}

/// Waits until `next`, the time of the next read, or until the [verdict](crate::reports::ReportVerdict) on a silent machine changes. While
/// heartbeats arrive, waits longer, at most until `latest`. Sets `next` to the time until which it waited.
async fn until_due(machine: &Machine, next: &mut Instant, latest: Instant) {
    let judged_at = machine.reports(|reports, policy| reports.judged_at(policy));
    *next = judged_at.map_or(*next, |at| at.min(*next));
    loop {
        tokio::time::sleep_until(*next).await;
        let spared = machine.reports(|reports, policy| reports.spared_until(policy));
        match spared.map(|until| until.min(latest)) {
            Some(later) if later > Instant::now() => *next = later,
            _ => return,
        }
    }
}

/// Acts on the time since the last report of a machine whose answers come later ([`Reply::Later`]): counts the read as answered or failed,
/// reports an outage, or removes the node of a machine that is gone.
fn judge_reports(shared: &Shared, machine: &Machine) {
    match machine.report_verdict() {
        ReportVerdict::Heard => shared.counts.read(Read::Success),
        ReportVerdict::Unreachable => {
            shared.counts.read(Read::Failure);
            if machine.fell_silent() {
                report_outage(shared, machine);
            }
        }
        ReportVerdict::Gone => shared.machine_is_gone(machine),
    }
}

impl Shared {
    /// Removes the node of `machine` and publishes an Event, if the machine has sent no report for `Policy::gone_after` ([`MASS_PATIENCE`]
    /// times as long while most machines are silent) and this process may act for the node. Otherwise does nothing.
    fn machine_is_gone(&self, machine: &Machine) {
        let machines = self.node_store.all();
        let silent = machines.iter().filter(|other| other.report_verdict() == ReportVerdict::Gone).count();
        let most = machines.len() >= MASS_MINIMUM && silent * 2 > machines.len();
        let limit = self.config.policy.gone_after.unwrap_or_default() * if most { MASS_PATIENCE } else { 1 };
        let (receivable, silent) =
            machine.reports(|reports, _| (reports.silent_while_receivable(), reports.silent_for()));
        if receivable >= limit && self.config.source.may_act(&machine.name) {
            let silent = silent.as_secs();
            let text =
                format!("the machine behind this node has not answered for {silent} s; its node is removed");
            self.note_node(&machine.name, EventReason::Gone, text);
            self.node_store.remove(&machine.name);
        }
    }
}

/// Publishes an Event on a node about the outage of its machine, which has begun or has another reason than before. Does nothing without an
/// outage.
fn report_outage(shared: &Shared, machine: &Machine) {
    let Some(outage) = machine.view().outage().cloned() else { return };
    let MachineOutage { message, .. } = &outage;
    let text =
        format!("the machine behind this node {}; its pods are left as they are: {message}", outage.state());
    let misdescribed = outage.is_misdescribed();
    let reason = if misdescribed { EventReason::Misdescribed } else { EventReason::Unreachable };
    shared.note_node(&machine.name, reason, text);
}

/// Returns the reason, one word in CamelCase, of the outage that begins or continues with this error of a read.
fn reason(machine: &Machine, error: &DriverError) -> &'static str {
    // Without a connection, it was not the machine that refused.
    if refuses(error) && machine.back_end().is_none() { MISDESCRIBED } else { error.reason().name() }
}

/// Returns `true` if a retry would fail in the same way: the machine refused the read, or its description cannot be used.
fn refuses(error: &DriverError) -> bool {
    matches!(error.reason(), Reason::Refused | Reason::Unsupported | Reason::NotFound)
}

/// Reads a machine within the time limit of the policy, which its responses to other requests extend. The error is [`Reason::Unavailable`]
/// if the limit passes. Returns `true` if the machine answered, `false` if all its answers come later ([`Reply::Later`]).
async fn bounded_read(
    shared: &Shared,
    machine: &Machine,
    times: &mut ReadTimes,
) -> Result<bool, DriverError> {
    let limit = shared.config.policy.read_timeout;
    let answered = || machine.back_end().and_then(|back_end| back_end.last_answer());
    let read = with_extended_limit(limit, answered, read(shared, machine, times)).await;
    read.unwrap_or_else(|| {
        let detail = format!("no answer within {} s", limit.as_secs());
        Err(DriverError::new(Reason::Unavailable, "read the machine").detail(detail))
    })
}

/// Runs `work` with a time limit. While `answered` returns the time of a recent response to another request, the limit
/// is extended to `limit` after that response: `work` may be queued behind that request. Returns `None` if the time
/// limit passes.
async fn with_extended_limit<T>(
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

/// Reads the workloads of a machine and, if it is due, its health. Returns `true` if the machine answered, `false` if all its answers come
/// later ([`Reply::Later`]).
async fn read(shared: &Shared, machine: &Machine, times: &mut ReadTimes) -> Result<bool, DriverError> {
    let back_end = back_end(shared, machine).await?;
    let interval = spread(shared.config.policy.health_interval, &machine.name, 0);
    let mut answered = false;
    let reads = if machine.has_current_health() { READS_PER_HEALTH } else { 1 };
    if times.health.is_none_or(|last| last + interval * reads <= Instant::now()) {
        // Changes of the workloads from now on may not be in the answer.
        machine.asking_health();
        if let Reply::Now(health) = back_end.health().await? {
            machine.reported_health(health);
            answered = true;
        }
        times.health = Some(Instant::now());
    }
    let pods = shared.cluster.pods_on(&machine.name);
    back_end.expect(&pods);
    if let Reply::Now(workloads) = back_end.inventory().await? {
        machine.reported_inventory(&workloads);
        answered = true;
    }
    machine.set_expected(&pods);
    times.workloads = Instant::now() + interval;
    Ok(answered)
}

/// Returns the back end of a machine, and opens the connection if there is none. If `NodeSpec::session` changes meanwhile, the
/// connection is opened again.
async fn back_end(shared: &Shared, machine: &Machine) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
    if let Some(open) = machine.back_end() {
        return Ok(open);
    }
    loop {
        let spec = machine.view().spec;
        let opened = shared.config.source.open(&spec).await?;
        if machine.set_connection(spec.session, &opened) {
            return Ok(opened);
        }
    }
}

/// Returns a duration that is up to a tenth shorter or longer than `wait`, different for each node and `round` (the
/// number of the repetition), so that tasks that started together do not stay synchronised.
fn spread(wait: Duration, name: &str, round: u32) -> Duration {
    use std::hash::{Hash, Hasher};
    let mut digest = std::hash::DefaultHasher::new();
    (name, round).hash(&mut digest);
    let tenth = u32::try_from(digest.finish() % 201).unwrap_or(100);
    wait * (900 + tenth) / 1000
}

#[cfg(test)]
pub(crate) mod tests;
