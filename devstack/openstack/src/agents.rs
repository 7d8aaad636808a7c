//! A stand-in for the agents of the nodes, which reports what a test orders.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};

use crate::api::Api;

/// A stand-in for the agents of all nodes. Neutron accepts its reports like those of real agents.
#[derive(Clone)]
pub struct Agents(pub(crate) Arc<Api>);

impl Agents {
    /// Adds a node with this name. Its agent reports each port up after `delay` from the binding; without a delay, only on
    /// [`up`](Self::up). For a known node, changes the delay.
    pub async fn node(&self, name: &str, delay: Option<Duration>) {
        let delay = delay.map_or_else(String::new, |delay| format!("?delay={}", delay.as_millis()));
        assert!(self.put(&format!("host/{name}{delay}")).await);
    }

    /// Adds a node with a real Open vSwitch. Its agent reports a port up when the database at the Unix socket `ovsdb` has its
    /// interface.
    pub async fn real_node(&self, name: &str, ovsdb: &Path) {
        assert!(self.put(&format!("host/{name}?delay=0&ovsdb={}", ovsdb.display())).await);
    }

    /// Reports a port up as the agent of its node: Neutron makes it ACTIVE. Returns `false` if the port is bound to no node.
    pub async fn up(&self, port: &str) -> bool {
        self.put(&format!("up/{port}")).await
    }

    /// Reports a port down as the agent of its node. Returns `false` if the port is bound to no node.
    pub async fn down(&self, port: &str) -> bool {
        self.put(&format!("down/{port}")).await
    }

    async fn put(&self, what: &str) -> bool {
        let (status, answer) = self.0.beside(Method::PUT, &format!("{}/_agent/{what}", self.0.neutron)).await;
        assert!(status.is_success() || status == StatusCode::NOT_FOUND, "{what}: {status} {answer}");
        status.is_success()
    }
}
