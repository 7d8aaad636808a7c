//! The handler on a pool that keeps VIFs ready.

use staffetta_driver::memory::{MemoryVifStock, StockCall};
use staffetta_driver::{NodeFacts, PoolPolicy, PooledVifs};
use staffetta_handler::{AnyEvent, Change, Index, Kind, Sweep};

use super::*;

const POLICY: PoolPolicy = PoolPolicy { min: 1, max: 0, batch: 4, cool_down: Duration::from_secs(20) };

struct Pooled {
    world: World,
    stock: Arc<MemoryVifStock>,
    pool: Arc<PooledVifs>,
}

impl Pooled {
    /// A handler that took over in this world; its indexes have seen all.
    async fn take_over(mut world: World) -> Self {
        let stock = Arc::new(MemoryVifStock::new(Arc::clone(&world.network), "east".into()));
        let vifs = Arc::clone(&world.vifs) as Arc<dyn staffetta_driver::PodVifDriver>;
        let pool = Arc::new(PooledVifs::new(Arc::clone(&stock) as _, vifs, POLICY, Arc::new(|| true)));
        world.handler.drivers.pool = Arc::clone(&pool) as _;
        let drivers = world.handler.drivers.clone();
        world.handler = VifHandler::new(world.api.client(), drivers);
        let pooled = Self { world, stock, pool };
        pooled.see();
        pooled.world.handler.recover().await.unwrap();
        pooled
    }

    async fn new() -> Self {
        Self::take_over(world()).await
    }

    /// The index sees the pod as it is.
    fn see(&self) {
        self.see_as(self.world.api.object());
    }

    fn see_as(&self, pod: Arc<Pod>) {
        let VifHandler { drivers, begun, .. } = &self.world.handler;
        let shown = ShownVifs { pool: Arc::clone(&drivers.pool), begun: Arc::clone(begun) };
        shown.apply(&Event::Modified(pod));
    }

    fn owner(&self) -> Owner {
        Owner::of(&self.world.api.object().metadata)
    }

    async fn event(&self) -> Result<(), VifError> {
        self.see();
        self.world.event().await
    }

    /// Another pod asks, and waits until what is made for it is active.
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
        self.world.handler.begin();
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
async fn a_pod_that_is_over_gives_its_vif_back_and_the_pool_does_not_take_it_for_its_own_again() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.event().await.unwrap();
    let vif = pooled.world.shown().unwrap().default_vif;
    let used = pooled.pool.figures()().used;
    pooled.world.delete(0);
    let before = pooled.world.api.object();
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.text(), None, "whose finalizer ever keeps the pod");
    // What others see late is delivered late.
    pooled.see_as(Arc::clone(&before));
    pooled.world.feed(Event::Modified(before)).await.unwrap();
    pooled.event().await.unwrap();
    pooled.world.deleted().await.unwrap();
    let figures = pooled.pool.figures()();
    assert_eq!((figures.used, figures.cooling), (used - 1, 1));
    assert_eq!(pooled.pool.vifs(Some(&pooled.owner())).await.unwrap(), []);
    assert!(pooled.world.network.port(&vif.id).is_some(), "it is kept for the next one, as it came back");
}

/// A pod that is over and still shows its VIF, for the write that says so was refused, and how many VIFs were in use before.
async fn over() -> (Pooled, usize) {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.event().await.unwrap();
    let used = pooled.pool.figures()().used;
    pooled.world.phase("Succeeded");
    pooled.world.api.answer(Answer::Refuse(503, vec![]));
    assert!(pooled.event().await.unwrap_err().transient());
    assert!(pooled.world.text().is_some(), "it still shows it");
    assert_eq!(pooled.pool.figures()().used, used);
    (pooled, used)
}

impl Pooled {
    fn assert_given_back(&self, used: usize) {
        let figures = self.pool.figures()();
        assert_eq!((figures.used, figures.cooling), (used - 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_vif_is_for_the_next_pod_after_the_last_one_has_ceased_to_show_it() {
    let (pooled, used) = over().await;
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.text(), None);
    pooled.assert_given_back(used);
}

#[tokio::test(start_paused = true)]
async fn another_process_gives_a_vif_to_no_pod_either_before_the_last_one_has_ceased_to_show_it() {
    let (pooled, _) = over().await;
    let ports = pooled.world.ports().len();
    let pooled = Pooled::take_over(pooled.world).await;
    let figures = pooled.pool.figures();
    pooled.world.api.answer(Answer::Refuse(503, vec![]));
    assert!(pooled.event().await.unwrap_err().transient());
    pass(2 * POLICY.cool_down).await;
    assert_eq!((figures().used, figures().free), (1, ports - 1), "the others were never written down");
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.text(), None);
    assert_eq!((figures().used, figures().cooling), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_over_and_that_nobody_has_to_release_keeps_no_vif_from_the_next_one() {
    let (pooled, _) = over().await;
    pooled.world.api.change(|pod| pod["metadata"]["finalizers"] = json!([]));
    let pooled = Pooled::take_over(pooled.world).await;
    pooled.world.handler.begin();
    assert_eq!(pooled.pool.figures()().used, 0);
}

#[tokio::test(start_paused = true)]
async fn a_vif_is_for_the_next_pod_when_the_last_one_is_gone() {
    let (pooled, used) = over().await;
    pooled.world.deleted().await.unwrap();
    pooled.assert_given_back(used);
    let (pooled, used) = over().await;
    pooled.world.missed().await.unwrap();
    pooled.assert_given_back(used);
}

#[tokio::test(start_paused = true)]
async fn after_a_take_over_a_pod_keeps_its_vif_and_one_that_was_never_written_down_is_free() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.event().await.unwrap();
    let (shown, ports) = (pooled.world.shown().unwrap().default_vif, pooled.world.ports());
    let pooled = Pooled::take_over(pooled.world).await;
    assert!(!pooled.world.handler.wants(&Event::Added(pooled.world.api.object())), "nothing is to be done");
    pooled.world.handler.owners().await.unwrap();
    let figures = pooled.pool.figures()();
    assert_eq!((figures.used, figures.cooling), (1, ports.len() - 1));
    pooled.event().await.unwrap();
    assert_eq!(pooled.world.shown().unwrap().default_vif.id, shown.id);
    pooled.world.delete(0);
    pooled.event().await.unwrap();
    assert_eq!(
        pooled.pool.figures()().cooling,
        ports.len(),
        "it came back as it went, to another process even"
    );
}

#[tokio::test(start_paused = true)]
async fn whose_pod_went_unseen_is_found_by_the_sweep() {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.event().await.unwrap();
    let owners = pooled.world.handler.owners().await.unwrap();
    assert!(owners.iter().any(|owner| owner.uid == UID), "{owners:?}");
    let used = pooled.pool.figures()().used;
    pooled.world.missed().await.unwrap();
    assert_eq!(pooled.pool.figures()().used, used - 1);
}

#[tokio::test(start_paused = true)]
async fn with_each_sweep_a_pool_learns_what_was_deleted_outside() {
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
async fn only_a_pool_that_keeps_something_is_told_of_pods_and_nodes() {
    let kinds = |handler: VifHandler| {
        let (_, indexes, _) = handler.registration().erase().into_parts();
        indexes.iter().map(|index| index.kind.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(world().handler), [""; 0]);
    let pooled = Pooled::new().await;
    pooled.warm().await;
    let pool = Arc::clone(&pooled.pool);
    let (_, indexes, _) = pooled.world.handler.registration().erase().into_parts();
    let node = Kind::of::<Node>();
    let told = |change, name: &str| -> AnyEvent {
        let object = node.decode(json!({ "metadata": { "name": name, "uid": name } })).unwrap();
        let staffetta_handler::Sighting::Object(object) = object else { panic!("it is a node") };
        node.event(change, object).unwrap()
    };
    let apply = |event: &AnyEvent| indexes.iter().for_each(|index| (index.apply)(event));
    apply(&told(Change::Added, "other"));
    pass(Duration::from_secs(60)).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!(pool.figures()().free, 0, "node-1 is not there");
    pool.ledger().unwrap().node("node-1", Some(&NodeFacts::default()));
    assert!(pooled.stock.calls().iter().any(|call| matches!(call, StockCall::Destroy(_))));
}

/// A pod shows a VIF that another controller gave to another pod, which showed it first.
async fn shared() -> (Pooled, Owner, Vif) {
    let pooled = Pooled::new().await;
    pooled.warm().await;
    pooled.world.event().await.unwrap();
    let vif = pooled.world.shown().unwrap().default_vif;
    let other = Owner { namespace: "default".into(), name: "first".into(), uid: "uid-first".into() };
    pooled.pool.ledger().unwrap().shows(&other, std::slice::from_ref(&vif));
    (pooled, other, vif)
}

#[tokio::test(start_paused = true)]
async fn of_two_pods_with_one_vif_the_later_one_gets_another_before_it_uses_it() {
    let (pooled, other, vif) = shared().await;
    pooled.event().await.unwrap();
    let own = pooled.world.shown().unwrap().default_vif;
    assert_ne!(own.id, vif.id);
    // An older event, then the echo.
    pooled.event().await.unwrap();
    pooled.event().await.unwrap();
    let of = async |owner: &Owner| {
        let vifs = pooled.pool.vifs(Some(owner)).await.unwrap();
        vifs.into_iter().map(|marked| marked.thing.id).collect::<Vec<_>>()
    };
    assert_eq!((of(&pooled.owner()).await, of(&other).await), (vec![own.id.clone()], vec![vif.id]));
    assert_eq!(pooled.world.shown().unwrap().default_vif.id, own.id);
}

#[tokio::test(start_paused = true)]
async fn two_pods_that_use_one_vif_are_told_of_it() {
    let (pooled, other, vif) = shared().await;
    pooled.world.phase("Running");
    let error = pooled.event().await.unwrap_err();
    assert!(matches!(error, VifError::Shared) && !error.transient(), "{error}");
    assert_eq!(pooled.world.shown().unwrap().default_vif.id, vif.id, "nobody takes it away");
    pooled.pool.release_vif(&other, &vif).await.unwrap();
    pooled.event().await.unwrap();
}
