//! The drivers on a real Neutron and a real Octavia: every scenario in a project of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../scenarios/mod.rs"]
mod scenarios;

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::NoopRequestObserver;
use staffetta_openstack::{
    Access, Auth, Cloud, DomainResource, EndpointInterface, EndpointOverrides, IdOrName, Projects, TlsOptions,
};
use staffetta_real_openstack::{Login, RealOpenStack};

use crate::scenarios::world::{World, client};

/// A project that nobody else uses, and its user.
async fn world() -> World {
    let stack = RealOpenStack::shared().await;
    let tenant = stack.tenant().await;
    let Login { auth_url, username, password, project } = tenant.login();
    let named = |name| {
        let (key, domain) = (IdOrName::Name(name), Some(IdOrName::Id("default".into())));
        DomainResource { key, domain }
    };
    let access = Access {
        auth: Auth::Password {
            url: auth_url.parse().unwrap(),
            user: named(username),
            password: password.into(),
            scope: named(project),
        },
        region: None,
        interface: EndpointInterface::Public,
        urls: EndpointOverrides::default(),
        tls: TlsOptions::default(),
        timeout: Duration::from_secs(60),
        max_concurrency: 16,
    };
    let projects = Projects::new([tenant.id.as_str().into()]);
    World {
        // Its user sees the ports of all projects, also those of other tests.
        cloud: Cloud::new(access, Arc::new(NoopRequestObserver)).unwrap().in_projects(projects),
        neutron: stack.neutron().to_owned(),
        octavia: stack.octavia().to_owned(),
        token: Some(stack.token().await),
        project: tenant.id.as_str().into(),
        client: client(),
        _keep: Box::new((stack, tenant)),
    }
}

mod on_a_real_openstack {
    crate::scenarios::in_world!(
        #[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
        crate::world
    );
}
