//! The node source of `vnode`: the bases whose Leases this process holds.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::Mutex;
use staffetta_driver::tunnel::{NodeDescription, NodeId};
use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{BootTime, HandlerError};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};

use super::back_end::BaseBackEnd;
use super::base::{Base, BaseProfile, NamedTunnel};
use super::describe::{NodeTemplate, profile_of};
use super::known::{HeldChange, KnownBases};
use super::lease::{LeaseIndex, LeaseWrite, LeaseWriter, WriteResult};
use super::peer::PeerIndex;
use super::sent_baselines::SentBaselines;
use super::share::ELECTION_INTERVAL;
use super::tracker::OperationTracker;
use super::unconfigured::UnconfiguredTunnel;
use crate::back_end::NodeBackEnd;
use crate::counters::{Counts, LeaseChange};
use crate::node::{NodeOwner, NodeSpec};
use crate::node_store::NodeStore;
use crate::source::NodeSource;

/// The interval at which this process learns of nodes that other replicas created, and gives up those that exist no more.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// The time limit of the calls that tell a tunnel that a node starts or stops. The Lease elections wait for these calls.
pub(super) const TUNNEL_LIMIT: Duration = Duration::from_secs(1);

/// The requests to the API server in progress. Only writes to Leases that [`KnownBases`] has requested have a result.
type Requests = JoinSet<Option<(Arc<str>, WriteResult)>>;

/// The node source of `vnode`. It knows all bases, and adds those to the [`NodeStore`] whose Leases it holds.
pub(super) struct VnodeSource {
    pub(super) cluster: String,
    /// The identity of this process, the holder of Leases.
    pub(super) replica: String,
    pub(super) template: NodeTemplate,
    /// The time limit of starting or stopping a container.
    pub(super) operation_limit: Duration,
    /// The time after which a container that no pod has is stopped; `None` to leave it.
    pub(super) unowned_grace: Option<Duration>,
    pub(super) tunnels: Vec<NamedTunnel>,
    pub(super) leases: Arc<LeaseIndex>,
    pub(super) writer: Arc<LeaseWriter>,
    /// The peer Deployments, from which the baselines of bases come.
    pub(super) baselines: Arc<PeerIndex>,
    pub(super) sent_baselines: Arc<SentBaselines>,
    pub(super) tracker: OperationTracker,
    /// The counters, of which this source increments those of Leases taken, given up and lost.
    pub(super) counts: Arc<Counts>,
    pub(super) bases: Mutex<KnownBases>,
    /// The node store, to which nodes are added; unset until the source runs for the first time.
    pub(super) nodes: OnceLock<Arc<NodeStore>>,
}

#[async_trait]
impl NodeSource for VnodeSource {
    async fn run(&self, nodes: Arc<NodeStore>) -> Result<(), HandlerError> {
        let nodes = self.nodes.get_or_init(|| nodes);
        let tunnels = (0..self.tunnels.len()).map(|tunnel| self.run_tunnel(tunnel, nodes));
        tokio::select! {
            _ = join_all(tunnels) => {}
            () = self.run_elections(nodes) => {}
            never = self.tracker.inspect() => match never {},
        }
        Ok(())
    }

    async fn open(&self, node: &NodeSpec) -> Result<Arc<dyn NodeBackEnd>, DriverError> {
        let base = self.bases.lock().held(&node.name).map(Arc::clone);
        let base = base.ok_or_else(|| DriverError::new(Reason::Awaited, "look after a base"))?;
        Ok(Arc::new(BaseBackEnd { base, sent_baselines: Arc::clone(&self.sent_baselines) }))
    }

    fn holds_leases(&self) -> bool {
        true
    }

    fn may_act(&self, name: &str) -> bool {
        self.bases.lock().may_act(name, BootTime::now())
    }

    async fn drain(&self) {
        let is_busy = |base: &&Arc<Base>| !base.containers.lock().close();
        // Each base is closed as soon as it is idle, so all are looked at.
        while self.bases.lock().all_held().filter(is_busy).count() > 0 {
            tokio::time::sleep(ELECTION_INTERVAL).await;
        }
    }

    async fn release(&self) {
        let names = self.bases.lock().names();
        join_all(names.iter().map(|name| self.give_up(name))).await;
        let own = self.bases.lock().replicas.give_up();
        if let Some((name, version)) = own {
            self.writer.delete(&name, version).await;
        }
    }
}

impl VnodeSource {
    /// Gives up the Lease of a node at the end of this process, so that another process takes it at once.
    async fn give_up(&self, name: &str) {
        let (base, lease) = self.bases.lock().give_up(name);
        if let Some(base) = base {
            self.stop_managing(&base).await;
        }
        if let Some(lease) = lease {
            self.counts.lease(LeaseChange::GivenUp);
            let node = self.nodes.get().and_then(|nodes| nodes.pods.node(name));
            self.writer.give_up(name, node.as_deref(), lease).await;
        }
    }

    /// Returns a copy of `id`, the id of a base, with the name that the node of this base has.
    pub(super) fn names(&self, id: &NodeId) -> (NodeId, Arc<str>) {
        (id.clone(), self.template.name(id).into())
    }

    /// Learns of bases from Node objects, takes, renews and loses Leases, and starts and stops looking after bases.
    async fn run_elections(&self, nodes: &Arc<NodeStore>) {
        // If this ran before, the writes of then are not waited for any more.
        self.bases.lock().interrupted(BootTime::now());
        let (mut ticks, mut sweeps) =
            (tokio::time::interval(ELECTION_INTERVAL), tokio::time::interval(SWEEP_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut requests = Requests::new();
        loop {
            tokio::select! {
                _ = sweeps.tick() => {
                    self.learn_bases(nodes);
                    self.give_up_removed(nodes, &mut requests).await;
                }
                _ = ticks.tick() => {
                    self.apply_lease_changes(nodes).await;
                    let mut due = self.due(nodes);
                    due.extend(self.hand_over(nodes).await);
                    for (name, write) in due {
                        let (writer, node) = (Arc::clone(&self.writer), nodes.pods.node(&name));
                        requests.spawn(async move {
                            let result = writer.write(&name, node.as_deref(), write).await;
                            Some((name, result))
                        });
                    }
                }
                Some(written) = requests.join_next() => {
                    if let Ok(Some((name, result))) = written {
                        if let WriteResult::Written(seen) | WriteResult::First(seen) = &result {
                            self.leases.forget_taken(&name, seen.version);
                        }
                        self.bases.lock().written(&name, &result, BootTime::now());
                    }
                }
            }
        }
    }

    /// Returns the writes to Leases that are due now, to create, renew or take them.
    fn due(&self, nodes: &NodeStore) -> Vec<(Arc<str>, LeaseWrite)> {
        let exists = |name: &str| nodes.pods.node(name).is_some();
        let ready = self.tunnels.iter().all(|tunnel| tunnel.tunnel.ready() && tunnel.tunnel.connected());
        let now = BootTime::now();
        let mut bases = self.bases.lock();
        let is_known = |name: &str| bases.get(name).is_some() || exists(name);
        let others = self.leases.unknown(is_known);
        bases.replicas.observe(others, now);
        bases.due(|name| self.leases.get(name), exists, ready, (now, Instant::now()))
    }

    /// Stops looking after the bases that exceed the share of this replica. Returns the writes that give their Leases up.
    async fn hand_over(&self, nodes: &NodeStore) -> Vec<(Arc<str>, LeaseWrite)> {
        let surplus = self.bases.lock().surplus(|node| nodes.contains(node), BootTime::now());
        let mut writes = Vec::new();
        for (base, write) in surplus {
            self.counts.lease(LeaseChange::GivenUp);
            info!(
                node = &*base.node,
                "this replica gives up the lease of the node, because others have fewer"
            );
            nodes.release(&base.node);
            writes.push((base, write));
        }
        join_all(writes.iter().map(|(base, _)| self.stop_managing(base))).await;
        writes.into_iter().map(|(base, write)| (Arc::clone(&base.node), write)).collect()
    }

    /// Adds the bases of those Node objects of this handler whose bases are not known yet.
    fn learn_bases(&self, nodes: &NodeStore) {
        let owner = NodeOwner { handler: super::HANDLER, cluster: &self.cluster, predecessor: None };
        let unknown = {
            let bases = self.bases.lock();
            nodes.pods.nodes_of(owner, |name| bases.get(name).is_some())
        };
        for name in unknown {
            let Some((id, node)) = self.template.base(&name).zip(nodes.pods.node(&name)) else { continue };
            let (key, profile) = profile_of(&node);
            let tunnel = self.tunnel(&key);
            if tunnel.is_none() {
                warn!(
                    node = name,
                    tunnel = key,
                    "the tunnel of the node is not in vnode.tunnels; the node is not ready until it is"
                );
            }
            self.bases.lock().add((id, name.into()), tunnel, profile);
        }
    }

    /// Returns the index of the tunnel with this key; `None` if it is not configured.
    fn tunnel(&self, key: &str) -> Option<usize> {
        self.tunnels.iter().position(|tunnel| tunnel.tunnel.key() == key)
    }

    /// Starts looking after the bases whose Lease was taken, and stops looking after those whose Lease was lost.
    async fn apply_lease_changes(&self, nodes: &Arc<NodeStore>) {
        let held_changes = self.bases.lock().held_changes(BootTime::now());
        let follow = async |change| match change {
            HeldChange::Begins(node) => self.start_managing(&node, nodes).await,
            HeldChange::Ends(node, base) => {
                self.counts.lease(LeaseChange::Lost);
                info!(%node, "this replica does not hold the lease of the node any more");
                nodes.release(&node);
                self.stop_managing(&base).await;
            }
        };
        join_all(held_changes.into_iter().map(follow)).await;
    }

    /// Begins to look after a base whose Lease was taken: creates its [`Base`], tells its tunnel, and adds its node to the store if the
    /// Node object exists; otherwise asks the base for its health until it answers, and the node is added then. The profile and the tunnel
    /// of a base that has a Node object are read from there: it was written from answers of the base, while anybody may have reported to
    /// this replica in the name of the base. A tunnel that is not configured any more does not count.
    async fn start_managing(&self, node: &str, nodes: &Arc<NodeStore>) {
        let (base, spec) = {
            let mut bases = self.bases.lock();
            let Some(known) = bases.get_mut(node) else { return };
            let names = (known.id.clone(), Arc::clone(&known.node));
            let mut tunnel_key = String::new();
            if let Some(object) = nodes.pods.node(node) {
                (tunnel_key, known.profile) = profile_of(&object);
                known.tunnel = self.tunnel(&tunnel_key).or(known.tunnel);
            }
            let unconfigured = || NamedTunnel {
                name: "unconfigured".into(),
                tunnel: Arc::new(UnconfiguredTunnel(tunnel_key)),
            };
            let tunnel = known.tunnel.map_or_else(unconfigured, |tunnel| self.tunnels[tunnel].clone());
            let profile = known.profile.clone();
            let (pods, tracker) = (Arc::clone(&nodes.pods), self.tracker.clone());
            let base = Arc::new(Base::new(names, tunnel, profile, pods, tracker, self.operation_limit));
            known.base = Some(Arc::clone(&base));
            (Arc::clone(&base), self.spec(&base))
        };
        self.counts.lease(LeaseChange::Taken);
        info!(node, tunnel = &*base.tunnel.name, "this replica holds the lease of the node");
        let description = base.profile.lock().description.clone();
        starts(&base, &description).await;
        if nodes.pods.node(node).is_some() {
            nodes.add_or_update(spec);
        } else {
            base.await_answer();
        }
    }

    /// Ends the work for a base that this process does not look after any more, and tells its tunnel.
    async fn stop_managing(&self, base: &Base) {
        base.abandon();
        within_limit(base, base.tunnel.tunnel.on_node_stop(&base.id)).await;
    }

    /// Gives up the nodes that were removed because their bases are gone, once their Node objects are deleted, and deletes the expired
    /// Leases of other replicas and of nodes that nobody knows any more. The writes are added to `requests`.
    async fn give_up_removed(&self, nodes: &NodeStore, requests: &mut Requests) {
        let exists = |node: &str| nodes.contains(node) || nodes.has_departed(node);
        let gone = self.bases.lock().ended(exists, Instant::now());
        let mut ended = Vec::new();
        for node in gone {
            let (base, lease) = self.bases.lock().give_up(&node);
            self.bases.lock().forget(&node);
            ended.extend(base);
            if let Some(lease) = lease {
                self.counts.lease(LeaseChange::GivenUp);
                let writer = Arc::clone(&self.writer);
                requests.spawn(async move {
                    writer.retire(&node, lease).await;
                    None
                });
            }
        }
        let expired = self.bases.lock().replicas.expired(BootTime::now());
        for (name, version) in expired {
            let writer = Arc::clone(&self.writer);
            requests.spawn(async move {
                writer.delete(&name, version).await;
                None
            });
        }
        {
            let mut bases = self.bases.lock();
            bases.expire(|name| nodes.pods.node(name).is_some(), Instant::now());
            self.leases.expire(|node| bases.get(node).is_some());
            self.sent_baselines.expire(Instant::now());
        }
        join_all(ended.iter().map(|base| self.stop_managing(base))).await;
    }

    /// Returns the specification of the node of a base.
    pub(super) fn spec(&self, base: &Base) -> NodeSpec {
        let BaseProfile { description, marks } = base.profile.lock().clone();
        self.template.spec(&base.id, base.tunnel.tunnel.key(), &description, &marks)
    }
}

/// Tells the tunnel of a base that the node of the base starts, or that its description has changed.
pub(super) async fn starts(base: &Base, description: &NodeDescription) {
    within_limit(base, base.tunnel.tunnel.on_node_start(&base.id, description)).await;
}

/// Waits for `call`, a call of the tunnel of a base, for at most [`TUNNEL_LIMIT`]. Logs a warning if it takes longer.
async fn within_limit(base: &Base, call: impl Future<Output = ()>) {
    if tokio::time::timeout(TUNNEL_LIMIT, call).await.is_err() {
        warn!(
            node = &*base.node,
            tunnel = &*base.tunnel.name,
            limit_ms = TUNNEL_LIMIT.as_millis(),
            "the tunnel did not start or stop the node in time; it must not wait for the base there"
        );
    }
}

#[cfg(test)]
pub(super) mod tests;
