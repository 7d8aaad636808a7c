//! A VIF pool that contains one pool for each VIF driver.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{
    Activation, DriverError, NetworkId, NodeInfo, Owned, Owner, PodVifDriver, PoolClaim, Reason,
    SecurityGroupId, Uid, Vif, VifClass, VifId, VifPoolDriver, VifPoolObserver, VifRequest,
};

use crate::vif_pool::NodeIndex;

/// The delay before a request for a node that is not known yet is repeated.
const UNKNOWN_NODE_RETRY: Duration = Duration::from_secs(1);

/// The pool `multi_pool`, named as in Kuryr: it combines one pool for each VIF driver. A node uses the pool of the driver that its label
/// `pod_vif` names, or of the default driver without the label. A VIF belongs to the pool that contains it, even if a pod's annotation
/// states another class. Any other VIF belongs to the pool of the driver of its class or, without such a pool, to that of the default
/// driver.
pub struct MultiVifPool {
    pools: BTreeMap<String, Arc<dyn VifPoolDriver>>,
    default: String,
    driver_of_class: fn(&VifClass) -> Option<&'static str>,
    nodes: NodeIndex,
}

impl MultiVifPool {
    /// Creates the pool from the pools of the VIF drivers, by the name of the driver. `default` is the driver of nodes without
    /// the label. `driver_of_class` returns the name of the driver that creates VIFs of a class, or `None` if several do. Returns
    /// `None` if `pools` has no pool for `default`.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use staffetta_driver::{PodVifDriver, VifPoolDriver};
    /// use staffetta_pool::{MultiVifPool, NoopVifPool};
    ///
    /// fn both(ports: Arc<dyn PodVifDriver>, nested: Arc<dyn PodVifDriver>) -> Option<MultiVifPool> {
    ///     let ports: Arc<dyn VifPoolDriver> = Arc::new(NoopVifPool::new(ports));
    ///     let nested: Arc<dyn VifPoolDriver> = Arc::new(NoopVifPool::new(nested));
    ///     MultiVifPool::new([("ports".into(), ports), ("nested".into(), nested)].into(), "ports", |_| None)
    /// }
    /// ```
    pub fn new(
        pools: BTreeMap<String, Arc<dyn VifPoolDriver>>,
        default: &str,
        driver_of_class: fn(&VifClass) -> Option<&'static str>,
    ) -> Option<Self> {
        let nodes = NodeIndex::default();
        let default = pools.contains_key(default).then(|| default.to_owned())?;
        Some(Self { pools, default, driver_of_class, nodes })
    }

    /// Returns the pool for pods on the node `name`. Fails with [`Reason::Awaited`] if the node is not known yet, and with
    /// [`Reason::Refused`] if the node's label `pod_vif` names a driver without a pool.
    fn of_node(&self, name: &str) -> Result<&Arc<dyn VifPoolDriver>, DriverError> {
        if !self.nodes.may_contain(name) {
            let detail = format!("node {name} is not known yet");
            return Err(DriverError::new(Reason::Awaited, "choose a pool")
                .detail(detail)
                .after(UNKNOWN_NODE_RETRY));
        }
        let driver = self.driver(name);
        self.pools.get(&driver).ok_or_else(|| {
            let known: Vec<_> = self.pools.keys().map(String::as_str).collect();
            DriverError::new(Reason::Refused, "choose a pool").detail(format!(
                "the label `pod_vif` of node {name} names `{driver}`; `vif_pool.vif_pool_mapping` has {}",
                known.join(", ")
            ))
        })
    }

    /// Returns the name of the VIF driver for pods on the node: the value of its label `pod_vif`, or the default driver.
    fn driver(&self, node: &str) -> String {
        self.nodes.pod_vif(node).unwrap_or_else(|| self.default.clone())
    }

    /// Returns the pool that contains the VIF, or else the pool of its class, or else the default pool. The class comes from a
    /// pod's annotation and cannot be trusted: anybody who may change the annotation could name the VIF of another pod in another
    /// class.
    fn of_vif(&self, vif: &Vif) -> &Arc<dyn VifPoolDriver> {
        if let Some(owner) = self.pools.values().find(|pool| pool.contains_vif(&vif.id)) {
            return owner;
        }
        let by_class = (self.driver_of_class)(&vif.class).and_then(|driver| self.pools.get(driver));
        by_class.unwrap_or_else(|| &self.pools[&self.default])
    }

    /// Calls `list` for all pools simultaneously, so that drivers of one cloud can share a list, and joins the results. A VIF that several
    /// pools list is returned once, from the pool to which it belongs. Fails if one of the calls fails.
    async fn listed<'p, F>(
        &'p self,
        list: impl Fn(&'p Arc<dyn VifPoolDriver>) -> F,
    ) -> Result<Vec<Owned<Vif>>, DriverError>
    where
        F: Future<Output = Result<Vec<Owned<Vif>>, DriverError>>,
    {
        let lists = join_all(self.pools.values().map(&list)).await;
        let mut listed = BTreeMap::new();
        for (pool, list) in self.pools.values().zip(lists) {
            for marked in list? {
                let id = marked.resource.id.clone();
                if Arc::ptr_eq(pool, self.of_vif(&marked.resource)) {
                    listed.insert(id, marked);
                } else {
                    listed.entry(id).or_insert(marked);
                }
            }
        }
        Ok(listed.into_values().collect())
    }

    fn observers(&self) -> impl Iterator<Item = &dyn VifPoolObserver> {
        self.pools.values().filter_map(|pool| pool.observer())
    }
}

#[async_trait]
impl PodVifDriver for MultiVifPool {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.of_node(&request.node_name)?.request_vif(request).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.of_vif(vif).release_vif(owner, vif).await
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        self.of_vif(vif).activate_vif(owner, vif).await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.listed(|pool| pool.vifs(owner)).await
    }

    async fn unmarked_vifs(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.listed(|pool| pool.unmarked_vifs()).await
    }
}

#[async_trait]
impl VifPoolDriver for MultiVifPool {
    fn contains_vif(&self, vif: &VifId) -> bool {
        self.pools.values().any(|pool| pool.contains_vif(vif))
    }

    fn claim(&self, owner: &Owner, vif: &Vif) -> PoolClaim {
        self.of_vif(vif).claim(owner, vif)
    }

    fn holds_vifs(&self, pod: &Uid) -> bool {
        self.pools.values().any(|pool| pool.holds_vifs(pod))
    }

    async fn request_additional_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.of_node(&request.node_name)?.request_additional_vif(request).await
    }

    fn vif_driver_of_node(&self, node: &str) -> Option<String> {
        Some(self.driver(node))
    }

    /// Notifies all pools, since the id of a VIF does not show to which pool it belongs.
    fn security_groups_changed(&self, vif: &VifId, security_groups: Option<&[SecurityGroupId]>) {
        self.pools.values().for_each(|pool| pool.security_groups_changed(vif, security_groups));
    }

    fn observer(&self) -> Option<&dyn VifPoolObserver> {
        Some(self)
    }

    async fn drain_network(&self, network: &NetworkId) -> Result<(), DriverError> {
        for pool in self.pools.values() {
            pool.drain_network(network).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl VifPoolObserver for MultiVifPool {
    async fn resync(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.listed(|pool| match pool.observer() {
            Some(observer) => observer.resync(),
            None => pool.vifs(None),
        })
        .await
    }

    /// Notifies all pools, each of its own VIFs, because each may contain VIFs that the pod uses and that its annotation does not name.
    fn pod_vifs(&self, pod: &Pod, vifs: Option<&[Vif]>) {
        for pool in self.pools.values() {
            let is_its = |vif: &&Vif| Arc::ptr_eq(pool, self.of_vif(vif));
            let own = vifs.map(|vifs| vifs.iter().filter(is_its).cloned().collect::<Vec<_>>());
            if let Some(observer) = pool.observer() {
                observer.pod_vifs(pod, own.as_deref());
            }
        }
    }

    fn pod_ended(&self, pod: &Uid) {
        self.observers().for_each(|observer| observer.pod_ended(pod));
    }

    fn start(&self) {
        self.observers().for_each(VifPoolObserver::start);
    }

    fn node_changed(&self, name: &str, facts: Option<&NodeInfo>) {
        self.nodes.update(name, facts);
        self.observers().for_each(|observer| observer.node_changed(name, facts));
    }
}
