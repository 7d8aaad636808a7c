//! The agents of the nodes, which here is told what to report.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};

use crate::api::Api;

/// The stand-in for the agents. Neutron takes its reports as it takes theirs.
#[derive(Clone)]
pub struct Agents(pub(crate) Arc<Api>);

impl Agents {
    /// There is a node of this name. Its agent reports each port up so long after it was bound; without a delay, never
    /// by itself. Of a node that is known, the delay changes.
    pub async fn node(&self, name: &str, delay: Option<Duration>) {
        let delay = delay.map_or_else(String::new, |delay| format!("?delay={}", delay.as_millis()));
        assert!(self.put(&format!("host/{name}{delay}")).await);
    }

    /// The agent of the port's node reports it up: Neutron makes it ACTIVE. False where it is bound to no node.
    pub async fn up(&self, port: &str) -> bool {
        self.put(&format!("up/{port}")).await
    }

    /// The agent of the port's node reports it down. False where it is bound to no node.
    pub async fn down(&self, port: &str) -> bool {
        self.put(&format!("down/{port}")).await
    }

    async fn put(&self, what: &str) -> bool {
        let (status, answer) = self.0.beside(Method::PUT, &format!("{}/_agent/{what}", self.0.neutron)).await;
        assert!(status.is_success() || status == StatusCode::NOT_FOUND, "{what}: {status} {answer}");
        status.is_success()
    }
}
