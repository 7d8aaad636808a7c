//! The driver `memory` of load balancers.

use async_trait::async_trait;
use tokio::time::Instant;

use super::{MemoryDriver, MemoryServices};
use staffetta_driver::{
    DriverError, ListenerChange, ListenerDriver, LoadBalancer, LoadBalancerDriver, LoadBalancerId,
    LoadBalancerProgress, LoadBalancerSpec, Owned, Owner, Uid,
};

/// The driver `memory` of load balancers, for one cluster on [`MemoryServices`].
///
/// After each change, a load balancer accepts no other change for a while, as in Octavia, where it is PENDING.
pub type MemoryLoadBalancerDriver = MemoryDriver<MemoryServices, LoadBalancerMethod, LoadBalancerCall>;

/// A method of a load balancer driver, for planned faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadBalancerMethod {
    /// The method [`LoadBalancerDriver::load_balancers`].
    List,
    /// The method [`LoadBalancerDriver::ensure_load_balancer`].
    Ensure,
    /// The method [`LoadBalancerDriver::progress`].
    Progress,
    /// The method [`LoadBalancerDriver::release_load_balancer`].
    Release,
    /// The method [`ListenerDriver::change_listener`] with [`ListenerChange::Ensure`].
    EnsureListener,
    /// The method [`ListenerDriver::change_listener`] with [`ListenerChange::Release`].
    ReleaseListener,
    /// The method [`ListenerDriver::change_listener`] with [`ListenerChange::SetMembers`].
    SetMembers,
}

/// A logged call of a load balancer driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadBalancerCall {
    /// A call to list the load balancers of this owner, or of all owners (`None`).
    List(Option<Uid>),
    /// A call to create or find the load balancer of this owner.
    Ensure(Uid),
    /// A call to read the progress of the last change of this load balancer.
    Progress(LoadBalancerId),
    /// A call to release this load balancer of this owner.
    Release(Uid, LoadBalancerId),
    /// A call to make this change of a listener of this load balancer.
    ChangeListener(LoadBalancerId, ListenerChange),
}

impl From<&LoadBalancerCall> for LoadBalancerMethod {
    fn from(call: &LoadBalancerCall) -> Self {
        match call {
            LoadBalancerCall::List(_) => Self::List,
            LoadBalancerCall::Ensure(_) => Self::Ensure,
            LoadBalancerCall::Progress(_) => Self::Progress,
            LoadBalancerCall::Release(..) => Self::Release,
            LoadBalancerCall::ChangeListener(_, ListenerChange::SetMembers(..)) => Self::SetMembers,
            LoadBalancerCall::ChangeListener(_, ListenerChange::Release(_)) => Self::ReleaseListener,
            LoadBalancerCall::ChangeListener(_, ListenerChange::Ensure(_)) => Self::EnsureListener,
        }
    }
}

#[async_trait]
impl LoadBalancerDriver for MemoryLoadBalancerDriver {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError> {
        let work = || {
            let (state, now) = (self.world.state(), Instant::now());
            let marked = state
                .load_balancers
                .by_id
                .values()
                .filter(|balancer| balancer.mark.is_of(&self.cluster, owner));
            Ok(marked
                .map(|found| Owned { owner: found.mark.owner.clone(), resource: found.at(now) })
                .collect())
        };
        let call = LoadBalancerCall::List(owner.map(|owner| owner.uid.clone()));
        self.calls.call(call, work).await
    }

    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        let work = || self.world.state().load_balancers.ensure(&self.cluster, owner, spec, Instant::now());
        self.calls.call(LoadBalancerCall::Ensure(owner.uid.clone()), work).await
    }

    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError> {
        let id = &load_balancer.id;
        let work = || self.world.state().load_balancers.progress(id, Instant::now());
        self.calls.call(LoadBalancerCall::Progress(id.clone()), work).await
    }

    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        let work = || {
            let mut state = self.world.state();
            if state.load_balancers.removable(&self.cluster, owner, id, Instant::now())? {
                state.remove_load_balancer(id);
            }
            Ok(())
        };
        let call = LoadBalancerCall::Release(owner.uid.clone(), id.clone());
        self.calls.call(call, work).await
    }
}

#[async_trait]
impl ListenerDriver for MemoryLoadBalancerDriver {
    async fn change_listener(
        &self,
        load_balancer: &LoadBalancer,
        change: &ListenerChange,
    ) -> Result<LoadBalancer, DriverError> {
        let id = &load_balancer.id;
        let call = LoadBalancerCall::ChangeListener(id.clone(), change.clone());
        let work = || self.world.state().load_balancers.change_listener(id, change, Instant::now());
        self.calls.call(call, work).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use super::*;
    use crate::MemoryOptions;
    use staffetta_driver::{
        HealthMonitor, Listener, ListenerPort, ListenerSettings, ListenerSpec, Member, MemberSpec,
        PoolSettings, PoolSpec, Protocol, ProvisioningStatus, Reason, SessionPersistence,
    };

    const HTTP: ListenerPort = ListenerPort { protocol: Protocol::Tcp, port: 80 };
    const DELAY: Duration = Duration::from_millis(200);

    fn driver(options: MemoryOptions) -> MemoryLoadBalancerDriver {
        MemoryLoadBalancerDriver::new(Arc::new(MemoryServices::new(options)), "c1".into())
    }

    fn owner(name: &str) -> Owner {
        Owner { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
    }

    fn spec(vip: &str) -> LoadBalancerSpec {
        LoadBalancerSpec {
            name: "default/web".into(),
            project: "p".into(),
            subnet: "services".into(),
            vip: vip.parse().unwrap(),
            provider: None,
            security_groups: None,
            listeners: Vec::new(),
            adopt: None,
        }
    }

    fn http() -> ListenerSpec {
        ListenerSpec { at: HTTP, settings: ListenerSettings::default(), pool: PoolSpec::default() }
    }

    fn member(ip: &str, name: &str) -> MemberSpec {
        MemberSpec { ip: ip.parse().unwrap(), port: 8080, name: name.into(), subnet: "services".into() }
    }

    /// Changes of listeners, each of which returns the part of the load balancer that it concerns.
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

    async fn wait_while_pending() {
        tokio::time::advance(DELAY).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_balancer_takes_no_change_until_the_last_one_is_done() {
        let driver = driver(MemoryOptions::default());
        let made = driver.ensure_load_balancer(&owner("web"), &spec("10.0.0.1")).await.unwrap();
        assert_eq!(made.status, ProvisioningStatus::Pending);
        let busy = driver.ensure_listener(&made, &http()).await.unwrap_err();
        assert_eq!((busy.reason(), busy.retry_after()), (Reason::Conflict, Some(DELAY)));
        assert!(driver.release_load_balancer(&owner("web"), &made.id).await.unwrap_err().transient());
        wait_while_pending().await;
        driver.ensure_listener(&made, &http()).await.unwrap();
        assert!(driver.ensure_listener(&made, &http()).await.is_err());
        wait_while_pending().await;
        let listener = driver.ensure_listener(&made, &http()).await.unwrap();
        assert!(
            driver.release_listener(&made, &listener).await.is_ok_and(|left| left.is_none()),
            "a call that changed nothing costs no time"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_balancer_is_made_with_its_whole_tree_by_one_call() {
        let driver = driver(MemoryOptions::default());
        let pool = PoolSpec {
            settings: PoolSettings {
                persistence: Some(SessionPersistence { timeout_s: Some(60) }),
                monitor: Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 }),
                ..PoolSettings::default()
            },
            members: vec![member("10.1.0.1", "a"), member("10.1.0.2", "b")],
        };
        let settings = ListenerSettings { client_timeout_ms: Some(1000), ..ListenerSettings::default() };
        let listener = ListenerSpec { at: HTTP, settings, pool };
        let whole = LoadBalancerSpec { listeners: vec![listener.clone()], ..spec("10.0.0.1") };
        let made = driver.ensure_load_balancer(&owner("web"), &whole).await.unwrap();
        let kept = made.listener(HTTP).unwrap();
        let stands = kept.pool.as_ref().unwrap();
        assert_eq!((&kept.settings, &stands.settings), (&listener.settings, &listener.pool.settings));
        let members: Vec<_> = stands.members.iter().map(|member| &member.spec).collect();
        assert_eq!(members, listener.pool.members.iter().collect::<Vec<_>>());
        assert_eq!(
            driver.progress(&made).await.unwrap(),
            LoadBalancerProgress::Pending { poll_after: DELAY }
        );
        wait_while_pending().await;
        assert_eq!(driver.progress(&made).await.unwrap(), LoadBalancerProgress::Active);
    }

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_stands_gets_new_settings_and_keeps_its_members() {
        let driver = driver(MemoryOptions::default());
        let made = driver.ensure_load_balancer(&owner("web"), &spec("10.0.0.1")).await.unwrap();
        wait_while_pending().await;
        let first = driver.ensure_listener(&made, &http()).await.unwrap();
        wait_while_pending().await;
        let pool = first.pool.unwrap();
        let members = driver.set_members(&made, HTTP, &[member("10.1.0.1", "a")]).await.unwrap();
        wait_while_pending().await;
        let settings = ListenerSettings { member_timeout_ms: Some(1), ..ListenerSettings::default() };
        let changed = driver.ensure_listener(&made, &ListenerSpec { settings, ..http() }).await.unwrap();
        assert_eq!((changed.id, changed.settings.member_timeout_ms), (first.id, Some(1)));
        assert_eq!(changed.pool, Some(staffetta_driver::Pool { members, ..pool }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_protocol_that_nobody_serves_is_refused_by_itself() {
        let driver = driver(MemoryOptions::default());
        driver.services().disable_protocol(Protocol::Sctp);
        let sctp = ListenerSpec { at: ListenerPort { protocol: Protocol::Sctp, ..HTTP }, ..http() };
        let whole = LoadBalancerSpec { listeners: vec![http(), sctp.clone()], ..spec("10.0.0.1") };
        let made = driver.ensure_load_balancer(&owner("web"), &whole).await.unwrap();
        assert_eq!(made.listeners, []);
        wait_while_pending().await;
        assert_eq!(driver.ensure_listener(&made, &sctp).await.unwrap_err().reason(), Reason::Unsupported);
        driver.ensure_listener(&made, &http()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_balancer_may_break_while_it_is_made() {
        let driver = driver(MemoryOptions::default());
        driver.services().fail_next_load_balancers(1);
        let made = driver.ensure_load_balancer(&owner("web"), &spec("10.0.0.1")).await.unwrap();
        assert!(matches!(driver.progress(&made).await.unwrap(), LoadBalancerProgress::Pending { .. }));
        wait_while_pending().await;
        assert_eq!(driver.progress(&made).await.unwrap(), LoadBalancerProgress::Error);
        driver.release_load_balancer(&owner("web"), &made.id).await.unwrap();
        assert_eq!(driver.progress(&made).await.unwrap_err().reason(), Reason::NotFound);
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_owner_gets_the_same_load_balancer_and_nobody_else_may_release_it() {
        let driver = driver(MemoryOptions::default());
        let made = driver.ensure_load_balancer(&owner("web"), &spec("10.0.0.1")).await.unwrap();
        wait_while_pending().await;
        let again = driver.ensure_load_balancer(&owner("web"), &spec("10.0.0.1")).await.unwrap();
        assert_eq!((again.id, again.status), (made.id.clone(), ProvisioningStatus::Active));

        let stranger = MemoryLoadBalancerDriver::new(Arc::clone(driver.services()), "c2".into());
        stranger.release_load_balancer(&owner("web"), &made.id).await.unwrap();
        driver.release_load_balancer(&owner("other"), &made.id).await.unwrap();
        assert_eq!(driver.load_balancers(Some(&owner("web"))).await.unwrap().len(), 1);
        assert_eq!(stranger.load_balancers(None).await.unwrap(), []);

        driver.release_load_balancer(&owner("web"), &made.id).await.unwrap();
        driver.release_load_balancer(&owner("web"), &made.id).await.unwrap();
        assert_eq!(driver.load_balancers(None).await.unwrap(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn quota_subnet_and_addresses_in_use_are_respected() {
        let options = MemoryOptions {
            load_balancer_quota: Some(1),
            service_subnet: Some("10.0.0.0/24".parse().unwrap()),
            ..MemoryOptions::default()
        };
        let driver = driver(options);
        let outside = driver.ensure_load_balancer(&owner("a"), &spec("10.0.1.1")).await.unwrap_err();
        assert_eq!(outside.reason(), Reason::Refused);
        driver.ensure_load_balancer(&owner("a"), &spec("10.0.0.1")).await.unwrap();
        let over = driver.ensure_load_balancer(&owner("b"), &spec("10.0.0.2")).await.unwrap_err();
        assert_eq!(over.reason(), Reason::Quota);
        driver.services().set_load_balancer_quota(None);
        let taken = driver.ensure_load_balancer(&owner("b"), &spec("10.0.0.1")).await.unwrap_err();
        assert_eq!(taken.reason(), Reason::Conflict);
        driver.ensure_load_balancer(&owner("b"), &spec("10.0.0.2")).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_load_balancer_takes_no_change_and_can_be_released() {
        let driver = driver(MemoryOptions::default());
        let made = driver.ensure_load_balancer(&owner("web"), &spec("10.0.0.1")).await.unwrap();
        driver.services().break_load_balancer(&made.id);
        assert_eq!(driver.ensure_listener(&made, &http()).await.unwrap_err().reason(), Reason::Refused);
        assert_eq!(driver.load_balancers(None).await.unwrap()[0].resource.status, ProvisioningStatus::Error);
        driver.release_load_balancer(&owner("web"), &made.id).await.unwrap();
        assert_eq!(driver.ensure_listener(&made, &http()).await.unwrap_err().reason(), Reason::NotFound);
    }

    #[tokio::test(start_paused = true)]
    async fn members_are_set_as_a_whole_and_those_that_stay_keep_their_ids() {
        let driver = driver(MemoryOptions::default());
        let made = driver.ensure_load_balancer(&owner("web"), &spec("10.0.0.1")).await.unwrap();
        wait_while_pending().await;
        driver.ensure_listener(&made, &http()).await.unwrap();
        wait_while_pending().await;
        let first = driver
            .set_members(&made, HTTP, &[member("10.1.0.1", "a"), member("10.1.0.2", "b")])
            .await
            .unwrap();
        wait_while_pending().await;
        let second = driver
            .set_members(&made, HTTP, &[member("10.1.0.2", "c"), member("10.1.0.3", "d")])
            .await
            .unwrap();
        assert_eq!(second[0], Member { id: first[1].id.clone(), spec: member("10.1.0.2", "c") });
        assert!(first.iter().all(|member| member.id != second[1].id));
        let tree = driver.load_balancers(Some(&owner("web"))).await.unwrap().remove(0).resource;
        assert_eq!(tree.listener(HTTP).unwrap().pool.as_ref().unwrap().members, second);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_predecessor_made_is_adopted_and_not_made_again() {
        let driver = driver(MemoryOptions::default());
        let made = driver.ensure_load_balancer(&owner("web"), &spec("10.0.0.1")).await.unwrap();
        driver.services().remove_load_balancer(&made.id);
        driver.services().insert_load_balancer(made.clone());
        driver.release_load_balancer(&owner("web"), &made.id).await.unwrap();
        assert_eq!(driver.services().load_balancers().len(), 1, "what bears no mark is left alone");
        let adopting = LoadBalancerSpec { adopt: Some(made.id.clone()), ..spec("10.0.0.1") };
        let adopted = driver.ensure_load_balancer(&owner("web"), &adopting).await.unwrap();
        assert_eq!(adopted.id, made.id);
        driver.services().insert_load_balancer(LoadBalancer { id: "0".into(), ..made.clone() });
        let adopting = LoadBalancerSpec { adopt: Some("0".into()), ..adopting };
        let kept = driver.ensure_load_balancer(&owner("web"), &adopting).await.unwrap();
        assert_eq!(kept.id, made.id, "it has one already");
        assert_eq!(driver.load_balancers(Some(&owner("web"))).await.unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn new_security_groups_reach_a_load_balancer_that_is_there() {
        let driver = driver(MemoryOptions::default());
        driver.ensure_load_balancer(&owner("web"), &spec("10.0.0.1")).await.unwrap();
        let guarded = LoadBalancerSpec { security_groups: Some(vec!["g".into()]), ..spec("10.0.0.1") };
        assert!(driver.ensure_load_balancer(&owner("web"), &guarded).await.unwrap_err().transient());
        wait_while_pending().await;
        let changed = driver.ensure_load_balancer(&owner("web"), &guarded).await.unwrap();
        assert_eq!(
            (changed.security_groups, changed.status),
            (vec!["g".into()], ProvisioningStatus::Pending)
        );
    }
}
