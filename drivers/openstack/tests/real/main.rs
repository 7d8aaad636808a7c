//! The drivers on a real Neutron and a real Octavia: every scenario in a project of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../scenarios/mod.rs"]
mod scenarios;

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::Unobserved;
use staffetta_openstack::{Access, Auth, Cloud, Domain, Interface, Scope, Tls, Urls, User};
use staffetta_real_openstack::{Login, RealOpenStack};

use crate::scenarios::world::{World, client};

/// A project that nobody else uses, and its user.
async fn world() -> Option<World> {
    let stack = RealOpenStack::shared().await?;
    let tenant = stack.tenant().await;
    let Login { auth_url, username, password, project } = tenant.login();
    let domain = || Domain::Id("default".into());
    let access = Access {
        auth: Auth::Password {
            url: auth_url.parse().unwrap(),
            user: User::Name(username, domain()),
            password: password.into(),
            scope: Scope::Name(project, domain()),
        },
        region: None,
        interface: Interface::Public,
        urls: Urls::default(),
        tls: Tls::default(),
        timeout: Duration::from_secs(60),
        max_concurrency: 16,
    };
    Some(World {
        cloud: Cloud::new(access, Arc::new(Unobserved)).unwrap(),
        neutron: stack.neutron().to_owned(),
        octavia: stack.octavia().to_owned(),
        token: Some(stack.token().await),
        project: tenant.id.as_str().into(),
        client: client(),
        _keep: Box::new((stack, tenant)),
    })
}

mod on_a_real_openstack {
    crate::scenarios::in_world!(crate::world);
}
