//! The tunnel over HTTP against a real base: a Java process with Arklet, built by `devstack/real/arklet`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod java;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use serde_json::json;
use staffetta_driver::tunnel::OperationResponseResult::{Fail, Success};
use staffetta_driver::tunnel::{
    ContainerOperationResponseData, ContainerState, ContainerStatusData, NodeDescription, NodeId, PodKey,
    Tunnel, TunnelEvent,
};
use staffetta_koupleless::{HttpTunnel, HttpTunnelOptions};
use staffetta_virtual_node::vnode::{TunnelLimits, TunnelReceiver, channel};
use tokio_util::task::AbortOnDropHandle;

use crate::java::JavaBase;

/// The time after which a test gives up. A base takes some seconds to start.
const PATIENCE: Duration = Duration::from_secs(180);

/// A running tunnel with the receiver of its events.
struct World {
    tunnel: Arc<dyn Tunnel>,
    receiver: TunnelReceiver,
    _running: AbortOnDropHandle<()>,
}

impl World {
    async fn start(tunnel: Arc<dyn Tunnel>) -> Self {
        let (sender, receiver) = channel(TunnelLimits::default());
        let started = Arc::clone(&tunnel);
        let running = tokio::spawn(async move { started.start("client", "dev", sender).await.unwrap() });
        while !tunnel.ready() {
            tokio::task::yield_now().await;
        }
        Self { tunnel, receiver, _running: AbortOnDropHandle::new(running) }
    }

    /// Returns the next event that is not the health of the base.
    async fn event(&mut self) -> TunnelEvent {
        let event = async {
            loop {
                match self.receiver.recv().await.unwrap().1 {
                    TunnelEvent::NodeStatus(_) => {}
                    event => return event,
                }
            }
        };
        tokio::time::timeout(PATIENCE, event).await.expect("something happens in time")
    }

    /// Returns the answer to a command. States that arrive before it are skipped.
    async fn answer(&mut self) -> ContainerOperationResponseData {
        loop {
            match self.event().await {
                TunnelEvent::StartContainerResponse(answer)
                | TunnelEvent::ShutdownContainerResponse(answer) => return answer,
                _ => {}
            }
        }
    }

    /// Asks the base for its modules until there are `count` of them, and returns them.
    async fn modules(&mut self, base: &NodeId, count: usize) -> Vec<ContainerStatusData> {
        loop {
            self.tunnel.query_all_container_status_data(base).await.unwrap();
            if let TunnelEvent::AllContainerStatuses(modules) = self.event().await
                && modules.len() == count
            {
                return modules;
            }
        }
    }

    /// Waits until the base answers, and has it load and unload a module.
    async fn lives(mut self, java: &JavaBase) {
        let (id, node) = ("base-1".parse().unwrap(), description(java));
        self.tunnel.on_node_start(&id, &node).await;
        let answers = async {
            while self.tunnel.fetch_health_data(&id).await.is_err() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        tokio::time::timeout(PATIENCE, answers).await.expect("the base answers");
        let (_, event) = self.receiver.recv().await.unwrap();
        let TunnelEvent::NodeStatus(status) = event else { panic!("{event:?}") };
        assert!(status.custom_conditions.iter().any(|one| one.status == "True"), "{status:?}");
        assert!(self.modules(&id, 0).await.is_empty());

        let cart = cart(java);
        self.tunnel.start_container(&id, &PodKey::All, &cart).await.unwrap();
        let answer = self.answer().await;
        assert_eq!((answer.container_key.as_str(), answer.result), ("cart:1.0.0", Success), "{answer:?}");
        let loaded = self.modules(&id, 1).await;
        assert_eq!((loaded[0].key.as_str(), loaded[0].state), ("cart:1.0.0", ContainerState::Activated));
        self.tunnel.start_container(&id, &PodKey::All, &cart).await.unwrap();
        let again = self.answer().await;
        assert_eq!((again.result, again.reason.as_str()), (Fail, "REPEAT_BIZ"), "{again:?}");
        let mut second = cart.clone();
        second.image = Some(java.second_version());
        second.env.as_mut().unwrap()[0].value = Some("2.0.0".to_owned());
        for (activate, expected) in
            [(false, ["ACTIVATED", "DEACTIVATED"]), (true, ["DEACTIVATED", "ACTIVATED"])]
        {
            if activate {
                self.tunnel.activate_container(&id, &PodKey::All, &second).await.unwrap();
            } else {
                self.tunnel.start_container(&id, &PodKey::All, &second).await.unwrap();
            }
            let answer = self.answer().await;
            assert_eq!((answer.container_key.as_str(), answer.result), ("cart:2.0.0", Success), "{answer:?}");
            let mut modules = self.modules(&id, 2).await;
            modules.sort_by(|one, other| one.key.as_str().cmp(other.key.as_str()));
            let states: Vec<_> = modules.iter().map(|module| module.state.to_string()).collect();
            assert_eq!(states, expected, "a second version is loaded, and activated only by a command");
        }
        self.tunnel.shutdown_container(&id, &PodKey::All, &second).await.unwrap();
        self.answer().await;
        self.modules(&id, 1).await;
        // The version in the manifest counts.
        second.env.as_mut().unwrap()[0].value = Some("9".to_owned());
        self.tunnel.start_container(&id, &PodKey::All, &second).await.unwrap();
        let wrong = self.answer().await;
        assert_eq!((wrong.result, wrong.reason.as_str()), (Fail, "VersionMismatch"), "{wrong:?}");
        let mistaken = Container { image: second.image, ..*wrong.instead.unwrap() };
        self.tunnel.shutdown_container(&id, &PodKey::All, &mistaken).await.unwrap();
        self.answer().await;
        self.modules(&id, 1).await;
        // Arklet unloads a module without a Spring context, and reports an error after that.
        self.tunnel.shutdown_container(&id, &PodKey::All, &cart).await.unwrap();
        assert_eq!(self.answer().await.container_key.as_str(), "cart:1.0.0");
        assert!(self.modules(&id, 0).await.is_empty());
        self.tunnel.shutdown_container(&id, &PodKey::All, &cart).await.unwrap();
        let answer = self.answer().await;
        assert_eq!(answer.result, Success, "a module that is not there is unloaded: {answer:?}");
    }
}

/// Returns what the Node object of the base would say.
fn description(java: &JavaBase) -> NodeDescription {
    let network = json!({ "node_ip": "127.0.0.1", "host_name": "localhost", "port": java.port });
    serde_json::from_value(json!({ "metadata": { "status": "activated" }, "network_info": network })).unwrap()
}

/// Returns the container of the module `cart:1.0.0`.
fn cart(java: &JavaBase) -> Container {
    let env = json!([{ "name": "BIZ_VERSION", "value": "1.0.0" }]);
    serde_json::from_value(json!({ "name": "cart", "image": java.module(), "env": env })).unwrap()
}

#[tokio::test]
#[ignore = "needs Arklet"]
async fn a_base_lives_over_http_on_a_real_base() {
    let listen = "127.0.0.1:0".parse().unwrap();
    let options = HttpTunnelOptions { listen, ..HttpTunnelOptions::default() };
    let world = World::start(Arc::new(HttpTunnel::new(options))).await;
    world.lives(&JavaBase::start().await).await;
}
