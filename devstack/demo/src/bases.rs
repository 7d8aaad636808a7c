//! Simulated bases of Koupleless, which load modules for pods, as the machines of virtual nodes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use staffetta_koupleless_base::{SimulatedBase, SimulatedBaseOptions};

/// The number of bases at the start.
const BASES: u16 = 3;

/// The duration of loading or unloading a module.
const CHANGE: Duration = Duration::from_millis(50);

/// The period of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// The running bases. They end when it is dropped.
pub(crate) struct Bases {
    controller: SocketAddr,
    running: Mutex<Vec<SimulatedBase>>,
}

impl Bases {
    /// Chooses the address at which the controller is to listen for bases. None runs yet.
    pub(crate) fn prepare() -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        Ok(Self { controller: listener.local_addr()?, running: Mutex::default() })
    }

    /// The address at which the controller is to listen for bases.
    pub(crate) fn controller(&self) -> SocketAddr {
        self.controller
    }

    /// Starts the bases.
    pub(crate) async fn start(&self) -> io::Result<()> {
        for _ in 0..BASES {
            self.add().await?;
        }
        Ok(())
    }

    /// Starts one more base, which asks what it is to load.
    pub(crate) async fn add(&self) -> io::Result<()> {
        let number = u16::try_from(self.operations().len() + 1).unwrap_or(u16::MAX);
        let options = SimulatedBaseOptions {
            identity: format!("base-{number}"),
            asks_baseline: true,
            heartbeat: HEARTBEAT,
            install_time: CHANGE,
            uninstall_time: CHANGE,
            ..SimulatedBaseOptions::default()
        };
        let base = SimulatedBase::http(options, &[self.controller]).await?;
        self.running.lock().push(base);
        Ok(())
    }

    /// The modules of each base.
    pub(crate) fn modules(&self) -> Vec<(String, Vec<String>)> {
        self.each(|base| {
            base.modules().iter().map(|module| format!("{}:{}", module.name, module.version)).collect()
        })
    }

    /// The requests to load or unload a module that each base got.
    pub(crate) fn operations(&self) -> Vec<(String, usize)> {
        self.each(|base| base.operations().len())
    }

    fn each<T>(&self, look: impl Fn(&SimulatedBase) -> T) -> Vec<(String, T)> {
        let bases = self.running.lock();
        bases.iter().map(|base| (base.identity().to_owned(), look(base))).collect()
    }
}
