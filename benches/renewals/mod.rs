//! Bare renewals of leases from a process of the program's shape: the same client library and allocator.

#![allow(clippy::print_stdout, reason = "a child process says when it begins")]

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use mimalloc::MiMalloc;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::time::Instant;

use crate::cluster;
use crate::program::{Usage, again};

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The role of the process.
const ROLE: &str = "renewals";

/// The namespace of the leases of nodes.
pub(crate) const NAMESPACE: &str = "kube-node-lease";

/// A running process that renews leases of its own.
pub(crate) struct Renewals(Child);

impl Renewals {
    /// Starts this benchmark again to renew `count` leases, each once a period. Its `main` has to begin with [`served`]. Returns when
    /// the leases exist.
    pub(crate) async fn start(kubeconfig: &Path, count: usize, period: Duration) -> Self {
        let mut child = again(ROLE)
            .arg(kubeconfig)
            .arg(count.to_string())
            .arg(period.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        lines.next_line().await.expect("it prints text").expect("it says when the leases exist");
        Self(child)
    }

    /// The usage of CPU and memory so far.
    pub(crate) fn usage(&self) -> Usage {
        Usage::of(&self.0)
    }
}

/// Serves in the role of a process that [`Renewals::start`] started; `None` in the benchmark itself.
pub(crate) fn served() -> Option<ExitCode> {
    crate::program::role().filter(|role| role == ROLE)?;
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().expect("it was started with three arguments");
    let (kubeconfig, count, period) = (next(), next(), next());
    let period = Duration::from_millis(period.parse().expect("a period is a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("threads can be started");
    runtime.block_on(async {
        let api: Api<Lease> = Api::namespaced(cluster::client(Path::new(&kubeconfig)).await, NAMESPACE);
        let count: u32 = count.parse().expect("a count is a number");
        let create = async |number| {
            let metadata = ObjectMeta { name: Some(name(number)), ..ObjectMeta::default() };
            let lease = Lease { metadata, spec: Some(spec(number)) };
            let lease = api.create(&PostParams::default(), &lease).await.expect("a lease can be created");
            (number, lease)
        };
        let leases = stream::iter(0..count).map(create).buffer_unordered(cluster::IN_FLIGHT);
        let leases: Vec<_> = leases.collect().await;
        println!("ready");
        let renewing = leases.into_iter().map(|(number, lease)| {
            tokio::spawn(renew(api.clone(), number, lease, period * number / count, period))
        });
        join_all(renewing).await;
    });
    Some(ExitCode::SUCCESS)
}

/// Renews a lease once a period, after a first delay, until the process is killed. Each renewal carries the resourceVersion of the
/// one before.
async fn renew(api: Api<Lease>, number: u32, mut lease: Lease, delay: Duration, period: Duration) {
    let mut ticks = tokio::time::interval_at(Instant::now() + delay, period);
    loop {
        ticks.tick().await;
        lease.spec = Some(spec(number));
        let renewed = api.replace(&name(number), &PostParams::default(), &lease).await;
        lease = renewed.expect("nobody else writes it");
    }
}

fn name(number: u32) -> String {
    format!("bare-{number}")
}

fn spec(number: u32) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(name(number)),
        lease_duration_seconds: Some(40),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    }
}
