//! Connection settings of services.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;
use staffetta_driver::{
    DriverError, ListenerDriver, ListenerSettings, LoadBalancerDriver, LoadBalancerId, LoadBalancerProgress,
    NamespaceObserver, NormalizedSpec, Owned, SessionPersistence,
};

use super::*;

#[tokio::test]
async fn time_outs_and_affinity_are_set_from_the_start() {
    let world = world();
    world.api.annotate(CLIENT_TIMEOUT_ANNOTATION, "60000");
    world.api.change(|service| service["spec"]["sessionAffinity"] = json!("ClientIP"));
    world.event().await.unwrap();
    assert_eq!(world.calls(), ["ensure"]);
    let listener = world.tree().listeners.remove(0);
    assert_eq!(listener.settings.client_timeout_ms, Some(60_000));
    let persistence = listener.pool.unwrap().settings.persistence;
    assert_eq!(persistence, Some(SessionPersistence { timeout_s: Some(10_800) }));
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()), "and they are published");
    world.event().await.unwrap();
    assert_eq!((world.calls().len(), world.api.patches().len()), (1, 1));
}

#[tokio::test]
async fn a_change_of_the_settings_changes_the_listener_and_keeps_its_members() {
    let world = balanced(&spec()).await;
    let before = world.tree().listeners.remove(0);
    world.api.annotate(MEMBER_TIMEOUT_ANNOTATION, "5000");
    world.event().await.unwrap();
    assert_eq!(world.calls()[1..], ["ensure listener"]);
    let after = world.tree().listeners.remove(0);
    assert_eq!((&after.id, after.settings.member_timeout_ms), (&before.id, Some(5000)));
    assert_eq!(after.pool, before.pool);
    world.api.annotate(MEMBER_TIMEOUT_ANNOTATION, "0");
    world.event().await.unwrap();
    assert_eq!(world.tree().listeners.remove(0), before, "0 leaves it to the other side");
}

#[tokio::test]
async fn source_ranges_restrict_the_load_balancer_of_a_public_service() {
    let world = balanced(&public()).await;
    let allowed = || {
        let cidrs = world.tree().listeners[0].settings.allowed_cidrs.clone();
        cidrs.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let ranges = |ranges: serde_json::Value| {
        world.api.change(|service| service["spec"]["loadBalancerSourceRanges"] = ranges.clone());
    };
    ranges(json!(["192.0.2.0/24"]));
    world.event().await.unwrap();
    assert_eq!(allowed(), ["192.0.2.0/24"]);
    ranges(json!(["198.51.100.0/24", "nonsense"]));
    let error = world.event().await.unwrap_err();
    assert!(error.to_string().contains("spec.loadBalancerSourceRanges is `nonsense`"), "{error}");
    assert_eq!(allowed(), ["192.0.2.0/24"], "an invalid range opens nothing");
    ranges(json!([]));
    world.event().await.unwrap();
    assert_eq!(allowed(), [""; 0]);
}

#[tokio::test]
async fn a_state_of_another_program_without_settings_gets_them_again() {
    let world = balanced(&spec()).await;
    world.api.annotate(MEMBER_TIMEOUT_ANNOTATION, "5000");
    world.event().await.unwrap();
    world.event().await.unwrap();
    let mut stripped = world.shown().unwrap();
    stripped.load_balancer.as_mut().unwrap().listeners[0].settings = ListenerSettings::default();
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&stripped));
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    assert_eq!(world.tree().listeners[0].settings.member_timeout_ms, Some(5000));
}

/// A driver without affinity and timeouts that chooses the subnet of members itself.
struct Simple {
    inner: Arc<MemoryLoadBalancerDriver>,
    learned: Arc<Learned>,
}

/// The names of the observed namespaces.
#[derive(Default)]
struct Learned(Mutex<Vec<String>>);

impl NamespaceObserver for Learned {
    fn present(&self, namespace: &Namespace) {
        self.0.lock().push(namespace.metadata.name.clone().unwrap());
    }

    fn gone(&self, _: &str, _: &Uid) {}
}

#[async_trait]
impl LoadBalancerDriver for Simple {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError> {
        self.inner.load_balancers(owner).await
    }
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        Some(Arc::clone(&self.learned) as _)
    }
    async fn normalize(&self, mut spec: LoadBalancerSpec) -> Result<NormalizedSpec, DriverError> {
        let mut without = Vec::new();
        for listener in &mut spec.listeners {
            if listener.pool.settings.persistence.take().is_some() {
                without.push(format!("session persistence of {}", listener.at));
            }
            listener.settings.client_timeout_ms = Some(50_000);
            listener.pool.members.iter_mut().for_each(|member| member.subnet = "pods".into());
        }
        Ok(NormalizedSpec { spec, without })
    }
    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        self.inner.ensure_load_balancer(owner, spec).await
    }
    async fn progress(&self, tree: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError> {
        self.inner.progress(tree).await
    }
    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        self.inner.release_load_balancer(owner, id).await
    }
}

#[async_trait]
impl ListenerDriver for Simple {
    async fn change_listener(
        &self,
        tree: &LoadBalancer,
        change: &ListenerChange,
    ) -> Result<LoadBalancer, DriverError> {
        self.inner.change_listener(tree, change).await
    }
}

#[tokio::test]
async fn unsupported_settings_are_left_out_and_reported_once_and_the_choice_of_the_driver_is_kept() {
    let mut world = world();
    let load_balancer = Arc::new(Simple { inner: Arc::clone(&world.balancers), learned: Arc::default() });
    world.replace(LbDrivers { load_balancer, ..world.drivers() }, true);
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world.api.change(|service| service["spec"]["sessionAffinity"] = json!("ClientIP"));
    world.event().await.unwrap();
    let error = world.recorded.taken();
    assert_eq!((error.len(), error[0].reason, error[0].warning), (1, "LoadBalancerLacks", true));
    assert!(error[0].text.contains("does not support session persistence of TCP:80"), "{}", error[0].text);
    let listener = world.tree().listeners.remove(0);
    assert_eq!(listener.settings.client_timeout_ms, Some(50_000));
    assert_eq!(listener.pool.unwrap().members[0].spec.subnet.as_str(), "pods");
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!((world.recorded.taken().len(), world.calls()), (0, vec!["ensure"]));
    world.api.change(|service| service["spec"]["sessionAffinity"] = json!("None"));
    world.event().await.unwrap();
    world.api.change(|service| service["spec"]["sessionAffinity"] = json!("ClientIP"));
    world.event().await.unwrap();
    assert_eq!(world.recorded.reasons(), ["LoadBalancerLacks"], "the setting was requested again");
}

#[tokio::test]
async fn a_driver_that_observes_namespaces_is_fed() {
    let (mut world, learned) = (world(), Arc::new(Learned::default()));
    let load_balancer = Simple { inner: Arc::clone(&world.balancers), learned: Arc::clone(&learned) };
    world.replace(LbDrivers { load_balancer: Arc::new(load_balancer), ..world.drivers() }, true);
    let namespace = json!({ "metadata": { "name": "shop", "uid": "u" } });
    world.index(&Event::<Namespace>::Added(Arc::new(serde_json::from_value(namespace).unwrap())).erase());
    assert_eq!(*learned.0.lock(), ["shop"]);
}
