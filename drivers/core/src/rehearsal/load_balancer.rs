//! Load balancers that are planned.

use std::sync::Arc;

use async_trait::async_trait;

use super::overlay::Overlay;
use super::{PlannedCall, Planner, listed, planned, unknown};
use crate::error::DriverError;
use crate::id::{LoadBalancerId, PoolId};
use crate::load_balancer::{
    Feasible, Listener, ListenerPort, ListenerSpec, LoadBalancer, LoadBalancerSpec, Member, MemberSpec, Pool,
    PoolSpec, Progress, Provisioning,
};
use crate::load_balancer_driver::LoadBalancerDriver;
use crate::namespace_observer::NamespaceObserver;
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

    async fn feasible(&self, spec: LoadBalancerSpec) -> Result<Feasible, DriverError> {
        self.inner.feasible(spec).await
    }

    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        self.inner.namespaces()
    }

    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        let groups = || listed(spec.security_groups.iter().flatten());
        if let Some(Marked { thing: found, .. }) = self.load_balancers(Some(owner)).await?.into_iter().next()
        {
            let mut changed = found.clone();
            if let Some(wanted) =
                spec.security_groups.as_ref().filter(|wanted| found.security_groups != **wanted)
            {
                let call = PlannedCall::new("change the security groups of a load balancer").of(owner);
                (self.planner)(call.with("load balancer", &found.id).with("security groups", groups()));
                changed.security_groups.clone_from(wanted);
            }
            if found.disabled {
                let call = PlannedCall::new("switch on a load balancer").of(owner);
                (self.planner)(call.with("load balancer", &found.id));
                changed.disabled = false;
            }
            if changed != found {
                self.change(changed.clone());
            }
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
                .with("provider", spec.provider.as_deref().unwrap_or_default())
                .with("security groups", groups())
                .with("project", &spec.project)
                .with("listeners", listed(spec.listeners.iter().map(told))),
        );
        let made = made(owner, spec);
        self.overlay.put(made.id.clone(), Some(owner.clone()), made.clone());
        Ok(made)
    }

    /// What was planned is done at once.
    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<Progress, DriverError> {
        if self.overlay.knows(&load_balancer.id) {
            return Ok(Progress::Active);
        }
        self.inner.progress(load_balancer).await
    }

    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        (self.planner)(PlannedCall::new("release a load balancer").of(owner).with("load balancer", id));
        self.overlay.remove(id.clone());
        Ok(())
    }

    async fn ensure_listener(
        &self,
        load_balancer: &LoadBalancer,
        spec: &ListenerSpec,
    ) -> Result<Listener, DriverError> {
        let found = load_balancer.listener(spec.at);
        if let Some(found) = found.filter(|found| spec.is_made(found)) {
            return Ok(found.clone());
        }
        let what = match found {
            Some(Listener { pool: Some(_), .. }) => "change the settings of a listener and its pool",
            Some(_) => "make the pool of a listener",
            None => "make a listener with its pool",
        };
        let call = about(what, load_balancer, spec.at).with("settings", settings(spec));
        let stays = found.is_some_and(|found| found.pool.is_some());
        (self.planner)(if stays { call } else { call.with("members", addresses(&spec.pool.members)) });
        let listener = listener(&load_balancer.name, found, spec);
        let mut changed = load_balancer.clone();
        changed.listeners.retain(|present| present.at != spec.at);
        changed.listeners.push(listener.clone());
        self.change(changed);
        Ok(listener)
    }

    async fn release_listener(
        &self,
        load_balancer: &LoadBalancer,
        listener: &Listener,
    ) -> Result<Option<Listener>, DriverError> {
        (self.planner)(about("release a listener with its pool", load_balancer, listener.at));
        let mut changed = load_balancer.clone();
        changed.listeners.retain(|present| present.at != listener.at);
        self.change(changed);
        Ok(None)
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
        let named = if members.is_empty() { "none".to_owned() } else { addresses(members) };
        (self.planner)(call.with("members", named));
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

fn about(what: &'static str, load_balancer: &LoadBalancer, at: ListenerPort) -> PlannedCall {
    PlannedCall::new(what).with("listener", at).with("load balancer", &load_balancer.name)
}

/// The addresses and ports of members.
fn addresses(members: &[MemberSpec]) -> String {
    listed(members.iter().map(|member| format!("{}:{}", member.ip, member.port)))
}

/// A listener with its members: `TCP:80 (client time-out 5000 ms) to 10.1.0.1:8080`.
fn told(spec: &ListenerSpec) -> String {
    let settings = Some(settings(spec)).filter(|settings| !settings.is_empty());
    let settings = settings.map(|settings| format!(" ({settings})")).unwrap_or_default();
    let members = Some(addresses(&spec.pool.members)).filter(|members| !members.is_empty());
    let members = members.map(|members| format!(" to {members}")).unwrap_or_default();
    format!("{}{settings}{members}", spec.at)
}

/// The settings that are not left to the other side.
fn settings(spec: &ListenerSpec) -> String {
    let PoolSpec { settings: pool, .. } = &spec.pool;
    let cidrs = &spec.settings.allowed_cidrs;
    let said = [
        spec.settings.client_timeout_ms.map(|time| format!("client time-out {time} ms")),
        spec.settings.member_timeout_ms.map(|time| format!("member time-out {time} ms")),
        (!cidrs.is_empty()).then(|| format!("only from {}", listed(cidrs))),
        pool.algorithm.map(|algorithm| format!("algorithm {algorithm}")),
        pool.persistence.map(|persistence| match persistence.timeout_s {
            Some(time) => format!("a member for each client, for {time} s"),
            None => "a member for each client".to_owned(),
        }),
        pool.monitor.map(|monitor| format!("members are asked each {} s", monitor.delay_s)),
    ];
    listed(said.into_iter().flatten())
}

fn made(owner: &Owner, spec: &LoadBalancerSpec) -> LoadBalancer {
    LoadBalancer {
        id: planned(&owner.uid).into(),
        project: spec.project.clone(),
        name: spec.name.clone(),
        vip: spec.vip,
        subnet: spec.subnet.clone(),
        port: planned(format_args!("port-{}", owner.uid)).into(),
        provider: spec.provider.clone(),
        security_groups: spec.security_groups.clone().unwrap_or_default(),
        disabled: false,
        status: Provisioning::Active,
        listeners: spec.listeners.iter().map(|listed| listener(&spec.name, None, listed)).collect(),
    }
}

/// The listener as it would be; what is there keeps its id, and a pool that is there its members.
fn listener(balancer: &str, found: Option<&Listener>, spec: &ListenerSpec) -> Listener {
    let id = planned(format_args!("{balancer}-{}", spec.at));
    let settings = spec.pool.settings.clone();
    let pool = if let Some(pool) = found.and_then(|found| found.pool.as_ref()) {
        Pool { settings, ..pool.clone() }
    } else {
        let members = spec.pool.members.iter().map(|wanted| member(&[], wanted)).collect();
        Pool { id: id.clone().into(), settings, members }
    };
    Listener {
        id: found.map_or_else(|| id.into(), |found| found.id.clone()),
        at: spec.at,
        settings: spec.settings.clone(),
        pool: Some(pool),
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
    use crate::load_balancer_settings::{
        Algorithm, HealthMonitor, ListenerSettings, PoolSettings, SessionPersistence,
    };
    use crate::memory::{LoadBalancerCall, MemoryLoadBalancerDriver, MemoryOptions, MemoryServices};

    const HTTP: ListenerPort = ListenerPort { protocol: Protocol::Tcp, port: 80 };
    const DNS: ListenerPort = ListenerPort { protocol: Protocol::Udp, port: 53 };

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
            provider: None,
            security_groups: Some(vec!["web".into()]),
            listeners: Vec::new(),
            adopt: None,
        }
    }

    fn listens(at: ListenerPort, members: &[&str]) -> ListenerSpec {
        let members = members.iter().map(|ip| member(ip)).collect();
        let pool = PoolSpec { members, ..PoolSpec::default() };
        ListenerSpec { at, settings: ListenerSettings::default(), pool }
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
        let whole = LoadBalancerSpec { listeners: vec![listens(DNS, &["10.1.0.1"])], ..spec() };
        let made = driver.ensure_load_balancer(&owner("web"), &whole).await.unwrap();
        assert_eq!(driver.progress(&made).await.unwrap(), Progress::Active);
        driver.ensure_listener(&made, &listens(HTTP, &[])).await.unwrap();
        let tree_now = tree(&driver).await;
        let pool = tree_now.listener(HTTP).unwrap().pool.clone().unwrap().id;
        let members = [member("10.1.0.1"), member("10.1.0.2")];
        let set = driver.set_members(&tree_now, &pool, &members).await.unwrap();
        assert_eq!(tree(&driver).await.listener(HTTP).unwrap().pool.as_ref().unwrap().members, set);
        let expected = [
            "default/web: make a load balancer: name default/web; address 10.0.0.1; subnet services; security groups web; project p; listeners UDP:53 to 10.1.0.1:8080",
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
        let listener = real.ensure_listener(&made, &listens(HTTP, &[])).await.unwrap();
        let pool = listener.pool.clone().unwrap().id;
        let kept = real.set_members(&made, &pool, &[member("10.1.0.1")]).await.unwrap();
        let (there, before) = (tree(&driver).await, real.services().load_balancers());

        assert_eq!(driver.ensure_load_balancer(&owner("web"), &spec()).await.unwrap(), there);
        let as_it_is = driver.ensure_listener(&there, &listens(HTTP, &["10.1.0.9"])).await.unwrap();
        assert_eq!(as_it_is, there.listeners[0]);
        assert_eq!(notes.taken(), [""; 0]);

        let guarded = LoadBalancerSpec { security_groups: Some(vec!["g".into()]), ..spec() };
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
        half.listeners.push(Listener {
            id: "l".into(),
            at: DNS,
            settings: ListenerSettings::default(),
            pool: None,
        });
        notes.taken();
        let whole = driver.ensure_listener(&half, &listens(DNS, &["10.1.0.1"])).await.unwrap();
        assert_eq!((whole.id.as_str(), whole.pool.is_some()), ("l", true));
        let expected = [
            "make the pool of a listener: listener UDP:53; load balancer default/web; members 10.1.0.1:8080",
        ];
        assert_eq!(notes.taken(), expected);
    }

    #[tokio::test]
    async fn settings_are_told_and_the_members_of_a_pool_that_is_there_stay() {
        let (real, notes, driver) = world();
        let plain = LoadBalancerSpec { listeners: vec![listens(HTTP, &["10.1.0.1"])], ..spec() };
        let there = real.ensure_load_balancer(&owner("web"), &plain).await.unwrap();
        let mut wanted = listens(HTTP, &["10.1.0.9"]);
        wanted.settings = ListenerSettings {
            client_timeout_ms: Some(5000),
            member_timeout_ms: Some(6000),
            allowed_cidrs: vec!["192.0.2.0/24".parse().unwrap()],
            disabled: false,
        };
        wanted.pool.settings = PoolSettings {
            algorithm: Some(Algorithm::LeastConnections),
            persistence: Some(SessionPersistence { timeout_s: Some(60) }),
            monitor: Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 }),
            disabled: false,
        };
        let changed = driver.ensure_listener(&there, &wanted).await.unwrap();
        assert!(wanted.is_made(&changed));
        assert_eq!(changed.pool.unwrap().members, there.listeners[0].pool.as_ref().unwrap().members);
        let expected = "change the settings of a listener and its pool: listener TCP:80; load balancer default/web; \
            settings client time-out 5000 ms, member time-out 6000 ms, only from 192.0.2.0/24, algorithm \
            LEAST_CONNECTIONS, a member for each client, for 60 s, members are asked each 5 s";
        assert_eq!(notes.taken(), [expected]);
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
