//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// Starts an API server, a cluster's controllers and staffetta in one process, on simulated back ends, and plays sample
/// workloads through them.
#[derive(Debug, Parser)]
#[command(name = "cargo devstack", bin_name = "cargo devstack --", version)]
pub(crate) struct Arguments {
    /// End when the samples have been played: 0 if everything converged, 1 with the reasons if not. Without it the
    /// devstack goes on until Ctrl-C.
    #[arg(long)]
    pub(crate) once: bool,
    /// The time limit for the samples, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u64,
    /// The listen address of the API server; port 0 chooses a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The path of the kubeconfig, which must not exist; by default in a temporary folder. It is removed at the end.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl Arguments {
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
