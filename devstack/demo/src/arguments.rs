//! What may be said on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Starts an API server, a cluster's controllers and staffetta in one process, on simulated back ends, and plays sample
/// workloads through them.
#[derive(Debug, Parser)]
#[command(name = "cargo devstack", bin_name = "cargo devstack --", version)]
pub(crate) struct Arguments {
    /// End when the samples have been played: 0 if all of it came about, 1 with the reasons if not. Without it the
    /// devstack goes on until Ctrl-C.
    #[arg(long)]
    pub(crate) once: bool,
    /// In how many seconds the samples must have come about.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// Where the API server listens; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Where to write the kubeconfig, which must not exist; a temporary folder if not said. It is removed at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
