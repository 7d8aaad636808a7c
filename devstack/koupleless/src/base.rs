//! A running base.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::arklet::ModuleOperation;
use crate::behaviour::Behaviour;
use crate::command::BaseCommand;
use crate::module::InstalledModule;
use crate::mqtt::{self, BaseBroker};
use crate::options::SimulatedBaseOptions;
use crate::process::BaseProcess;
use crate::{http, response};

/// A running base. It ends, without a report, when it is dropped.
#[derive(Debug)]
pub struct SimulatedBase {
    process: Arc<BaseProcess>,
    /// The address of the commands over HTTP.
    address: Option<SocketAddr>,
    _task: AbortOnDropHandle<()>,
}

impl SimulatedBase {
    /// Starts a base over HTTP, on the current runtime. Its reports go to `controllers` in turn, as through a Service in front of
    /// their replicas; without any, it sends none.
    pub async fn http(options: SimulatedBaseOptions, controllers: &[SocketAddr]) -> io::Result<Self> {
        let listener = TcpListener::bind((options.ip, options.port)).await?;
        let address = listener.local_addr()?;
        let (process, controllers) = (BaseProcess::new(options), controllers.to_vec());
        let shared = Arc::clone(&process);
        let task = tokio::spawn(async move {
            let reporting = async {
                if controllers.is_empty() {
                    std::future::pending().await
                } else {
                    http::report(Arc::clone(&shared), address.port(), controllers).await
                }
            };
            tokio::select! {
                never = http::serve(listener, Arc::clone(&shared)) => match never {},
                never = reporting => match never {},
            }
        });
        Ok(Self { process, address: Some(address), _task: AbortOnDropHandle::new(task) })
    }

    /// Starts a base over MQTT 3.1.1, on the current runtime. It connects, and connects again, by itself.
    pub fn mqtt(options: SimulatedBaseOptions, broker: BaseBroker) -> Self {
        let process = BaseProcess::new(options);
        let shared = Arc::clone(&process);
        let task = tokio::spawn(async move { match mqtt::run(shared, broker).await {} });
        Self { process, address: None, _task: AbortOnDropHandle::new(task) }
    }

    /// Returns the id of the base.
    pub fn identity(&self) -> &str {
        &self.process.options.identity
    }

    /// Returns the address at which the base serves commands over HTTP; `None` if it does not.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Changes the behaviour of the base, also for commands that it holds.
    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        self.process.behaviour.send_modify(change);
    }

    /// Restarts the base: its connections break, its modules are lost except for those that are built in, and it introduces itself
    /// again.
    pub fn restart(&self) {
        self.process.restart();
    }

    /// Returns the modules of the base, by key.
    pub fn modules(&self) -> Vec<InstalledModule> {
        self.process.arklet.lock().modules().values().cloned().collect()
    }

    /// Returns all requests to load or unload a module since the first start, whatever came of them, the oldest first.
    pub fn operations(&self) -> Vec<ModuleOperation> {
        self.process.arklet.lock().operations().to_vec()
    }

    /// Returns the number of requests with this command since the first start.
    pub fn received(&self, command: BaseCommand) -> u64 {
        self.process.arklet.lock().received(command)
    }

    /// Returns the baselines that the base got, one for each query: the modules (`BizModel`), or the reason why it got none.
    pub fn baselines(&self) -> Vec<Result<Vec<Value>, String>> {
        self.process.baselines.lock().clone()
    }

    /// Returns the heartbeat that the base sends now (`BaseStatus`).
    pub fn heartbeat(&self) -> Value {
        let process = &self.process;
        let behaviour = process.behaviour.borrow().clone();
        let port = self.address.map(|address| address.port());
        response::heartbeat(&process.options, &process.identity(), &behaviour.state, port)
    }
}
