//! Load balancers that are planned.

use std::sync::Arc;

use async_trait::async_trait;

use super::overlay::Overlay;
use super::{PlannedCall, Planner, listed, planned, unknown};
use crate::error::DriverError;
use crate::id::{LoadBalancerId, PoolId};
use crate::load_balancer::{
    Listener, ListenerSpec, LoadBalancer, LoadBalancerSpec, Member, MemberSpec, Pool, Provisioning,
};
use crate::load_balancer_driver::LoadBalancerDriver;
use crate::owner::{Marked, Owner};

/// A load balancer driver that reads and plans. What is there already as it is wanted is no step of the plan.
pub struct RehearsedLoadBalancerDriver {
    inner: Arc<dyn LoadBalancerDriver>,
    planner: Planner,
    overlay: Overlay<LoadBalancerId, LoadBalancer>,
}

impl RehearsedLoadBalancerDriver {
    /// Reads from `inner`, and tells `planner` of the rest.
    pub fn new(inner: Arc<dyn LoadBalancerDriver>, planner: Planner) -> Self {
        Self { inner, planner, overlay: Overlay::default() }
    }

    fn change(&self, changed: LoadBalancer) {
        self.overlay.change(changed.id.clone(), changed);
    }
}

#[async_trait]
impl LoadBalancerDriver for RehearsedLoadBalancerDriver {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Marked<LoadBalancer>>, DriverError> {
        let read = self.inner.load_balancers(owner).await?;
        Ok(self.overlay.over(read, |found| found.id.clone(), owner))
    }

    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        let groups = || listed(&spec.security_groups);
        if let Some(Marked { thing: found, .. }) = self.load_balancers(Some(owner)).await?.into_iter().next()
        {
            if found.security_groups == spec.security_groups {
                return Ok(found);
            }
            let call = PlannedCall::new("change the security groups of a load balancer").of(owner);
            (self.planner)(call.with("load balancer", &found.id).with("security groups", groups()));
            let changed = LoadBalancer { security_groups: spec.security_groups.clone(), ..found };
            self.change(changed.clone());
            return Ok(changed);
        }
        if let Some(adopted) = &spec.adopt {
            let call = PlannedCall::new("adopt a load balancer that bears no mark").of(owner);
            (self.planner)(call.with("load balancer", adopted).last());
            return Err(unknown("adopt a load balancer"));
        }
        (self.planner)(
            PlannedCall::new("make a load balancer")
                .of(owner)
                .with("name", &spec.name)
                .with("address", spec.vip)
                .with("subnet", &spec.subnet)
                .with("security groups", groups())
                .with("project", &spec.project),
        );
        let made = made(owner, spec);
        self.overlay.put(made.id.clone(), Some(owner.clone()), made.clone());
        Ok(made)
    }

    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        (self.planner)(PlannedCall::new("release a load balancer").of(owner).with("load balancer", id));
        self.overlay.remove(id.clone());
        Ok(())
    }

    async fn ensure_listener(
        &self,
        load_balancer: &LoadBalancer,
        at: ListenerSpec,
    ) -> Result<Listener, DriverError> {
        let found = load_balancer.listener(at);
        if let Some(found) = found.filter(|found| found.pool.is_some()) {
            return Ok(found.clone());
        }
        let what =
            if found.is_some() { "make the pool of a listener" } else { "make a listener with its pool" };
        (self.planner)(about(what, load_balancer, at));
        let id = planned(format_args!("{}-{at}", load_balancer.name));
        let listener = Listener {
            id: found.map_or_else(|| id.clone().into(), |found| found.id.clone()),
            at,
            pool: Some(Pool { id: id.into(), members: Vec::new() }),
        };
        let mut changed = load_balancer.clone();
        changed.listeners.retain(|present| present.at != at);
        changed.listeners.push(listener.clone());
        self.change(changed);
        Ok(listener)
    }

    async fn release_listener(
        &self,
        load_balancer: &LoadBalancer,
        listener: &Listener,
    ) -> Result<(), DriverError> {
        (self.planner)(about("release a listener with its pool", load_balancer, listener.at));
        let mut changed = load_balancer.clone();
        changed.listeners.retain(|present| present.at != listener.at);
        self.change(changed);
        Ok(())
    }

    async fn set_members(
        &self,
        load_balancer: &LoadBalancer,
        pool: &PoolId,
        members: &[MemberSpec],
    ) -> Result<Vec<Member>, DriverError> {
        let mut changed = load_balancer.clone();
        let of_pool =
            |listener: &&mut Listener| listener.pool.as_ref().is_some_and(|present| present.id == *pool);
        let listener = changed.listeners.iter_mut().find(of_pool);
        let call = match &listener {
            Some(listener) => about("set the members of a pool", load_balancer, listener.at),
            None => PlannedCall::new("set the members of a pool").with("pool", pool),
        };
        let addresses =
            members.iter().map(|member| format_args!("{}:{}", member.ip, member.port).to_string());
        let members_of = match members {
            [] => "none".to_owned(),
            _ => listed(addresses),
        };
        (self.planner)(call.with("members", members_of));
        let present = listener.as_ref().and_then(|listener| listener.pool.as_ref());
        let present = present.map(|pool| pool.members.clone()).unwrap_or_default();
        let set: Vec<_> = members.iter().map(|wanted| member(&present, wanted)).collect();
        if let Some(pool) = listener.and_then(|listener| listener.pool.as_mut()) {
            pool.members.clone_from(&set);
        }
        self.change(changed);
        Ok(set)
    }
}

fn about(what: &'static str, load_balancer: &LoadBalancer, at: ListenerSpec) -> PlannedCall {
    PlannedCall::new(what).with("listener", at).with("load balancer", &load_balancer.name)
}

fn made(owner: &Owner, spec: &LoadBalancerSpec) -> LoadBalancer {
    LoadBalancer {
        id: planned(&owner.uid).into(),
        project: spec.project.clone(),
        name: spec.name.clone(),
        vip: spec.vip,
        subnet: spec.subnet.clone(),
        port: planned(format_args!("port-{}", owner.uid)).into(),
        provider: None,
        security_groups: spec.security_groups.clone(),
        status: Provisioning::Active,
        listeners: Vec::new(),
    }
}

/// The member as it would be; one that is there keeps its id.
fn member(present: &[Member], wanted: &MemberSpec) -> Member {
    let same = |member: &&Member| (member.spec.ip, member.spec.port) == (wanted.ip, wanted.port);
    let id = present.iter().find(same).map(|member| member.id.clone());
    let id = id.unwrap_or_else(|| planned(format_args!("{}-{}", wanted.ip, wanted.port)).into());
    Member { id, spec: wanted.clone() }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Notes, owner};
    use super::*;
    use crate::load_balancer::Protocol;
    use crate::memory::{LoadBalancerCall, MemoryLoadBalancerDriver, MemoryOptions, MemoryServices};

    const HTTP: ListenerSpec = ListenerSpec { protocol: Protocol::Tcp, port: 80 };
    const DNS: ListenerSpec = ListenerSpec { protocol: Protocol::Udp, port: 53 };

    fn world() -> (Arc<MemoryLoadBalancerDriver>, Notes, RehearsedLoadBalancerDriver) {
        let options = MemoryOptions { load_balancer_delay_ms: 0, ..MemoryOptions::default() };
        let real =
            Arc::new(MemoryLoadBalancerDriver::new(Arc::new(MemoryServices::new(options)), "c1".into()));
        let notes = Notes::default();
        let driver = RehearsedLoadBalancerDriver::new(Arc::clone(&real) as _, notes.planner());
        (real, notes, driver)
    }

    fn spec() -> LoadBalancerSpec {
        LoadBalancerSpec {
            name: "default/web".into(),
            project: "p".into(),
            subnet: "services".into(),
            vip: "10.0.0.1".parse().unwrap(),
            security_groups: vec!["web".into()],
            adopt: None,
        }
    }

    fn member(ip: &str) -> MemberSpec {
        MemberSpec {
            ip: ip.parse().unwrap(),
            port: 8080,
            name: "default/web".into(),
            subnet: "services".into(),
        }
    }

    async fn tree(driver: &impl LoadBalancerDriver) -> LoadBalancer {
        driver.load_balancers(Some(&owner("web"))).await.unwrap().remove(0).thing
    }

    #[tokio::test]
    async fn a_load_balancer_is_planned_with_all_that_hangs_on_it() {
        let (real, notes, driver) = world();
        let made = driver.ensure_load_balancer(&owner("web"), &spec()).await.unwrap();
        driver.ensure_listener(&made, HTTP).await.unwrap();
        let tree_now = tree(&driver).await;
        let pool = tree_now.listener(HTTP).unwrap().pool.clone().unwrap().id;
        let members = [member("10.1.0.1"), member("10.1.0.2")];
        let set = driver.set_members(&tree_now, &pool, &members).await.unwrap();
        assert_eq!(tree(&driver).await.listener(HTTP).unwrap().pool.as_ref().unwrap().members, set);
        let expected = [
            "default/web: make a load balancer: name default/web; address 10.0.0.1; subnet services; security groups web; project p",
            "make a listener with its pool: listener TCP:80; load balancer default/web",
            "set the members of a pool: listener TCP:80; load balancer default/web; members 10.1.0.1:8080, 10.1.0.2:8080",
        ];
        assert_eq!(notes.taken(), expected);
        assert!(real.services().load_balancers().is_empty());
        assert!(real.calls().iter().all(|call| matches!(call, LoadBalancerCall::List(_))));
    }

    #[tokio::test]
    async fn what_is_there_as_it_is_wanted_is_no_step_and_what_differs_is() {
        let (real, notes, driver) = world();
        let made = real.ensure_load_balancer(&owner("web"), &spec()).await.unwrap();
        let listener = real.ensure_listener(&made, HTTP).await.unwrap();
        let pool = listener.pool.clone().unwrap().id;
        let kept = real.set_members(&made, &pool, &[member("10.1.0.1")]).await.unwrap();
        let (there, before) = (tree(&driver).await, real.services().load_balancers());

        assert_eq!(driver.ensure_load_balancer(&owner("web"), &spec()).await.unwrap(), there);
        assert_eq!(driver.ensure_listener(&there, HTTP).await.unwrap(), there.listeners[0]);
        assert_eq!(notes.taken(), [""; 0]);

        let guarded = LoadBalancerSpec { security_groups: vec!["g".into()], ..spec() };
        let guarded = driver.ensure_load_balancer(&owner("web"), &guarded).await.unwrap();
        assert_eq!(guarded.security_groups, ["g".into()]);
        let set =
            driver.set_members(&guarded, &pool, &[member("10.1.0.9"), member("10.1.0.1")]).await.unwrap();
        assert_eq!((set[0].id.as_str(), &set[1]), ("planned-10.1.0.9-8080", &kept[0]));
        driver.set_members(&tree(&driver).await, &pool, &[]).await.unwrap();
        driver.release_listener(&tree(&driver).await, &listener).await.unwrap();
        assert_eq!(tree(&driver).await.listeners, []);
        driver.release_load_balancer(&owner("web"), &made.id).await.unwrap();
        assert_eq!(driver.load_balancers(None).await.unwrap(), []);
        let id = made.id;
        let expected = [
            format!("default/web: change the security groups of a load balancer: load balancer {id}; security groups g"),
            "set the members of a pool: listener TCP:80; load balancer default/web; members 10.1.0.9:8080, 10.1.0.1:8080".into(),
            "set the members of a pool: listener TCP:80; load balancer default/web; members none".into(),
            "release a listener with its pool: listener TCP:80; load balancer default/web".into(),
            format!("default/web: release a load balancer: load balancer {id}"),
        ];
        assert_eq!(notes.taken(), expected);
        assert_eq!(real.services().load_balancers(), before);
    }

    #[tokio::test]
    async fn a_listener_without_a_pool_gets_one() {
        let (_, notes, driver) = world();
        let mut half = driver.ensure_load_balancer(&owner("web"), &spec()).await.unwrap();
        half.listeners.push(Listener { id: "l".into(), at: DNS, pool: None });
        notes.taken();
        let whole = driver.ensure_listener(&half, DNS).await.unwrap();
        assert_eq!((whole.id.as_str(), whole.pool.is_some()), ("l", true));
        assert_eq!(
            notes.taken(),
            ["make the pool of a listener: listener UDP:53; load balancer default/web"]
        );
    }

    #[tokio::test]
    async fn after_an_adoption_nobody_knows_how_it_goes_on() {
        let (_, notes, driver) = world();
        let adopting = LoadBalancerSpec { adopt: Some("theirs".into()), ..spec() };
        let error = driver.ensure_load_balancer(&owner("web"), &adopting).await.unwrap_err();
        assert!(!error.transient() && !error.ambiguous(), "{error}");
        let expected = ["default/web: adopt a load balancer that bears no mark: load balancer theirs ..."];
        assert_eq!(notes.taken(), expected);
    }
}
