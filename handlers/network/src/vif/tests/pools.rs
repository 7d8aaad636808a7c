//! The handler with a warm pool.

use staffetta_driver::{
    BulkVifDriver, BulkVifRequest, DriverError, NodeInfo, PodVifDriver, ProjectId, Reason, SecurityGroupId,
    VifPoolKey,
};
use staffetta_handler::{AnyEvent, Change, GarbageCollector, Index, Kind};
use staffetta_memory::{BulkVifCall, MemoryBulkVifDriver};
use staffetta_pool::{VifPoolPolicy, WarmVifPool};

use super::*;

const POLICY: VifPoolPolicy = VifPoolPolicy { min: 1, max: 0, batch: 4, cool_down: Duration::from_secs(20) };

struct Pooled {
    world: World,
    stock: Arc<MemoryBulkVifDriver>,
    pool: Arc<WarmVifPool>,
}

impl Pooled {
    /// Creates a handler for this world whose indexes are complete.
    async fn take_over(world: World) -> Self {
        let shown = world.api.object();
        Self::take_over_with(world, shown).await
    }

    /// The same, if the watch shows this state of the pod.
    async fn take_over_with(mut world: World, shown: Arc<Pod>) -> Self {
        let stock = Arc::new(MemoryBulkVifDriver::new(Arc::clone(&world.network), "east".into()));
        let vifs = Arc::clone(&world.vifs) as Arc<dyn PodVifDriver>;
        let (bulk, published) = (Arc::clone(&stock) as _, Arc::new(VifAnnotations::new(world.api.client())));
        let pool = Arc::new(WarmVifPool::new(bulk, vifs, published, POLICY, Arc::new(|| true)));
        world.handler.drivers.pool = Arc::clone(&pool) as _;
        let drivers = world.handler.drivers.clone();
        world.handler = VifHandler::new(world.api.client(), drivers, Arc::default(), Recorder::silent());
        let pooled = Self { world, stock, pool };
        pooled.see_as(shown);
        pooled.world.handler.recover().await.unwrap();
        pooled
    }

    async fn new() -> Self {
        Self::take_over(world()).await
    }

    /// Applies the present pod to the index.
    fn see(&self) {
        self.see_as(self.world.api.object());
    }

    fn see_as(&self, pod: Arc<Pod>) {
        let shown = &self.world.handler.pool_feed;
        shown.apply(&Event::Modified(pod));
    }

    fn owner(&self) -> Owner {
        Owner::of(&self.world.api.object().metadata)
    }

    async fn event(&self) -> Result<(), VifError> {
        self.see();
        self.world.event().await
    }

    /// Requests a VIF for another pod and waits until the pool is filled.
    async fn warm(&self) {
        let network = &self.world.network;
        let request = VifRequest {
            owner: Owner { namespace: "default".into(), name: "other".into(), uid: "other".into() },
            node_name: "node-1".into(),
            host_ip: None,
            project: network.options().project.clone(),
            subnets: vec![network.subnet("10.10.0.0/16".parse().unwrap())],
            security_groups: vec!["default".into()],
        };
        self.world.handler.pool_feed.finish();
        self.pool.request_vif(&request).await.unwrap();
        pass(Duration::from_secs(5)).await;
    }
}

async fn pass(time: Duration) {
    tokio::time::advance(time).await;
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_warm_pool_takes_a_pod_to_its_active_vif_in_one_write_and_no_call() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    let (stock, vifs) = (pooled.stock.calls(), pooled.world.vifs.calls());
    pooled.event().await.unwrap();
    pooled.event().await.unwrap();
    assert!(pooled.world.shown().unwrap().default_vif.active);
    assert_eq!((pooled.stock.calls(), pooled.world.vifs.calls()), (stock, vifs));
    assert_eq!(pooled.world.patches().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_returns_its_vif_and_the_pool_does_not_count_it_as_used_again() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.event().await.unwrap();
    let vif = pooled.world.shown().unwrap().default_vif;
    let used = pooled.pool.metrics()().used;
    pooled.world.delete(0);
    let before = pooled.world.api.object();
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.text(), None, "whatever finalizer keeps the pod");
    // A late event is delivered.
    pooled.see_as(Arc::clone(&before));
    pooled.world.feed(Event::Modified(before)).await.unwrap();
    pooled.event().await.unwrap();
    pooled.world.deleted().await.unwrap();
    let figures = pooled.pool.metrics()();
    assert_eq!((figures.used, figures.cooling), (used - 1, 1));
    assert_eq!(pooled.pool.vifs(Some(&pooled.owner())).await.unwrap(), []);
    assert!(pooled.world.network.port(&vif.id).is_some(), "it is kept for the next pod");
}

/// Creates a finished pod that still publishes its VIF because the write was refused. Also returns
/// the number of VIFs that were in use before.
async fn over() -> (Pooled, usize) {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.event().await.unwrap();
    let used = pooled.pool.metrics()().used;
    pooled.world.phase("Succeeded");
    pooled.world.api.answer(Answer::Refuse(503, vec![]));
    assert!(pooled.event().await.unwrap_err().transient());
    assert!(pooled.world.text().is_some(), "it is still published");
    assert_eq!(pooled.pool.metrics()().used, used);
    (pooled, used)
}

impl Pooled {
    fn assert_given_back(&self, used: usize) {
        let figures = self.pool.metrics()();
        assert_eq!((figures.used, figures.cooling), (used - 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_vif_is_reused_only_after_the_previous_pod_has_unpublished_it() {
    let (pooled, used) = over().await;
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.text(), None);
    pooled.assert_given_back(used);
}

#[tokio::test(start_paused = true)]
async fn a_new_process_reuses_a_vif_only_after_the_previous_pod_has_unpublished_it() {
    let (pooled, _) = over().await;
    let ports = pooled.world.ports().len();
    let pooled = Pooled::take_over(pooled.world).await;
    let figures = pooled.pool.metrics();
    pooled.world.api.answer(Answer::Refuse(503, vec![]));
    assert!(pooled.event().await.unwrap_err().transient());
    pass(2 * POLICY.cool_down).await;
    assert_eq!((figures().used, figures().free), (1, ports - 1), "the others were never published");
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.text(), None);
    assert_eq!((figures().used, figures().cooling), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_without_our_finalizer_does_not_block_the_reuse_of_its_vif() {
    let (pooled, _) = over().await;
    pooled.world.api.change(|pod| pod["metadata"]["finalizers"] = json!([]));
    let pooled = Pooled::take_over(pooled.world).await;
    pooled.world.handler.pool_feed.finish();
    assert_eq!(pooled.pool.metrics()().used, 0);
}

#[tokio::test(start_paused = true)]
async fn a_vif_is_reused_when_the_previous_pod_is_deleted() {
    let (pooled, used) = over().await;
    pooled.world.deleted().await.unwrap();
    pooled.assert_given_back(used);
    let (pooled, used) = over().await;
    pooled.world.missed().await.unwrap();
    pooled.assert_given_back(used);
}

#[tokio::test(start_paused = true)]
async fn after_a_takeover_published_vifs_are_kept_and_unpublished_ones_are_free() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.event().await.unwrap();
    let (shown, ports) = (pooled.world.shown().unwrap().default_vif, pooled.world.ports());
    let pooled = Pooled::take_over(pooled.world).await;
    pooled.world.feed(Event::Added(pooled.world.api.object())).await.unwrap();
    let verified = pooled.world.handler.claims.verified(&UID.into());
    assert_eq!(verified, Some(vec![shown.id.clone()]), "without another event");
    pooled.world.handler.owners().await.unwrap();
    let figures = pooled.pool.metrics()();
    assert_eq!((figures.used, figures.cooling), (1, ports.len() - 1));
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.shown().unwrap().default_vif.id, shown.id);
    pooled.world.delete(0);
    pooled.event().await.unwrap();
    assert_eq!(pooled.pool.metrics()().cooling, ports.len(), "it was released to another process");
}

#[tokio::test(start_paused = true)]
async fn after_a_takeover_a_vif_is_kept_whose_publication_the_watch_does_not_show_yet() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    let before = pooled.world.api.object();
    pooled.event().await.unwrap();
    let ports = pooled.world.ports().len();
    let pooled = Pooled::take_over_with(pooled.world, before).await;
    pooled.world.handler.pool_feed.finish();
    pass(2 * POLICY.cool_down).await;
    let figures = pooled.pool.metrics();
    assert_eq!((figures().free, figures().cooling), (ports - 1, 1));
    pooled.see();
    assert_eq!((figures().used, figures().cooling), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_vif_of_a_missed_deletion_is_found_by_garbage_collection() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.event().await.unwrap();
    let owners = pooled.world.handler.owners().await.unwrap();
    assert!(owners.iter().any(|owner| owner.uid == UID), "{owners:?}");
    let used = pooled.pool.metrics()().used;
    pooled.world.missed().await.unwrap();
    assert_eq!(pooled.pool.metrics()().used, used - 1);
}

#[tokio::test(start_paused = true)]
async fn each_garbage_collection_tells_the_pool_which_vifs_were_deleted_outside() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    for port in pooled.world.network.ports() {
        pooled.world.network.remove_port(&port.vif.id);
    }
    pooled.world.handler.owners().await.unwrap();
    pass(Duration::ZERO).await;
    pooled.event().await.unwrap();
    let vif = pooled.world.shown().unwrap().default_vif;
    assert!(pooled.world.network.port(&vif.id).is_some(), "it exists");
}

#[tokio::test(start_paused = true)]
async fn only_a_pool_with_an_observer_is_fed_with_pods_and_nodes() {
    assert!(world().handler.registration().indexes.is_empty());
    let pooled = Pooled::new().await;
    pooled.warm().await;
    let pool = Arc::clone(&pooled.pool);
    let indexes = pooled.world.handler.registration().indexes;
    let kinds: Vec<_> = indexes.iter().map(|index| index.kind.name.to_string()).collect();
    assert_eq!(kinds, ["Pod", "Node"]);
    let node = Kind::of::<Node>();
    let reported = |change, name: &str| -> AnyEvent {
        let object = node.decode(json!({ "metadata": { "name": name, "uid": name } })).unwrap();
        let staffetta_handler::WatchItem::Object(object) = object else { panic!("it is a node") };
        AnyEvent::Object(change, object)
    };
    let apply = |event: &AnyEvent| indexes.iter().for_each(|index| (index.apply)(event).unwrap());
    apply(&reported(Change::Added, "other"));
    pass(Duration::from_secs(60)).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(pool.metrics()().free, 0, "node-1 is not there");
    pool.observer().unwrap().node_changed("node-1", Some(&NodeInfo::default()));
    assert!(pooled.stock.calls().iter().any(|call| matches!(call, BulkVifCall::DeleteVifs(_))));
}

/// Creates a process that finds two pods with the same VIF. The other pod is older than ours.
async fn shared() -> (Pooled, Owner, Vif) {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.world.event().await.unwrap();
    let vif = pooled.world.shown().unwrap().default_vif;
    let created = |time: &str| serde_json::from_value(json!(time)).unwrap();
    let mut older = Pod::clone(&pooled.world.api.object());
    older.metadata.name = Some("older".into());
    older.metadata.uid = Some("uid-older".into());
    older.metadata.creation_timestamp = created("2026-01-01T00:00:00Z");
    pooled.world.api.change(|pod| pod["metadata"]["creationTimestamp"] = json!("2026-01-02T00:00:00Z"));
    let pooled = Pooled::take_over(pooled.world).await;
    let owner = Owner::of(&older.metadata);
    pooled.see_as(Arc::new(older));
    pooled.world.handler.pool_feed.finish();
    (pooled, owner, vif)
}

async fn held(pooled: &Pooled, owner: &Owner) -> Vec<VifId> {
    let vifs = pooled.pool.vifs(Some(owner)).await.unwrap();
    vifs.into_iter().map(|marked| marked.resource.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_the_same_vif_as_another_gets_another_one_before_use() {
    let (pooled, other, vif) = shared().await;
    pass(POLICY.cool_down).await;
    pooled.event().await.unwrap();
    let own = pooled.world.shown().unwrap().default_vif;
    assert_ne!(own.id, vif.id);
    // An older event, then the event of the write.
    pooled.event().await.unwrap();
    pooled.event().await.unwrap();
    assert_eq!(held(&pooled, &pooled.owner()).await, std::slice::from_ref(&own.id));
    assert_eq!(held(&pooled, &other).await, [vif.id]);
    assert_eq!(pooled.world.shown().unwrap().default_vif.id, own.id);
}

#[tokio::test(start_paused = true)]
async fn two_pods_that_use_the_same_vif_are_reported() {
    let (pooled, other, vif) = shared().await;
    pooled.world.phase("Running");
    let error = pooled.event().await.unwrap_err();
    assert!(matches!(error, VifError::Shared) && !error.transient(), "{error}");
    assert_eq!(pooled.world.shown().unwrap().default_vif.id, vif.id, "it is kept");
    pooled.pool.release_vif(&other, &vif).await.unwrap();
    pooled.event().await.unwrap();
}

/// Creates a pool with a free VIF, and a pod without one. Also returns the free VIF.
async fn free() -> (Pooled, Vif) {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    let used = held(&pooled, &Owner { uid: "other".into(), ..Owner::default() }).await;
    let vifs = pooled.world.network.ports().into_iter().map(|port| port.vif);
    let free = vifs.into_iter().find(|vif| !used.contains(&vif.id)).unwrap();
    (pooled, Vif { active: true, ..free })
}

#[tokio::test(start_paused = true)]
async fn a_vif_of_the_pool_that_a_pod_of_another_node_names_is_replaced_or_reported() {
    for running in [false, true] {
        let (pooled, vif) = free().await;
        pooled.world.api.change(|pod| pod["spec"]["nodeName"] = json!("node-2"));
        pooled.world.annotate(&PodState::new(vif.clone()).write());
        if running {
            pooled.world.phase("Running");
            assert!(matches!(pooled.event().await, Err(VifError::Foreign(_))));
            assert_eq!(pooled.world.patches(), [json!(null); 0]);
            continue;
        }
        pooled.event().await.unwrap();
        let own = pooled.world.shown().unwrap().default_vif.id;
        assert_ne!(own, vif.id);
        assert!(matches!(pooled.event().await, Err(VifError::NotActive { .. })));
        assert_eq!(held(&pooled, &pooled.owner()).await, [own]);
    }
}

/// A driver that fails, as if a group did not exist yet.
struct NoGroups;

#[async_trait::async_trait]
impl PodSecurityGroupsDriver for NoGroups {
    async fn security_groups(&self, _: &Pod, _: &ProjectId) -> Result<Vec<SecurityGroupId>, DriverError> {
        Err(DriverError::new(Reason::Awaited, "choose security groups"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_another_leader_handed_out_to_the_pod_at_the_last_moment_is_kept() {
    let (mut pooled, vif) = free().await;
    // Security groups are chosen only for new VIFs.
    pooled.world.handler.drivers.security_groups = Arc::new(NoGroups);
    pooled.world.annotate(&PodState::new(vif.clone()).write());
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.shown().unwrap().default_vif.id, vif.id);
    assert_eq!(held(&pooled, &pooled.owner()).await, [vif.id]);
}

#[tokio::test(start_paused = true)]
async fn a_vif_of_the_pool_of_another_controller_is_found_by_a_new_list_and_kept() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    // The pod gets it from the pool of another controller.
    let request =
        pooled.world.handler.placed_request(&pooled.world.api.object(), &pooled.owner()).await.unwrap();
    let order = BulkVifRequest {
        key: VifPoolKey::new("node-1", &request),
        subnets: request.subnets,
        security_groups: vec![],
        count: 1,
    };
    let vif = Vif { active: true, ..pooled.stock.create_vifs(&order).await.vifs.remove(0) };
    pooled.world.annotate(&PodState::new(vif.clone()).write());
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.shown().unwrap().default_vif.id, vif.id);

    // All VIFs were listed a moment ago, and are listed again half a minute later.
    let unknown = Vif { id: "nobody-knows-it".into(), ..vif };
    pooled.world.annotate(&PodState::new(unknown.clone()).write());
    let waits = pooled.event().await.unwrap_err();
    assert!(matches!(waits, VifError::Unknown { .. }), "{waits:?}");
    pass(waits.retry_after().unwrap()).await;
    pooled.event().await.unwrap();
    assert_ne!(pooled.world.shown().unwrap().default_vif.id, unknown.id, "nobody's VIF is replaced");
}

#[tokio::test(start_paused = true)]
async fn the_vlan_of_another_pod_in_the_annotation_of_a_pooled_vif_is_not_accepted() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.event().await.unwrap();
    pooled.world.phase("Running");
    pooled.event().await.unwrap();
    let vif = pooled.world.shown().unwrap().default_vif;
    let class = VifClass::VlanNested { vif_name: "tap".into(), vlan_id: 7 };
    pooled.world.annotate(&PodState::new(Vif { class, ..vif }).write());
    assert!(matches!(pooled.event().await, Err(VifError::Shared)));
}

#[tokio::test(start_paused = true)]
async fn the_existing_vifs_are_listed_once_at_the_start_and_once_by_each_garbage_collection() {
    let pooled = Pooled::new().await;
    let lists = || {
        let of_pool = pooled.stock.calls().into_iter().filter(|call| *call == BulkVifCall::ListVifs).count();
        let of_driver = pooled.world.vifs.calls().into_iter();
        (of_pool, of_driver.filter(|call| *call == VifCall::List(None)).count())
    };
    assert_eq!(lists(), (1, 0));
    pooled.warm().await;
    pooled.event().await.unwrap();
    let before = lists().0;
    let owners = pooled.world.handler.owners().await.unwrap();
    assert_eq!(lists(), (before + 1, 0));
    let uid = pooled.owner().uid;
    assert!(owners.iter().any(|owner| owner.uid == uid.as_str()), "a pod that uses a pooled VIF: {owners:?}");
}
