//! The controllers, started and stopped together.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::DeleteParams;
use kube::{Api, Client};
use tokio::task::JoinSet;
use tracing::debug;

use crate::kubelet::Kubelet;
use crate::options::{Options, Parts};
use crate::scheduler::Scheduler;
use crate::shell::{self, Plan};
use crate::view::{Changes, View};
use crate::{deployments, endpoints, nodes, replicasets};

/// The running controllers of a cluster. They end when this value is dropped.
///
/// ```no_run
/// use staffetta_cluster::{Cluster, Options};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let cluster = Cluster::start(kube::Client::try_default().await?, Options::default());
/// // Deployments that are made now become pods.
/// cluster.stop().await;
/// # Ok(())
/// # }
/// ```
pub struct Cluster {
    client: Client,
    options: Options,
    tasks: JoinSet<()>,
}

impl Cluster {
    /// Starts the controllers. They wait for a server that does not respond yet.
    pub fn start(client: Client, options: Options) -> Self {
        let mut cluster = Self { client, options, tasks: JoinSet::new() };
        let pods: View<Pod> = View::start(Api::all(cluster.client.clone()), &mut cluster.tasks);
        let nodes: View<Node> = View::start(Api::all(cluster.client.clone()), &mut cluster.tasks);
        cluster.start_nodes(&pods, &nodes);
        if cluster.options.parts == Parts::All {
            cluster.start_workloads(&pods, &nodes);
            cluster.start_endpoints(&pods);
        }
        cluster
    }

    /// Stops the controllers and removes their nodes. Other objects stay as they are.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), nodes::LEASES);
        for (name, _) in nodes::all(&self.options) {
            let node = nodes.delete(&name, &DeleteParams::default()).await.map(drop);
            let lease = leases.delete(&name, &DeleteParams::default()).await.map(drop);
            for error in [node, lease].into_iter().filter_map(Result::err) {
                debug!(node = name, %error, "a node stays behind");
            }
        }
    }

    fn start_nodes(&mut self, pods: &View<Pod>, nodes: &View<Node>) {
        let leases: View<Lease> =
            View::start(Api::namespaced(self.client.clone(), nodes::LEASES), &mut self.tasks);
        let (view, options) = (nodes.clone(), self.options.clone());
        let changes = Changes::of([nodes.changes(), leases.changes()]);
        self.run(changes, move |now| nodes::plan(&options, &view.all(), &leases.all(), now));

        let pods = pods.clone();
        let hosts = nodes::all(&self.options).collect();
        let mut kubelet = Kubelet::new(hosts, self.options.pod_start, self.options.stop_time);
        self.run(Changes::of([pods.changes()]), move |now| kubelet.plan(&pods.all(), now));
    }

    fn start_workloads(&mut self, pods: &View<Pod>, nodes: &View<Node>) {
        let deployments: View<Deployment> = View::start(Api::all(self.client.clone()), &mut self.tasks);
        let sets: View<ReplicaSet> = View::start(Api::all(self.client.clone()), &mut self.tasks);
        let changes = Changes::of([deployments.changes(), sets.changes()]);
        let view = sets.clone();
        self.run(changes, move |now| deployments::plan(&deployments.all(), &view.all(), now));

        let view = pods.clone();
        let changes = Changes::of([sets.changes(), pods.changes()]);
        self.run(changes, move |_| replicasets::plan(&sets.all(), &view.all()));

        let (pods, nodes) = (pods.clone(), nodes.clone());
        let changes = Changes::of([pods.changes(), nodes.changes()]);
        let mut scheduler = Scheduler::default();
        self.run(changes, move |_| scheduler.plan(&pods.all(), &nodes.all()));
    }

    fn start_endpoints(&mut self, pods: &View<Pod>) {
        let services: View<Service> = View::start(Api::all(self.client.clone()), &mut self.tasks);
        let slices: View<EndpointSlice> = View::start(Api::all(self.client.clone()), &mut self.tasks);
        let legacy: View<Endpoints> = View::start(Api::all(self.client.clone()), &mut self.tasks);
        let pods = pods.clone();
        let changes = Changes::of([services.changes(), pods.changes(), slices.changes(), legacy.changes()]);
        self.run(changes, move |_| {
            endpoints::plan(&services.all(), &pods.all(), &slices.all(), &legacy.all())
        });
    }

    fn run(
        &mut self,
        changes: Changes,
        decide: impl FnMut(k8s_openapi::jiff::Timestamp) -> Plan + Send + 'static,
    ) {
        self.tasks.spawn(shell::run(self.client.clone(), changes, decide));
    }
}
