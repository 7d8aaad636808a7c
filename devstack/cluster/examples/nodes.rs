//! Nodes without machines for a cluster that has none, until Ctrl-C: pods are scheduled to them, and run as soon as they
//! have an active VIF. The kubeconfig must be named, so that nobody's own cluster gets such nodes by mistake.
//!
//! `cargo run -p staffetta-cluster --example nodes -- KUBECONFIG`

use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use staffetta_cluster::{Cluster, Options, Parts};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("name the kubeconfig of the cluster that gets the nodes")?;
    let kubeconfig = Kubeconfig::read_from(path)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let options = Options { parts: Parts::Nodes, ..Options::default() };
    let cluster = Cluster::start(config.try_into()?, options);
    tokio::signal::ctrl_c().await?;
    cluster.stop().await;
    Ok(())
}
