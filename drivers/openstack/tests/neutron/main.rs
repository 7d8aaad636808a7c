//! The drivers on a Neutron and an Octavia within the test: every scenario, and what only such ones do that can be told to
//! fail.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../fake/mod.rs"]
mod fake;
#[path = "../scenarios/mod.rs"]
mod scenarios;

mod calls;
mod faults;
mod octavia;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use staffetta_driver::NoopRequestObserver;
use staffetta_openstack::{Access, Auth, Cloud, EndpointInterface, EndpointOverrides, TlsOptions};

use crate::fake::Fake;
use crate::scenarios::world::{World, client};

const PROJECT: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

/// Lets the cached extensions of the cloud expire.
async fn an_hour_passes() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3600)).await;
    tokio::time::resume();
}

/// A fake Neutron, and the world in which it is.
async fn fake() -> (Arc<Fake>, World) {
    let fake = Arc::new(Fake::start().await);
    let access = Access {
        auth: Auth::None,
        region: None,
        interface: EndpointInterface::Public,
        urls: EndpointOverrides {
            network: Some(fake.url.parse().unwrap()),
            load_balancer: Some(fake.url.parse().unwrap()),
        },
        tls: TlsOptions::default(),
        timeout: Duration::from_secs(30),
        max_concurrency: 16,
    };
    let world = World {
        cloud: Cloud::new(access, Arc::new(NoopRequestObserver)).unwrap(),
        neutron: fake.url.clone(),
        octavia: fake.url.clone(),
        token: None,
        project: PROJECT.into(),
        client: client(),
        _keep: Box::new(Arc::clone(&fake)),
    };
    world
        .create("security-groups", "security_group", json!({ "name": "default", "project_id": PROJECT }))
        .await;
    (fake, world)
}

async fn world() -> World {
    fake().await.1
}

scenarios::in_world!(crate::world);
