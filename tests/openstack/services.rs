//! Services: each has a load balancer of a real Octavia that agrees with it, whatever happens to either.

use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta_real_openstack::{Balancer, Fault, Match, Subnet};

use crate::world::World;

/// The time limit of a test step: Octavia is slow, and slower under load. It does not measure speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The options of a controller for services.
const SERVICES: &str = r#"
[kubernetes]
enabled_handlers = ["lb", "lbaasspec"]
service_project_driver = "default"
service_subnets_driver = "default"
service_security_groups_driver = "default"
endpoints_lbaas_driver = "lbaasv2"
[load_balancers]
check_interval_s = 2
[octavia_defaults]
own_vip_port = true
"#;

/// The services of a world, and the subnet of their addresses.
pub(crate) struct Shop<'a> {
    world: &'a World,
    pub(crate) services: Api<Service>,
    slices: Api<EndpointSlice>,
    pub(crate) subnet: Subnet,
}

impl<'a> Shop<'a> {
    pub(crate) async fn new(world: &'a World) -> Self {
        let client = world.client.clone();
        Self {
            world,
            services: Api::default_namespaced(client.clone()),
            slices: Api::default_namespaced(client),
            subnet: world.tenant.subnet("10.96.0.0/12").await,
        }
    }

    /// The options of a controller for services, with `more` on top.
    pub(crate) fn options(&self, more: &str) -> String {
        let mut all: toml::Table = toml::from_str(SERVICES).unwrap();
        let more: toml::Table = toml::from_str(more).unwrap();
        for (section, options) in more {
            let options = options.as_table().unwrap().clone();
            let known = all.entry(section).or_insert(toml::Value::Table(toml::Table::new()));
            known.as_table_mut().unwrap().extend(options);
        }
        let place = toml::toml! { [neutron_defaults] };
        all.entry("neutron_defaults").or_insert(place["neutron_defaults"].clone());
        let defaults = all["neutron_defaults"].as_table_mut().unwrap();
        defaults.insert("service_subnet".into(), self.subnet.id.clone().into());
        all.to_string()
    }

    /// Makes a network of public addresses; answers the options of a controller that gives them to services.
    pub(crate) async fn public(&self, prefix: &str) -> String {
        let public = self.world.tenant.external(prefix, &self.subnet).await;
        format!(
            "[kubernetes]\nservice_public_ip_driver = \"neutron_floating_ip\"\n[neutron_defaults]\nexternal_svc_net = {:?}\n",
            public.network
        )
    }

    /// Creates a service with the ports 80 and 443, and its endpoints.
    pub(crate) async fn service(&self, name: &str, kind: &str, endpoints: &[&str]) {
        let port = |name: &str, port: u16| json!({ "name": name, "port": port, "targetPort": port + 8000, "protocol": "TCP" });
        let service = json!({ "metadata": { "name": name },
            "spec": { "type": kind, "selector": { "app": name }, "ports": [port("http", 80), port("https", 443)] } });
        self.services
            .create(&PostParams::default(), &serde_json::from_value(service).unwrap())
            .await
            .unwrap();
        self.slices.create(&PostParams::default(), &slice(name, endpoints)).await.unwrap();
    }

    /// Gives a service other endpoints.
    pub(crate) async fn endpoints(&self, name: &str, endpoints: &[&str]) {
        let patch = Patch::Merge(json!({ "endpoints": slice(name, endpoints).endpoints }));
        self.slices.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.services.delete(name, &DeleteParams::default()).await.unwrap();
        self.slices.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// The load balancer of a service, if it is the only one of that name.
    pub(crate) async fn balancer(&self, name: &str) -> Option<Balancer> {
        let mut all = self.world.tenant.load_balancers().await;
        all.retain(|balancer| balancer.name == format!("default/{name}"));
        all.pop().filter(|_| all.is_empty())
    }

    /// Waits until the load balancer of a service is ACTIVE and has these members on both ports; answers it.
    pub(crate) async fn until_served(&self, name: &str, endpoints: &[&str]) -> Balancer {
        let members =
            |port: u16| endpoints.iter().map(|ip| format!("{ip}:{}", port + 8000)).collect::<Vec<_>>();
        let wanted = vec![("TCP:443".to_owned(), members(443)), ("TCP:80".to_owned(), members(80))];
        let mut found = None;
        self.world
            .until_within(PATIENCE, &format!("{name} is served by {endpoints:?}"), async || {
                found = self.balancer(name).await;
                found.as_ref().is_some_and(|found| found.status == "ACTIVE" && found.listeners == wanted)
            })
            .await;
        found.unwrap()
    }

    /// Waits until the service tells of its load balancer.
    pub(crate) async fn until_written(&self, name: &str, balancer: &Balancer) {
        self.world
            .until_within(PATIENCE, &format!("{name} names its load balancer"), async || {
                let service = self.services.get(name).await.unwrap();
                let state = service.annotations().get("openstack.org/kuryr-lbaas-state");
                state.is_some_and(|state| state.contains(&balancer.id))
            })
            .await;
    }

    /// Waits until the service shows a public address; answers it, which is the only one.
    pub(crate) async fn until_public(&self, name: &str) -> String {
        let mut shown = Vec::new();
        self.world
            .until_within(PATIENCE, &format!("{name} shows its public address"), async || {
                let service = self.services.get(name).await.unwrap();
                let status = service.status.and_then(|status| status.load_balancer?.ingress);
                shown = status.into_iter().flatten().filter_map(|ingress| ingress.ip).collect();
                !shown.is_empty()
            })
            .await;
        assert_eq!(shown.len(), 1, "{name} shows {shown:?}");
        shown.remove(0)
    }

    /// Waits until nothing of services is left.
    pub(crate) async fn until_empty(&self) {
        self.world
            .until_within(PATIENCE, "nothing of services is left", async || {
                self.world.tenant.load_balancers().await.is_empty()
                    && self.world.tenant.pod_ports(&self.subnet.network).await.is_empty()
            })
            .await;
    }
}

fn slice(name: &str, endpoints: &[&str]) -> EndpointSlice {
    let endpoint = |ip: &&str| {
        let target = json!({ "kind": "Pod", "namespace": "default", "name": format!("{name}-{}", ip.replace('.', "-")) });
        json!({ "addresses": [ip], "conditions": { "ready": true }, "targetRef": target })
    };
    let port = |name: &str, port: u16| json!({ "name": name, "port": port, "protocol": "TCP" });
    let slice = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
        "addressType": "IPv4", "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [port("http", 8080), port("https", 8443)] });
    serde_json::from_value(slice).unwrap()
}

/// The calls that make a load balancer.
pub(crate) fn creations() -> Match {
    Match::any().method(Method::POST).path("/load-balancer/v2/lbaas/loadbalancers")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_service_is_served_follows_its_endpoints_and_leaves_nothing_on_a_real_openstack() {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    let controller = world.controller(&shop.options("")).await;
    shop.service("web", "ClusterIP", &["10.128.0.10", "10.128.0.11"]).await;
    let made = shop.until_served("web", &["10.128.0.10", "10.128.0.11"]).await;
    shop.until_written("web", &made).await;
    assert_eq!(world.gate.count(&creations()), 1, "it is made by one call");
    let batches = Match::any().method(Method::PUT).path("/members");
    // Where the service was seen before its endpoints, there were some already.
    let before = world.gate.count(&batches);
    shop.endpoints("web", &["10.128.0.11", "10.128.0.12"]).await;
    let changed = shop.until_served("web", &["10.128.0.11", "10.128.0.12"]).await;
    assert_eq!((changed.id, world.gate.count(&batches) - before), (made.id, 2), "a batch a port");
    shop.endpoints("web", &[]).await;
    shop.until_served("web", &[]).await;
    shop.delete("web").await;
    shop.until_empty().await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_load_balancer_that_is_deleted_or_changed_outside_comes_back_on_a_real_openstack() {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    let controller = world.controller(&shop.options("")).await;
    shop.service("web", "ClusterIP", &["10.128.0.10"]).await;
    let made = shop.until_served("web", &["10.128.0.10"]).await;
    shop.until_written("web", &made).await;
    let pool = format!("pools/{}", made.pools[0]);
    world.tenant.meddle(Method::PUT, &format!("{pool}/members"), json!({ "members": [] })).await;
    shop.until_served("web", &["10.128.0.10"]).await;
    world.tenant.meddle(Method::DELETE, &pool, Value::Null).await;
    shop.until_served("web", &["10.128.0.10"]).await;
    world
        .tenant
        .meddle(Method::DELETE, &format!("loadbalancers/{}?cascade=true", made.id), Value::Null)
        .await;
    world
        .until_within(PATIENCE, "another one is made", async || {
            shop.balancer("web").await.is_some_and(|found| found.id != made.id)
        })
        .await;
    let again = shop.until_served("web", &["10.128.0.10"]).await;
    shop.until_written("web", &again).await;
    shop.delete("web").await;
    shop.until_empty().await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn services_beyond_the_quota_wait_and_say_so_and_go_on_when_it_is_raised_on_a_real_openstack() {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    world.tenant.load_balancer_quota(1).await;
    let controller = world.controller(&shop.options("")).await;
    shop.service("one", "ClusterIP", &["10.128.0.10"]).await;
    shop.until_served("one", &["10.128.0.10"]).await;
    shop.service("two", "ClusterIP", &["10.128.0.11"]).await;
    let said = world.until_reported("two", "QuotaExceeded").await;
    assert!(said.contains("Quota has been met"), "{said}");
    let full = r#"{"category":"octavia","check":"the quota of loadbalancer leaves room","result":"failed","detail":"1 of 1 are in use""#;
    let checks = world.checks(&controller).await;
    assert!(checks.contains(full), "{checks}");
    world.tenant.load_balancer_quota(-1).await;
    let room = r#"{"category":"octavia","check":"the quotas of the project"#;
    let checks = world.checks(&controller).await;
    assert!(checks.contains(room) && !checks.contains("the quota of"), "{checks}");
    shop.until_served("two", &["10.128.0.11"]).await;
    for name in ["one", "two"] {
        shop.delete(name).await;
    }
    shop.until_empty().await;
    controller.stop().await.unwrap();
}

/// A fault of the calls that make load balancers costs time, and no second load balancer.
async fn passing(fault: Fault, times: usize) {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    let controller = world.controller(&shop.options("")).await;
    world.gate.inject(creations(), times, fault.clone());
    for name in ["one", "two"] {
        shop.service(name, "ClusterIP", &["10.128.0.10"]).await;
    }
    for name in ["one", "two"] {
        shop.until_served(name, &["10.128.0.10"]).await;
    }
    assert_eq!(world.gate.pending(), 0, "{fault:?} has happened");
    for name in ["one", "two"] {
        shop.delete(name).await;
    }
    shop.until_empty().await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_load_balancer_whose_answer_was_lost_is_found_by_its_mark_on_a_real_openstack() {
    passing(Fault::CutAfter, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn an_octavia_that_answers_with_a_page_for_people_is_asked_again_on_a_real_openstack() {
    passing(Fault::unavailable(None), 4).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_load_balancer_that_is_busy_gets_its_members_later_on_a_real_openstack() {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    let controller = world.controller(&shop.options("")).await;
    shop.service("web", "ClusterIP", &["10.128.0.10"]).await;
    shop.until_served("web", &["10.128.0.10"]).await;
    let batches = Match::any().method(Method::PUT).path("/members");
    let words = "Load Balancer 1 is immutable and cannot be updated.";
    world.gate.inject(batches, 3, Fault::octavia(StatusCode::CONFLICT, words));
    shop.endpoints("web", &["10.128.0.10", "10.128.0.11"]).await;
    shop.until_served("web", &["10.128.0.10", "10.128.0.11"]).await;
    assert_eq!(world.gate.pending(), 0);
    shop.delete("web").await;
    shop.until_empty().await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn what_was_forgotten_while_nobody_looked_is_swept_on_a_real_openstack() {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    let controller = world.controller(&shop.options("")).await;
    for name in ["stays", "goes"] {
        shop.service(name, "ClusterIP", &["10.128.0.10"]).await;
    }
    for name in ["stays", "goes"] {
        let made = shop.until_served(name, &["10.128.0.10"]).await;
        shop.until_written(name, &made).await;
    }
    controller.stop().await.unwrap();
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    shop.services.patch("goes", &PatchParams::default(), &free).await.unwrap();
    shop.delete("goes").await;
    let controller = world.controller(&shop.options("")).await;
    world.until_within(PATIENCE, "one is left", async || shop.balancer("goes").await.is_none()).await;
    shop.until_served("stays", &["10.128.0.10"]).await;
    shop.delete("stays").await;
    shop.until_empty().await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_service_gets_a_floating_ip_that_leads_to_its_load_balancer_on_a_real_openstack() {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    let options = shop.public("203.0.113.0/29").await;
    let controller = world.controller(&shop.options(&options)).await;
    shop.service("web", "LoadBalancer", &["10.128.0.10"]).await;
    let made = shop.until_served("web", &["10.128.0.10"]).await;
    let shown = shop.until_public("web").await;
    assert_eq!(world.tenant.floating_ips().await, [(shown, Some(made.port))]);
    shop.delete("web").await;
    shop.until_empty().await;
    world
        .until_within(PATIENCE, "the public address is back in its pool", async || {
            world.tenant.floating_ips().await.is_empty()
        })
        .await;
    controller.stop().await.unwrap();
}
