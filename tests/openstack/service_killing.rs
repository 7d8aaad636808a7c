//! Controllers that are killed repeatedly while services (half of them with a public address) and a network policy are created,
//! changed and deleted. In the end, Octavia's and Neutron's own lists show whether a resource leaked or was created twice.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::ResourceExt;
use staffetta_real_openstack::Service;

use crate::killing::{below, kill, start};
use crate::policies::{COMMON, Guarded, admits};
use crate::services::{PATIENCE, Shop, creations};
use crate::world::{World, merged};

/// The number of killed controllers, of services that arrive during one life, and of services at a time. A policy
/// that arrives in one life goes in the next, and exists in the end.
const KILLS: usize = 8;
const COME: usize = 4;
const ALIVE: usize = 6;

/// The endpoint that the services have in the end.
const LAST: &str = "10.128.0.99";

const POLICIES: &str = r#"
[kubernetes]
enabled_handlers = ["vif", "lb", "lbaasspec", "policy"]
pod_security_groups_driver = "policy"
network_policy_driver = "default"
"#;

/// Some services come, some get other endpoints, and of those that were alive some go.
async fn churn(shop: &Shop<'_>, round: usize, alive: &mut Vec<String>) {
    for number in 0..COME {
        if alive.len() == ALIVE {
            let name = alive.swap_remove(chosen(ALIVE));
            shop.delete(&name).await;
        }
        let name = format!("web-{round}-{number}");
        let kind = if number % 2 == 0 { "ClusterIP" } else { "LoadBalancer" };
        shop.service(&name, kind, &["10.128.0.10"]).await;
        alive.push(name);
        tokio::time::sleep(Duration::from_millis(700)).await; // the speed of the churn
        shop.endpoints(&alive[chosen(alive.len())], &["10.128.0.10", "10.128.0.11"]).await;
    }
}

fn chosen(count: usize) -> usize {
    usize::try_from(below(count as u64)).unwrap()
}

/// The public addresses by the UIDs of their services, each with the port to which it leads. No service has two.
async fn public(world: &World) -> BTreeMap<String, (String, String)> {
    let mut public = BTreeMap::new();
    for reported in world.tenant.things("floatingips").await {
        let text = |name: &str| reported[name].as_str().unwrap_or_default().to_owned();
        let description = text("description");
        let uid = description.split(' ').find_map(|word| word.strip_prefix("staffetta:uid="));
        let uid = uid.unwrap_or_else(|| panic!("a public address without an owner: {reported}")).to_owned();
        let another = public.insert(uid, (text("floating_ip_address"), text("port_id")));
        assert_eq!(another, None, "the service of {reported} has two");
    }
    public
}

/// The number of the controllers' calls that created something at this path.
async fn made(world: &World, service: Service, path: &str) -> usize {
    let calls = world.stack.calls(service).await.of_controller(&world.tenant.id);
    calls.count(|call| call.method == "POST" && call.path.ends_with(path) && call.status == "201")
}

/// Kills controllers while services come and go; answers those that are alive in the end.
async fn killed(world: &World, shop: &Shop<'_>, guarded: &Guarded<'_>, options: &str) -> Vec<String> {
    let mut alive = Vec::new();
    for round in 0..KILLS {
        let controller = start(world, options).await;
        let made = world.gate.count(&creations());
        if round % 2 == 1 {
            guarded.policy("p", admits("web", &[80])).await;
        } else if round > 0 {
            guarded.no_policy("p").await;
        }
        let killed = async {
            // Where a start takes long, none would get any further: every other one is let alone until it makes something.
            if round % 2 == 0 {
                let makes = async || world.gate.count(&creations()) > made;
                world.until_within(PATIENCE, "a load balancer is made", makes).await;
            }
            tokio::time::sleep(Duration::from_millis(below(4500))).await; // the point is that it is any time
            kill(world, controller).await;
        };
        tokio::join!(churn(shop, round, &mut alive), killed);
    }
    alive
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn however_often_it_is_killed_each_service_has_one_load_balancer_on_a_real_openstack() {
    let world = World::start().await;
    let (shop, guarded) = (Shop::new(&world).await, Guarded::new(&world));
    let public_addresses = shop.public("203.0.113.0/26").await;
    let options = world.options(&shop.options(&merged(POLICIES, &public_addresses)));
    let looking = async {
        loop {
            public(&world).await;
            tokio::time::sleep(Duration::from_millis(500)).await; // between two looks
        }
    };
    let alive = tokio::select! {
        alive = killed(&world, &shop, &guarded, &options) => alive,
        never = looking => never,
    };
    for name in &alive {
        shop.endpoints(name, &[LAST]).await;
    }
    let mut last = start(&world, &options).await;
    let mut wanted = BTreeMap::new();
    for name in &alive {
        let made = shop.until_served(name, &[LAST]).await;
        shop.until_written(name, &made).await;
        let service = shop.services.get(name).await.unwrap();
        if service.spec.as_ref().unwrap().type_.as_deref() == Some("LoadBalancer") {
            wanted.insert(service.uid().unwrap(), (shop.until_public(name).await, made.port));
        }
    }
    let gone = async || world.tenant.load_balancers().await.len() == alive.len();
    world.until_within(PATIENCE, "those of services that went are gone", gone).await;
    let gone = async || public(&world).await == wanted;
    world.until_within(PATIENCE, "each service has the public address that it shows", gone).await;
    let kinds = async || {
        let groups = guarded.groups().await.into_values().map(|group| group.kind);
        let mut kinds: Vec<_> = groups.filter(|kind| !COMMON.contains(&&**kind)).collect();
        kinds.sort();
        kinds
    };
    let groups = async || kinds().await == ["peers", "policy"];
    world.until_within(PATIENCE, "the policy that is there has its groups", groups).await;

    let services = KILLS * COME;
    let balancers = made(&world, Service::Octavia, "/loadbalancers").await;
    assert!(balancers <= services, "{balancers} load balancers were made for {services} services");
    assert!(balancers > ALIVE, "{balancers} load balancers were made, and controllers were killed in vain");
    let addresses = made(&world, Service::Neutron, "/floatingips").await;
    assert!(addresses <= services / 2, "{addresses} public addresses were made, for every other service");
    for name in &alive {
        shop.delete(name).await;
    }
    guarded.no_policy("p").await;
    shop.until_empty().await;
    let gone = async || public(&world).await.is_empty();
    world.until_within(PATIENCE, "the public addresses are back in their pool", gone).await;
    guarded.until_none().await;
    assert!(last.terminate().await.success());
}
