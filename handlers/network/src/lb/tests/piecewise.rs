//! A driver that releases a listener piece by piece.

use staffetta_driver::{
    DriverError, Listener, ListenerSpec, LoadBalancerDriver, LoadBalancerId, Marked, Member, MemberSpec,
    PoolId, Progress,
};

use super::pending::{DELAY, ready, waits};
use super::*;

/// Releases the pool of a listener first, and the listener itself when it is asked again.
struct Piecewise(Arc<MemoryLoadBalancerDriver>);

#[async_trait::async_trait]
impl LoadBalancerDriver for Piecewise {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Marked<LoadBalancer>>, DriverError> {
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
    async fn progress(&self, tree: &LoadBalancer) -> Result<Progress, DriverError> {
        self.0.progress(tree).await
    }
    async fn ensure_listener(
        &self,
        tree: &LoadBalancer,
        spec: &ListenerSpec,
    ) -> Result<Listener, DriverError> {
        self.0.ensure_listener(tree, spec).await
    }
    async fn release_listener(
        &self,
        tree: &LoadBalancer,
        listener: &Listener,
    ) -> Result<Option<Listener>, DriverError> {
        if listener.pool.is_none() {
            return self.0.release_listener(tree, listener).await;
        }
        let left = Listener { pool: None, ..listener.clone() };
        self.0.services().change_load_balancer(&tree.id, |found| {
            let same = |present: &&mut Listener| present.id == listener.id;
            found.listeners.iter_mut().filter(same).for_each(|present| present.pool = None);
        });
        self.0.services().hold_load_balancer(&tree.id, DELAY);
        Ok(Some(left))
    }
    async fn set_members(
        &self,
        tree: &LoadBalancer,
        pool: &PoolId,
        members: &[MemberSpec],
    ) -> Result<Vec<Member>, DriverError> {
        self.0.set_members(tree, pool, members).await
    }
}

const ALT: ListenerPort = ListenerPort { port: 81, ..HTTP };

/// A service on two ports, whose driver releases piece by piece.
async fn two_ports() -> (World, LbaasServiceSpec) {
    let mut world = ready().await;
    let load_balancer = Arc::new(Piecewise(Arc::clone(&world.balancers)));
    world.replace(LbDrivers { load_balancer, ..world.drivers() }, true);
    let both = LbaasServiceSpec { ports: vec![port("http", 80), port("http", 81)], ..spec() };
    world.want(&both);
    world.index(&Event::Added(slice("s1", &["10.1.0.1"])).erase());
    settles(&world).await;
    assert_eq!(world.members(ALT), ["10.1.0.1:8080"]);
    (world, both)
}

/// Delivers the service's state until there is nothing left to wait for.
async fn settles(world: &World) {
    for _ in 0..8 {
        let Err(pending) = world.event().await else { return };
        waits(&pending);
        tokio::time::advance(DELAY).await;
    }
    panic!("it waits for ever");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_goes_in_two_steps_is_gone_in_the_end() {
    let (world, _) = two_ports().await;
    world.want(&spec());
    settles(&world).await;
    assert_eq!(world.tree().listeners.iter().map(|listener| listener.at).collect::<Vec<_>>(), [HTTP]);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test(start_paused = true)]
async fn a_port_that_comes_back_while_its_listener_goes_is_served_again_by_a_pool_with_its_members() {
    let (world, both) = two_ports().await;
    world.want(&spec());
    waits(&world.event().await.unwrap_err());
    assert_eq!(world.tree().listener(ALT).unwrap().pool, None, "it is half gone");
    world.want(&both);
    settles(&world).await;
    assert_eq!(world.members(ALT), ["10.1.0.1:8080"]);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}
