//! What is counted.

use std::sync::Arc;

use staffetta_virtual_node::FigureBoard;

use super::counted::Failures;
use super::queue_meter::QueueMeter;
use super::{CloudRequests, Pools, Requests, Sweeps};
use crate::client::Silence;

/// What is counted while the program runs.
pub(crate) struct Figures {
    /// The requests to the API server.
    pub(crate) requests: Arc<Requests>,
    /// The requests to OpenStack.
    pub(crate) cloud_requests: Arc<CloudRequests>,
    /// When it last said something.
    pub(crate) silence: Arc<Silence>,
    /// The pools of VIFs.
    pub(crate) pools: Pools,
    /// The nodes for which other machines stand.
    pub(crate) virtual_nodes: FigureBoard,
    handlers: Vec<HandlerFigures>,
}

/// What is counted of one enabled handler.
pub(super) struct HandlerFigures {
    pub(super) name: String,
    pub(super) meter: Arc<QueueMeter>,
    pub(super) failures: Arc<Failures>,
    pub(super) sweeps: Arc<Sweeps>,
}

impl Figures {
    /// All of them are 0. `host` is the API server as `host:port`.
    pub(crate) fn new(host: &str, handlers: &[String]) -> Self {
        let figures = |name: &String| HandlerFigures {
            name: name.clone(),
            meter: Arc::default(),
            failures: Arc::default(),
            sweeps: Arc::default(),
        };
        Self {
            requests: Arc::new(Requests::new(host)),
            cloud_requests: Arc::default(),
            silence: Arc::default(),
            pools: Pools::default(),
            virtual_nodes: FigureBoard::default(),
            handlers: handlers.iter().map(figures).collect(),
        }
    }

    /// The enabled handlers by name, in the order in which they are enabled.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = &str> {
        self.handlers.iter().map(|handler| handler.name.as_str())
    }

    /// What counts the sweeps of a handler.
    pub(crate) fn sweeps(&self, handler: &str) -> Arc<Sweeps> {
        self.handler(handler).map(|figures| Arc::clone(&figures.sweeps)).unwrap_or_default()
    }

    pub(super) fn each(&self) -> &[HandlerFigures] {
        &self.handlers
    }

    pub(super) fn handler(&self, name: &str) -> Option<&HandlerFigures> {
        self.handlers.iter().find(|handler| handler.name == name)
    }
}
