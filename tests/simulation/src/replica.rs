//! One replica of the controller: its process, which starts again after each end.

use std::sync::Arc;
use std::time::Duration;

use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta_driver::tunnel::Tunnel;
use staffetta_driver::{
    Fence, LoadBalancerDriver, NetworkPolicyDriver, PodVifDriver, ServicePublicIpDriver, VifPoolDriver,
};
use staffetta_handler::{Registry, Setup, SetupError};
use staffetta_memory::{
    MemoryBulkVifDriver, MemoryLoadBalancerDriver, MemoryNetworkPolicyDriver, MemoryPublicIpDriver,
    MemoryVifDriver,
};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::drivers::Remote;
use crate::link::Link;
use crate::tunnel::SimulatedTunnel;
use crate::world::World;

/// The id of the cluster in the marks of ports.
const CLUSTER: &str = "simulated";

/// A command to a replica.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Command {
    /// It crashes.
    Crash,
    /// It gets SIGTERM.
    Stop,
    /// Its network lets nothing through for this time.
    Part(Duration),
}

/// The options of all replicas that a seed decides.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// The enabled handlers, in JSON.
    pub(crate) handlers: &'static str,
    /// `true` if a pool keeps VIFs ready.
    pub(crate) pool: bool,
    /// The driver of the security groups of pods.
    pub(crate) groups: &'static str,
}

/// Starts this number of replicas. Returns the senders of their commands.
pub(crate) fn start_all(world: &Arc<World>, number: usize, options: Options) -> Vec<mpsc::Sender<Command>> {
    let start = |number| {
        let (sender, commands) = mpsc::channel(64);
        tokio::spawn(run(Arc::clone(world), format!("replica-{number}"), options, commands));
        sender
    };
    (0..number).map(start).collect()
}

/// Runs the replica `name` for ever, with each of its processes after the other.
async fn run(world: Arc<World>, name: String, options: Options, mut commands: mpsc::Receiver<Command>) {
    for process in 1.. {
        let name = format!("{name}.{process}");
        world.note(&name, "starts");
        let link = Link::new(&world, name.clone());
        let controller = start(&link, options).await;
        let stop = controller.token();
        let mut ended = Box::pin(controller.ended());
        let crashed = loop {
            tokio::select! {
                result = &mut ended => {
                    world.note(&name, &format!("has ended: {result:?}"));
                    break false;
                }
                command = commands.recv() => match command {
                    Some(Command::Crash) => break true,
                    Some(Command::Stop) => {
                        world.note(&name, "gets SIGTERM");
                        stop.cancel();
                    }
                    Some(Command::Part(time)) => {
                        world.note(&name, &format!("is cut off for {time:?}"));
                        link.part(time);
                    }
                    None => return,
                },
            }
        };
        // A process that has ended sends nothing any more, either.
        link.cut();
        if crashed {
            world.note(&name, "crashes");
        }
        drop(ended);
        let rest = world
            .choices
            .at(&format!("{name} restarts"))
            .time(Duration::from_secs(1), Duration::from_secs(20));
        sleep(rest).await;
    }
}

async fn start(link: &Arc<Link>, options: Options) -> Controller {
    let Options { handlers, pool, groups } = options;
    let registry = registry(link);
    let schema = FileSchema::assemble(&registry).expect("the sections fit together");
    let options = [
        ("KUBERNETES__CLUSTER_ID", CLUSTER),
        ("KUBERNETES__ENABLED_HANDLERS", handlers),
        ("KUBERNETES__VIF_POOL_DRIVER", if pool { "memory" } else { "noop" }),
        ("KUBERNETES__POD_VIF_DRIVER", "memory"),
        ("KUBERNETES__POD_SECURITY_GROUPS_DRIVER", groups),
        ("KUBERNETES__NETWORK_POLICY_DRIVER", "memory"),
        ("RELAY__FAILED_RESYNC", "20s"),
        ("RELAY__FAILED_RESYNC_MAX", "1m"),
        ("RELAY__RETRY_MAX_INTERVAL", "20s"),
        ("RELAY__RETRY_TIMEOUT", "1m"),
        ("RELAY__SWEEP_INTERVAL", "1m"),
        ("LEADER_ELECTION__NAMESPACE", "kube-system"),
        ("ADMIN__LISTEN", "127.0.0.1:0"),
        ("VNODE__TUNNELS", "[\"simulated\"]"),
        ("VNODE__OPERATION_TIMEOUT_MS", "60000"),
        ("VNODE__UNINSTALL_UNOWNED_AFTER_MS", "60000"),
        ("LOAD_BALANCERS__CHECK_INTERVAL_S", "60"),
        ("VIF_POOL__PORTS_POOL_MIN", "2"),
        ("VIF_POOL__PORTS_POOL_MAX", "4"),
        ("VIF_POOL__PORTS_POOL_BATCH", "2"),
    ];
    let variables = options.map(|(name, value)| (format!("STAFFETTA_{name}").into(), value.into()));
    let configuration = Configuration::load(&schema, None, variables).expect("the options are valid");
    Controller::start(registry, &configuration, link.client()).await.expect("the controller starts")
}

/// Returns all that ships, with drivers that call the cloud through the network of the replica.
fn registry(link: &Arc<Link>) -> Registry {
    const ABOUT: &str = "Simulated, behind a network.";
    let mut registry = staffetta::assembly::registry();
    staffetta::assembly::world(&mut registry, &link.world.network, &link.world.services);
    let (pods, pools, policies) = (Arc::clone(link), Arc::clone(link), Arc::clone(link));
    let (balancers, public, bases) = (Arc::clone(link), Arc::clone(link), Arc::clone(link));
    registry.driver::<dyn PodVifDriver>("memory", ABOUT, move |setup| {
        let driver = Arc::new(MemoryVifDriver::new(Arc::clone(&pods.world.network), CLUSTER.into()));
        Ok(Arc::new(Remote { link: Arc::clone(&pods), fence: fence(setup)?, driver }))
    });
    registry.driver::<dyn VifPoolDriver>("memory", ABOUT, move |setup| {
        let driver = Arc::new(MemoryBulkVifDriver::new(Arc::clone(&pools.world.network), CLUSTER.into()));
        let bulk = Remote { link: Arc::clone(&pools), fence: fence(setup)?, driver };
        staffetta::assembly::pooled(setup, "memory", Arc::new(bulk))
    });
    registry.driver::<dyn NetworkPolicyDriver>("memory", ABOUT, move |setup| {
        let driver = MemoryNetworkPolicyDriver::new(Arc::clone(&policies.world.network), CLUSTER.into());
        Ok(Arc::new(Remote { link: Arc::clone(&policies), fence: fence(setup)?, driver: Arc::new(driver) }))
    });
    registry.driver::<dyn Tunnel>("simulated", ABOUT, move |_| Ok(Arc::new(SimulatedTunnel::new(&bases))));
    registry.driver::<dyn LoadBalancerDriver>("memory", ABOUT, move |setup| {
        let services = Arc::clone(&balancers.world.services);
        let driver = Arc::new(MemoryLoadBalancerDriver::new(services, CLUSTER.into()));
        Ok(Arc::new(Remote { link: Arc::clone(&balancers), fence: fence(setup)?, driver }))
    });
    registry.driver::<dyn ServicePublicIpDriver>("memory", ABOUT, move |setup| {
        let driver = Arc::new(MemoryPublicIpDriver::new(Arc::clone(&public.world.services), CLUSTER.into()));
        Ok(Arc::new(Remote { link: Arc::clone(&public), fence: fence(setup)?, driver }))
    });
    registry
}

/// Returns the fence of the leadership term, which each driver of a cloud needs.
fn fence(setup: &Setup) -> Result<Fence, SetupError> {
    setup.shared(|| Ok(Fence::default())).map(|fence| Fence::clone(&fence))
}
