//! Records calls to load balancer drivers.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{
    DriverError, Listener, ListenerChange, ListenerDriver, ListenerSpec, LoadBalancer, LoadBalancerDriver,
    LoadBalancerId, LoadBalancerProgress, LoadBalancerSpec, MemberSpec, NamespaceObserver, NormalizedSpec,
    Owned, Owner, Reason,
};

use super::{PLANNED, Recording, list, planned};

/// Passes reads to the real driver, and records changes. If a load balancer is up to date, ensuring it is not recorded.
#[async_trait]
impl LoadBalancerDriver for Recording<dyn LoadBalancerDriver> {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError> {
        self.driver.load_balancers(owner).await
    }

    async fn normalize(&self, spec: LoadBalancerSpec) -> Result<NormalizedSpec, DriverError> {
        self.driver.normalize(spec).await
    }

    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        self.driver.namespaces()
    }

    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        let groups = list(spec.security_groups.iter().flatten());
        if let Some(Owned { resource: mut found, .. }) =
            self.load_balancers(Some(owner)).await?.into_iter().next()
        {
            if let Some(wanted) =
                spec.security_groups.as_ref().filter(|wanted| found.security_groups != **wanted)
            {
                let call = self.call("change the security groups of a load balancer");
                let call = call.with("load balancer", &found.id).with("security groups", groups);
                self.record(Some(owner), call);
                found.security_groups.clone_from(wanted);
            }
            if found.disabled {
                let call = self.call("enable a load balancer").with("load balancer", &found.id);
                self.record(Some(owner), call);
                found.disabled = false;
            }
            return Ok(found);
        }
        if let Some(adopted) = &spec.adopt {
            let call = self.call("adopt an unmarked load balancer").with("load balancer", adopted);
            return Err(self.end(owner, call, "adopt a load balancer"));
        }
        let call = self
            .call("create a load balancer")
            .with("name", &spec.name)
            .with("address", spec.vip)
            .with("subnet", &spec.subnet)
            .with("provider", spec.provider.as_deref().unwrap_or_default())
            .with("security groups", groups)
            .with("project", &spec.project)
            .with("listeners", list(spec.listeners.iter().map(described)));
        self.record(Some(owner), call);
        let (id, port) = (planned(&owner.uid), planned(format_args!("port-{}", owner.uid)));
        Ok(LoadBalancer::created(spec, id.into(), port.into(), planned))
    }

    /// Returns [`LoadBalancerProgress::Active`] for a planned load balancer; passes any other to the real driver.
    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError> {
        if load_balancer.id.as_str().starts_with(PLANNED) {
            return Ok(LoadBalancerProgress::Active);
        }
        self.driver.progress(load_balancer).await
    }

    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        self.record(Some(owner), self.call("release a load balancer").with("load balancer", id));
        Ok(())
    }
}

#[async_trait]
impl ListenerDriver for Recording<dyn LoadBalancerDriver> {
    async fn change_listener(
        &self,
        load_balancer: &LoadBalancer,
        change: &ListenerChange,
    ) -> Result<LoadBalancer, DriverError> {
        let (at, none) = (change.at(), String::new);
        let (what, settings, members) = match (change, load_balancer.listener(at)) {
            (ListenerChange::SetMembers(_, members), _) if members.is_empty() => {
                ("set the members of a pool", none(), "none".to_owned())
            }
            (ListenerChange::SetMembers(_, members), _) => {
                ("set the members of a pool", none(), addresses(members))
            }
            (ListenerChange::Release(_), _) => ("release a listener with its pool", none(), none()),
            (ListenerChange::Ensure(spec), Some(found)) if spec.is_made(found) => {
                return Ok(load_balancer.clone());
            }
            (ListenerChange::Ensure(spec), Some(Listener { pool: Some(_), .. })) => {
                ("change the settings of a listener and its pool", settings(spec), none())
            }
            (ListenerChange::Ensure(spec), found) => {
                let what =
                    found.map_or("create a listener with its pool", |_| "create the pool of a listener");
                (what, settings(spec), addresses(&spec.pool.members))
            }
        };
        let call = self.call(what).with("listener", at).with("load balancer", &load_balancer.name);
        self.record(None, call.with("settings", settings).with("members", members));
        let no_pool = || DriverError::new(Reason::NotFound, "set the members of a pool");
        load_balancer.changed(change, planned).ok_or_else(no_pool)
    }
}

/// Returns the addresses and ports of members as text.
fn addresses(members: &[MemberSpec]) -> String {
    list(members.iter().map(|member| format!("{}:{}", member.ip, member.port)))
}

/// Describes a listener with its settings and members: `TCP:80 (client timeout 5000 ms) to 10.1.0.1:8080`.
fn described(spec: &ListenerSpec) -> String {
    let (settings, members) = (settings(spec), addresses(&spec.pool.members));
    let settings = if settings.is_empty() { settings } else { format!(" ({settings})") };
    let members = if members.is_empty() { members } else { format!(" to {members}") };
    format!("{}{settings}{members}", spec.at)
}

/// Lists, as text, the settings of a listener and its pool that differ from the defaults of the external system.
fn settings(spec: &ListenerSpec) -> String {
    let (listener, pool) = (&spec.settings, &spec.pool.settings);
    let settings = [
        listener.client_timeout_ms.map(|time| format!("client timeout {time} ms")),
        listener.member_timeout_ms.map(|time| format!("member timeout {time} ms")),
        (!listener.allowed_cidrs.is_empty()).then(|| format!("only from {}", list(&listener.allowed_cidrs))),
        pool.algorithm.map(|algorithm| format!("algorithm {algorithm}")),
        pool.persistence.map(|persistence| match persistence.timeout_s {
            Some(time) => format!("session persistence {time} s"),
            None => "session persistence".to_owned(),
        }),
        pool.monitor.map(|monitor| format!("health check every {} s", monitor.delay_s)),
    ];
    list(settings.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use staffetta_driver::{
        Algorithm, HealthMonitor, ListenerPort, ListenerSettings, Member, PoolSettings, PoolSpec, Protocol,
        SessionPersistence,
    };
    use staffetta_memory::{LoadBalancerCall, MemoryLoadBalancerDriver, MemoryOptions, MemoryServices};

    use super::super::testing::{Calls, owner};
    use super::*;

    const HTTP: ListenerPort = ListenerPort { protocol: Protocol::Tcp, port: 80 };
    const DNS: ListenerPort = ListenerPort { protocol: Protocol::Udp, port: 53 };

    /// Returns the changes of listeners, each with the part of the load balancer that it changes.
    trait ListenerCalls: ListenerDriver {
        async fn ensure_listener(
            &self,
            balancer: &LoadBalancer,
            spec: &ListenerSpec,
        ) -> Result<Listener, DriverError> {
            let changed = self.change_listener(balancer, &ListenerChange::Ensure(spec.clone())).await?;
            Ok(changed.listener(spec.at).cloned().expect("it was ensured"))
        }

        async fn release_listener(
            &self,
            balancer: &LoadBalancer,
            listener: &Listener,
        ) -> Result<Option<Listener>, DriverError> {
            let observed = balancer.with_listener(listener.at, Some(listener.clone()));
            let changed = self.change_listener(&observed, &ListenerChange::Release(listener.at)).await?;
            Ok(changed.listener(listener.at).cloned())
        }

        async fn set_members(
            &self,
            balancer: &LoadBalancer,
            at: ListenerPort,
            members: &[MemberSpec],
        ) -> Result<Vec<Member>, DriverError> {
            let changed =
                self.change_listener(balancer, &ListenerChange::SetMembers(at, members.to_vec())).await?;
            Ok(changed
                .listener(at)
                .and_then(|listener| listener.pool.clone())
                .expect("it has a pool")
                .members)
        }
    }

    impl<D: ListenerDriver + ?Sized> ListenerCalls for D {}

    fn world() -> (Arc<MemoryLoadBalancerDriver>, Calls, Recording<dyn LoadBalancerDriver>) {
        let options = MemoryOptions { load_balancer_delay_ms: 0, ..MemoryOptions::default() };
        let real =
            Arc::new(MemoryLoadBalancerDriver::new(Arc::new(MemoryServices::new(options)), "c1".into()));
        let calls = Calls::default();
        let driver = calls.record(Arc::clone(&real) as _);
        (real, calls, driver)
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

    fn listener(at: ListenerPort, members: &[&str]) -> ListenerSpec {
        let members = members.iter().map(|ip| member(ip)).collect();
        let pool = PoolSpec { members, ..PoolSpec::default() };
        ListenerSpec { at, settings: ListenerSettings::default(), pool }
    }

    fn member(ip: &str) -> MemberSpec {
        let (name, subnet) = ("default/web".into(), "services".into());
        MemberSpec { ip: ip.parse().unwrap(), port: 8080, name, subnet }
    }

    #[tokio::test]
    async fn a_load_balancer_is_recorded_with_its_listeners_and_members() {
        let (real, calls, driver) = world();
        let whole = LoadBalancerSpec { listeners: vec![listener(DNS, &["10.1.0.1"])], ..spec() };
        let mut planned = driver.ensure_load_balancer(&owner("web"), &whole).await.unwrap();
        assert_eq!(driver.progress(&planned).await.unwrap(), LoadBalancerProgress::Active);
        let http = driver.ensure_listener(&planned, &listener(HTTP, &[])).await.unwrap();
        planned.listeners.push(http);
        let members = [member("10.1.0.1"), member("10.1.0.2")];
        let set = driver.set_members(&planned, HTTP, &members).await.unwrap();
        assert_eq!(set.iter().map(|member| member.spec.clone()).collect::<Vec<_>>(), members);
        let expected = [
            "default/web: create a load balancer: name default/web; address 10.0.0.1; subnet services; security groups web; project p; listeners UDP:53 to 10.1.0.1:8080",
            "create a listener with its pool: listener TCP:80; load balancer default/web",
            "set the members of a pool: listener TCP:80; load balancer default/web; members 10.1.0.1:8080, 10.1.0.2:8080",
        ];
        assert_eq!(calls.take(), expected);
        assert!(real.services().load_balancers().is_empty());
        assert!(real.calls().iter().all(|call| matches!(call, LoadBalancerCall::List(_))));
    }

    #[tokio::test]
    async fn only_differences_are_recorded() {
        let (real, calls, driver) = world();
        let made = real.ensure_load_balancer(&owner("web"), &spec()).await.unwrap();
        let http = real.ensure_listener(&made, &listener(HTTP, &[])).await.unwrap();
        real.set_members(&made, HTTP, &[member("10.1.0.1")]).await.unwrap();
        let before = real.services().load_balancers();
        let present = driver.load_balancers(Some(&owner("web"))).await.unwrap().remove(0).resource;

        assert_eq!(driver.ensure_load_balancer(&owner("web"), &spec()).await.unwrap(), present);
        let same = driver.ensure_listener(&present, &listener(HTTP, &["10.1.0.9"])).await.unwrap();
        assert_eq!(same, present.listeners[0]);
        assert_eq!(calls.take(), [""; 0]);

        let guarded = LoadBalancerSpec { security_groups: Some(vec!["g".into()]), ..spec() };
        let guarded = driver.ensure_load_balancer(&owner("web"), &guarded).await.unwrap();
        assert_eq!(guarded.security_groups, ["g".into()]);
        driver.set_members(&guarded, HTTP, &[member("10.1.0.9"), member("10.1.0.1")]).await.unwrap();
        driver.set_members(&guarded, HTTP, &[]).await.unwrap();
        driver.release_listener(&guarded, &http).await.unwrap();
        driver.release_load_balancer(&owner("web"), &made.id).await.unwrap();
        let id = made.id;
        let expected = [
            format!("default/web: change the security groups of a load balancer: load balancer {id}; security groups g"),
            "set the members of a pool: listener TCP:80; load balancer default/web; members 10.1.0.9:8080, 10.1.0.1:8080".into(),
            "set the members of a pool: listener TCP:80; load balancer default/web; members none".into(),
            "release a listener with its pool: listener TCP:80; load balancer default/web".into(),
            format!("default/web: release a load balancer: load balancer {id}"),
        ];
        assert_eq!(calls.take(), expected);
        assert_eq!(real.services().load_balancers(), before);
    }

    #[tokio::test]
    async fn the_missing_pool_of_a_listener_is_recorded() {
        let (_, calls, driver) = world();
        let mut half = driver.ensure_load_balancer(&owner("web"), &spec()).await.unwrap();
        let settings = ListenerSettings::default();
        half.listeners.push(Listener { id: "l".into(), at: DNS, settings, pool: None });
        calls.take();
        let whole = driver.ensure_listener(&half, &listener(DNS, &["10.1.0.1"])).await.unwrap();
        assert_eq!((whole.id.as_str(), whole.pool.is_some()), ("l", true));
        let expected = "create the pool of a listener: listener UDP:53; load balancer default/web; members 10.1.0.1:8080";
        assert_eq!(calls.take(), [expected]);
    }

    #[tokio::test]
    async fn changed_settings_are_recorded_and_the_pool_keeps_its_members() {
        let (real, calls, driver) = world();
        let plain = LoadBalancerSpec { listeners: vec![listener(HTTP, &["10.1.0.1"])], ..spec() };
        let present = real.ensure_load_balancer(&owner("web"), &plain).await.unwrap();
        let mut wanted = listener(HTTP, &["10.1.0.9"]);
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
        let changed = driver.ensure_listener(&present, &wanted).await.unwrap();
        assert!(wanted.is_made(&changed));
        assert_eq!(changed.pool.unwrap().members, present.listeners[0].pool.as_ref().unwrap().members);
        let expected = "change the settings of a listener and its pool: listener TCP:80; load balancer default/web; \
            settings client timeout 5000 ms, member timeout 6000 ms, only from 192.0.2.0/24, algorithm \
            LEAST_CONNECTIONS, session persistence 60 s, health check every 5 s";
        assert_eq!(calls.take(), [expected]);
    }

    #[tokio::test]
    async fn an_adoption_ends_the_plan() {
        let (_, calls, driver) = world();
        let adopting = LoadBalancerSpec { adopt: Some("theirs".into()), ..spec() };
        let error = driver.ensure_load_balancer(&owner("web"), &adopting).await.unwrap_err();
        assert!(!error.transient() && !error.ambiguous(), "{error}");
        let expected = "default/web: adopt an unmarked load balancer: load balancer theirs ...";
        assert_eq!(calls.take(), [expected]);
    }
}
