//! A driver that releases a listener and sets members in parts.

use staffetta_driver::{
    DriverError, Listener, ListenerDriver, LoadBalancerDriver, LoadBalancerId, LoadBalancerProgress, Owned,
};

use super::pending::{DELAY, ready, waits};
use super::*;

/// Releases the pool of a listener with the first call and the listener itself with the second, and adds two members with each call.
struct Piecewise(Arc<MemoryLoadBalancerDriver>);

#[async_trait::async_trait]
impl LoadBalancerDriver for Piecewise {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError> {
        self.0.load_balancers(owner).await
    }
    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        self.0.ensure_load_balancer(owner, spec).await
    }
    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        self.0.release_load_balancer(owner, id).await
    }
    async fn progress(&self, tree: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError> {
        self.0.progress(tree).await
    }
}

#[async_trait::async_trait]
impl ListenerDriver for Piecewise {
    async fn change_listener(
        &self,
        tree: &LoadBalancer,
        change: &ListenerChange,
    ) -> Result<LoadBalancer, DriverError> {
        let found = tree.listener(change.at()).filter(|found| found.pool.is_some());
        if let (ListenerChange::SetMembers(at, wanted), Some(found)) = (change, found) {
            let present = found.pool.as_ref().map_or(0, |pool| pool.members.len());
            let part = wanted.iter().take(present + 2).cloned().collect();
            return self.0.change_listener(tree, &ListenerChange::SetMembers(*at, part)).await;
        }
        let (ListenerChange::Release(at), Some(found)) = (change, found) else {
            return self.0.change_listener(tree, change).await;
        };
        self.0.services().change_load_balancer(&tree.id, |present| {
            let same = |listener: &&mut Listener| listener.id == found.id;
            present.listeners.iter_mut().filter(same).for_each(|listener| listener.pool = None);
        });
        self.0.services().hold_load_balancer(&tree.id, DELAY);
        let left = Listener { pool: None, ..found.clone() };
        Ok(tree.with_listener(*at, Some(left)))
    }
}

const ALT: ListenerPort = ListenerPort { port: 81, ..HTTP };

/// Creates a service with two ports and a driver that releases in parts.
async fn two_ports() -> (World, LbaasServiceSpec) {
    let mut world = ready().await;
    let load_balancer = Arc::new(Piecewise(Arc::clone(&world.balancers)));
    world.replace(LbDrivers { load_balancer, ..world.drivers() }, true);
    let both = LbaasServiceSpec { ports: vec![port("http", 80), port("http", 81)], ..spec() };
    world.want(&both);
    world.index(&Event::Added(slice("s1", &["10.1.0.1"])).erase());
    until_idle(&world).await;
    assert_eq!(world.members(ALT), ["10.1.0.1:8080"]);
    (world, both)
}

/// Delivers the service until nothing is pending.
async fn until_idle(world: &World) {
    for _ in 0..8 {
        let Err(pending) = world.event().await else { return };
        waits(&pending);
        tokio::time::advance(DELAY).await;
    }
    panic!("it is pending forever");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_released_in_two_steps_is_gone_in_the_end() {
    let (world, _) = two_ports().await;
    world.want(&spec());
    until_idle(&world).await;
    assert_eq!(world.tree().listeners.iter().map(|listener| listener.at).collect::<Vec<_>>(), [HTTP]);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test(start_paused = true)]
async fn a_port_that_returns_while_its_listener_is_released_gets_a_pool_with_its_members_again() {
    let (world, both) = two_ports().await;
    world.want(&spec());
    waits(&world.event().await.unwrap_err());
    assert_eq!(world.tree().listener(ALT).unwrap().pool, None, "it is partly released");
    world.want(&both);
    until_idle(&world).await;
    assert_eq!(world.members(ALT), ["10.1.0.1:8080"]);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test(start_paused = true)]
async fn members_that_take_several_requests_are_all_there_in_the_end() {
    let (world, _) = two_ports().await;
    let ips = (1..6).map(|last| format!("10.1.0.{last}")).collect::<Vec<_>>();
    let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
    world.index(&Event::Modified(slice("s1", &ips)).erase());
    waits(&world.event().await.unwrap_err());
    assert_eq!(world.members(HTTP).len() + world.members(ALT).len(), 1 + 2 + 1, "one request at a time");
    until_idle(&world).await;
    assert_eq!((world.members(HTTP).len(), world.members(ALT).len()), (5, 5));
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}
