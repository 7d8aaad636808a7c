//! `cargo xtask bench koupleless`: what many bases cost one controller, and what happens when one of three replicas is killed.
//!
//! A real API server, and the controller as it ships, each in processes of their own; the bases are simulated in this process, each
//! with an address of its own and heartbeats that are spread over their period, as those of processes that started at different
//! times. The CPU time and the memory of the controller's process come from /proc, its writes from the server's audit log. Then two
//! more replicas start, and the first one is killed; the bases count what they are asked. All but that is repeated with bases over
//! MQTT, through a broker in this process.

#![allow(clippy::cast_precision_loss, reason = "the figures are far below 2^52")]

mod audit;
mod cluster;
mod program;
mod renewals;
mod report;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use staffetta_apiserver::testing::RealServer;
use staffetta_koupleless_base::{
    BaseBroker, BaseCommand, SimulatedBase, SimulatedBaseOptions, SimulatedBroker,
};

use audit::AuditLog;
use program::Program;
use renewals::{NAMESPACE, Renewals};
use report::{Row, number, publish};
use wait::{complete, until};

/// The duration of loading a module.
const INSTALL: Duration = Duration::from_millis(100);

/// The number of replicas in the second part.
const REPLICAS: usize = 3;

/// The duration of the lease of a node, and the period of its renewals: the defaults of `[vnode]`.
const LEASE: Duration = Duration::from_secs(40);
const RENEWAL: Duration = Duration::from_secs(10);

/// The time after which nothing follows any more from the start of the modules: `vnode.health_interval_ms` (60 s) and a renewal.
const SETTLING: Duration = Duration::from_secs(75);

/// The allowance for a take-over after the lease expired.
const ALLOWANCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    if let Some(code) = renewals::served() {
        return code;
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    publish("koupleless", &runtime.block_on(measure()));
    ExitCode::SUCCESS
}

/// The sizes of a run.
#[derive(Clone, Copy)]
struct Size {
    bases: u16,
    modules: usize,
    rest: Duration,
}

async fn measure() -> Vec<Row> {
    let bases =
        u16::try_from(number("STAFFETTA_BENCH_BASES", 1000)).expect("a base has an address of its own");
    let modules = number("STAFFETTA_BENCH_MODULES", 10);
    let rest = Duration::from_secs(number("STAFFETTA_BENCH_REST", 60) as u64);
    let size = Size { bases, modules, rest };
    let only = std::env::var("STAFFETTA_BENCH_TUNNEL").ok();
    assert!(
        only.as_deref().is_none_or(|only| ["http", "mqtt"].contains(&only)),
        "STAFFETTA_BENCH_TUNNEL is neither http nor mqtt"
    );
    let wanted = |tunnel: &str| only.as_ref().is_none_or(|only| only == tunnel);
    let mut links = Vec::new();
    if wanted("http") {
        links.push(Link::Http(free_addresses()));
    }
    if wanted("mqtt") {
        links.push(Link::Mqtt(SimulatedBroker::start().await.expect("a port is free")));
    }
    let mut rows = Vec::new();
    for link in links {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let (mut world, first) = World::start(folder.path(), link, size).await;
        rows.extend(world.discover().await);
        rows.extend(world.rest(&first).await);
        rows.extend(world.fail_over(first).await);
    }
    rows
}

/// The way to the bases.
enum Link {
    /// The addresses at which the replicas listen for bases.
    Http([SocketAddr; REPLICAS]),
    Mqtt(SimulatedBroker),
}

impl Link {
    fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "HTTP",
            Self::Mqtt(_) => "MQTT",
        }
    }

    /// The configuration of a replica.
    fn sections(&self, replica: usize) -> String {
        let tunnel = match self {
            Self::Http(listeners) => format!(
                "tunnels = [\"http\"]\n[vnode_http]\nlisten = \"{}\"\nbase_networks = [\"127.0.0.0/8\"]\n",
                listeners[replica]
            ),
            Self::Mqtt(broker) => format!(
                "tunnels = [\"mqtt\"]\n[vnode_mqtt]\nbroker = \"127.0.0.1\"\nport = {}\ntls = false\n",
                broker.address().port()
            ),
        };
        // Those about the loading would be written for a quarter of an hour, at 10 per second.
        let events = "[events]\nenabled = false\n";
        format!(
            "{events}[kubernetes]\nenabled_handlers = [\"vnode\"]\n[vnode]\nenvironment = \"dev\"\n{tunnel}"
        )
    }

    async fn base(&self, options: SimulatedBaseOptions) -> SimulatedBase {
        match self {
            Self::Http(listeners) => {
                SimulatedBase::http(options, listeners).await.expect("each base has an address of its own")
            }
            Self::Mqtt(broker) => {
                let (host, port) = ("127.0.0.1".to_owned(), broker.address().port());
                SimulatedBase::mqtt(options, BaseBroker { host, port, environment: "dev".to_owned() })
            }
        }
    }
}

/// Addresses at which the replicas are to listen for bases.
fn free_addresses() -> [SocketAddr; REPLICAS] {
    let listeners =
        [(); REPLICAS].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free"));
    listeners.map(|listener| listener.local_addr().expect("it listens"))
}

struct World {
    client: Client,
    server: RealServer,
    audit: AuditLog,
    link: Link,
    bases: Vec<SimulatedBase>,
    size: Size,
}

impl World {
    /// Starts an API server, which writes its audit log to `folder`, and the first replica.
    async fn start(folder: &Path, link: Link, size: Size) -> (Self, Program) {
        let audit = AuditLog::prepare(folder);
        let flags = audit.flags();
        let server = RealServer::start(&flags.each_ref().map(String::as_str)).await;
        let client = cluster::client(server.kubeconfig()).await;
        let first = Program::start(server.kubeconfig(), &link.sections(0));
        // Until then, it cannot know that nobody holds the Leases of new bases.
        tokio::time::sleep(LEASE + RENEWAL).await;
        (Self { client, server, audit, link, bases: Vec::new(), size }, first)
    }

    /// Starts the bases, waits for their nodes, and then for the modules of the pods on them.
    async fn discover(&mut self) -> Vec<Row> {
        let Size { bases, modules, .. } = self.size;
        let began = Instant::now();
        for number in 1..=bases {
            let options = SimulatedBaseOptions {
                install_time: INSTALL,
                ..SimulatedBaseOptions::numbered(number, bases)
            };
            self.bases.push(self.link.base(options).await);
        }
        self.until_nodes().await;
        let discovered = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let pods: Vec<_> =
            (1..=bases).flat_map(|base| (0..modules).map(move |module| (base, module))).collect();
        self.create(pods).await;
        self.until_loaded(modules).await;
        let loaded = began.elapsed().as_secs_f64();
        vec![
            Row::new(
                format!("until {bases} bases over {} are ready nodes", self.link.name()),
                "s",
                discovered,
            )
            .goal("at most 30", discovered <= 30.0),
            Row::new(format!("until all {} modules run", usize::from(bases) * modules), "s", loaded),
        ]
    }

    /// Measures the controller while nothing changes, and beside it bare renewals in the same number.
    async fn rest(&mut self, controller: &Program) -> Vec<Row> {
        let (count, rest) = (usize::from(self.size.bases), self.size.rest);
        let bare = Renewals::start(self.server.kubeconfig(), count, RENEWAL).await;
        // Each base is asked for its health once after the last change of its modules.
        tokio::time::sleep(SETTLING).await;
        self.audit.skip();
        let (before, bare_before, asked) = (controller.usage(), bare.usage(), self.requests());
        tokio::time::sleep(rest).await;
        let (usage, bare_usage, requests) = (controller.usage(), bare.usage(), self.requests() - asked);
        let writes = self.audit.writes();
        let share = |after: Duration, before: Duration| {
            after.saturating_sub(before).as_secs_f64() / rest.as_secs_f64() * 100.0
        };
        let (ours, baseline) = (share(usage.cpu, before.cpu), share(bare_usage.cpu, bare_before.cpu));

        let sum = |what: &str| {
            let of = writes.iter().filter(|(write, _)| write.starts_with(what));
            of.map(|(_, count)| count).sum::<u64>() as f64
        };
        let periods = rest.as_secs_f64() / RENEWAL.as_secs_f64();
        let renewals = sum("leases ") / (count as f64 * periods);
        let others = sum("") - sum("leases ");
        let modules = self.size.modules;
        vec![
            Row::new(
                format!("CPU, {modules} modules on each base, {}", self.link.name()),
                "% of a core",
                ours,
            )
            .against(baseline)
            .goal("under 50", ours < 50.0)
            .goal("at most 1.5 times the bare renewals", ours <= baseline * 1.5),
            Row::new("resident", "MiB", usage.resident).goal("under 200", usage.resident < 200.0),
            Row::new("renewals of a lease in a period", "", renewals).goal("at most 1.1", renewals <= 1.1),
            Row::new("other writes", "", others).goal("0", others == 0.0),
            Row::new("requests to bases", "1/s", requests as f64 / rest.as_secs_f64()),
        ]
    }

    /// Starts two more replicas, waits until they share the nodes, and kills the first one.
    async fn fail_over(&mut self, first: Program) -> Vec<Row> {
        let count = usize::from(self.size.bases);
        let alone = self.holders().await;
        let killed_holder = alone.values().next().expect("there is a lease").clone();
        let start = |replica| Program::start(self.server.kubeconfig(), &self.link.sections(replica));
        let _others: Vec<_> = (1..REPLICAS).map(start).collect();
        let began = Instant::now();
        // Each replica has at least three quarters of its share.
        let least = count * 3 / 4 / REPLICAS;
        until(Duration::from_secs(1), async || {
            let holders = self.holders().await;
            let shares = shares(&holders);
            let enough = shares.values().filter(|share| **share >= least).count();
            complete(enough, REPLICAS, "replicas have their share")
        })
        .await;
        let balanced = began.elapsed().as_secs_f64();

        let share: BTreeSet<_> =
            self.holders().await.into_iter().filter(|(_, holder)| *holder == killed_holder).collect();
        let orphans: BTreeSet<u16> = share.iter().filter_map(|(node, _)| base_of(node)).collect();
        let killed = Instant::now();
        first.kill().await;
        // Pods that the dead replica would have served.
        let modules = self.size.modules;
        self.create(orphans.iter().map(|base| (*base, modules)).collect()).await;
        until(Duration::from_millis(500), async || {
            let left = self.holders().await.into_values().filter(|holder| *holder == killed_holder).count();
            complete(share.len() - left, share.len(), "nodes are taken over")
        })
        .await;
        let taken = killed.elapsed().as_secs_f64();
        self.until_asked(&orphans, modules + 1).await;
        let wrong = self.wrong(&orphans).await;
        let most = (LEASE + ALLOWANCE).as_secs_f64();
        vec![
            Row::new("until three replicas share the nodes", "s", balanced),
            Row::new(format!("SIGKILL until its {} nodes are taken over", share.len()), "s", taken)
                .goal(format!("at most {most} (the lease and 10 s)"), taken <= most),
            Row::new("modules loaded twice, unloaded or not loaded", "", wrong as f64).goal("0", wrong == 0),
        ]
    }

    /// The number of modules that were not asked for exactly once, or that their base does not have.
    async fn wrong(&self, orphans: &BTreeSet<u16>) -> usize {
        // Whoever acts twice does it within a few periods.
        tokio::time::sleep(RENEWAL * 3).await;
        let mut wrong = 0;
        for (number, base) in (1..).zip(&self.bases) {
            let mut asked: BTreeMap<String, Vec<BaseCommand>> = BTreeMap::new();
            for operation in base.operations() {
                asked.entry(operation.module).or_default().push(operation.command);
            }
            let expected = self.size.modules + usize::from(orphans.contains(&number));
            wrong += asked.values().filter(|commands| **commands != [BaseCommand::InstallBiz]).count();
            wrong += expected.abs_diff(base.modules().len());
        }
        wrong
    }

    async fn until_nodes(&self) {
        let (nodes, count) = (Api::<Node>::all(self.client.clone()), usize::from(self.size.bases));
        until(Duration::from_millis(500), async || {
            // The cache of the server is enough.
            let listed = nodes.list(&ListParams::default().match_any()).await.expect("nodes can be listed");
            let is_ready = |node: &&Node| {
                let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
                conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
            };
            complete(listed.iter().filter(is_ready).count(), count, "nodes are ready")
        })
        .await;
    }

    /// Waits until each base has so many modules and all pods run.
    async fn until_loaded(&self, modules: usize) {
        let wanted = self.bases.len() * modules;
        until(Duration::from_millis(500), async || {
            let loaded = self.bases.iter().map(|base| base.modules().len()).sum();
            complete(loaded, wanted, "modules are loaded")
        })
        .await;
        let pods = cluster::pods(&self.client);
        let waiting = ListParams::default().fields("status.phase!=Running").match_any();
        until(Duration::from_millis(500), async || {
            let left = pods.list_metadata(&waiting).await.expect("pods can be listed").items.len();
            complete(wanted - left.min(wanted), wanted, "pods run")
        })
        .await;
    }

    /// Waits until each of these bases was asked for so many modules.
    async fn until_asked(&self, bases: &BTreeSet<u16>, modules: usize) {
        until(Duration::from_millis(500), async || {
            let of = |number: &&u16| self.bases[usize::from(**number) - 1].modules().len() >= modules;
            complete(bases.iter().filter(of).count(), bases.len(), "bases have their new module")
        })
        .await;
    }

    /// Creates pods, each for a module on a base.
    async fn create(&self, pods: Vec<(u16, usize)>) {
        let api = cluster::pods(&self.client);
        let create = async |(base, module)| {
            api.create(&PostParams::default(), &pod(base, module)).await.expect("a pod can be created");
        };
        stream::iter(pods).for_each_concurrent(cluster::IN_FLIGHT, create).await;
    }

    /// The holder of the lease of each node of a base.
    async fn holders(&self) -> BTreeMap<String, String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let listed = leases.list(&ListParams::default().match_any()).await.expect("leases can be listed");
        let held = listed.into_iter().filter_map(|lease| {
            let name = lease.metadata.name.filter(|name| base_of(name).is_some())?;
            Some((name, lease.spec?.holder_identity?))
        });
        held.collect()
    }

    fn requests(&self) -> u64 {
        let of =
            |base: &SimulatedBase| BaseCommand::ALL.map(|command| base.received(command)).iter().sum::<u64>();
        self.bases.iter().map(of).sum()
    }
}

/// The number of nodes of each holder.
fn shares(holders: &BTreeMap<String, String>) -> BTreeMap<&str, usize> {
    let mut shares = BTreeMap::new();
    for holder in holders.values() {
        *shares.entry(holder.as_str()).or_default() += 1;
    }
    shares
}

fn node(base: u16) -> String {
    format!("vnode.base-{base}.dev")
}

/// The number of the base behind a node.
fn base_of(node: &str) -> Option<u16> {
    node.strip_prefix("vnode.base-")?.strip_suffix(".dev")?.parse().ok()
}

/// A pod with one module on a base.
fn pod(base: u16, module: usize) -> Pod {
    let env = json!([{ "name": "BIZ_VERSION", "value": "1.0.0" }]);
    let container =
        json!({ "name": format!("module-{module}"), "image": "https://example.com/module.jar", "env": env });
    let pod = json!({
        "metadata": { "name": format!("base-{base}-{module}"), "labels": { "virtual-kubelet.koupleless.io/component": "module" } },
        "spec": {
            "nodeName": node(base), "automountServiceAccountToken": false, "enableServiceLinks": false,
            "tolerations": [{ "operator": "Exists" }], "containers": [container],
        },
    });
    serde_json::from_value(pod).expect("it is a pod")
}
