//! The drivers of a replica, which call the simulated cloud through its network.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use staffetta_driver::{
    Activation, BulkVifDriver, BulkVifRequest, BulkVifResult, DriverError, ExistingRule, Fence, GroupName,
    ListenerChange, ListenerDriver, LoadBalancer, LoadBalancerDriver, LoadBalancerId, LoadBalancerProgress,
    LoadBalancerSpec, NetworkPolicyDriver, Owned, Owner, PodVifDriver, PooledVifList, PortId, PublicIp,
    PublicIpRequest, Reason, RuleChange, SecurityGroup, SecurityGroupId, ServicePublicIpDriver, Vif, VifId,
    VifRequest, VifSecurityGroups,
};
use staffetta_memory::{
    MemoryBulkVifDriver, MemoryLoadBalancerDriver, MemoryNetworkPolicyDriver, MemoryPublicIpDriver,
    MemoryVifDriver,
};
use tokio::time::timeout;

use crate::link::{Fate, LEADER_LEASE, Link, Loss};

/// The time after which a driver no longer waits for the cloud.
const CLOUD_TIMEOUT: Duration = Duration::from_secs(30);

/// A driver of the cloud behind the network of one replica.
pub(crate) struct Remote<D> {
    pub(crate) link: Arc<Link>,
    pub(crate) fence: Fence,
    pub(crate) driver: Arc<D>,
}

impl<D: Send + Sync + 'static> Remote<D> {
    /// Calls the driver at the other end of the network. An error after which the call may have taken effect is ambiguous.
    async fn call<T: Send + 'static, F: Future<Output = Result<T, DriverError>> + Send + 'static>(
        &self,
        what: String,
        changes: bool,
        work: impl FnOnce(Arc<D>) -> F,
    ) -> Result<T, DriverError> {
        let (link, world) = (&self.link, Arc::clone(&self.link.world));
        let method = what.split(' ').next().unwrap_or_default();
        let mut draw = world.choices.at(&format!("{} {method}", link.replica));
        let fate = Fate::of(&mut draw, world.is_stormy());
        if fate.refusal.is_some() {
            return Err(DriverError::new(Reason::Unavailable, method.to_owned()).detail("refused"));
        }
        let (replica, work, text) = (link.replica.clone(), work(Arc::clone(&self.driver)), what.clone());
        let sent = async {
            link.until_up().await;
            if changes {
                world.sends(&link.replica, LEADER_LEASE, &what);
            }
            let there = Arc::clone(&world);
            link.transmit(fate, async move { there.call(&replica, &text, changes, work).await }).await
        };
        let lost = DriverError::new(Reason::Unavailable, method.to_owned());
        let lost_response = if changes { lost.clone().maybe_applied() } else { lost.clone() };
        match self.fence.run(timeout(CLOUD_TIMEOUT, sent)).await {
            None => Err(lost_response.detail(Fence::NOT_LEADER_MESSAGE)),
            Some(Err(_) | Ok(Err(Loss::Response))) => Err(lost_response),
            Some(Ok(Err(Loss::Request))) => Err(lost),
            Some(Ok(Ok(result))) => result,
        }
    }
}

#[async_trait]
impl PodVifDriver for Remote<MemoryVifDriver> {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let (what, request) = (format!("request_vif {}", request.owner.name), request.clone());
        self.call(what, true, async move |driver| driver.request_vif(&request).await).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let (owner, vif) = (owner.clone(), vif.clone());
        let what = format!("release_vif {} {}", owner.name, vif.id);
        self.call(what, true, async move |driver| driver.release_vif(&owner, &vif).await).await
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        let (owner, vif) = (owner.clone(), vif.clone());
        let what = "activate_vif".to_owned();
        self.call(what, false, async move |driver| driver.activate_vif(&owner, &vif).await).await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        let owner = owner.cloned();
        self.call("vifs".to_owned(), false, async move |driver| driver.vifs(owner.as_ref()).await).await
    }

    async fn unmarked_vifs(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.call("unmarked_vifs".to_owned(), false, async |driver| driver.unmarked_vifs().await).await
    }

    fn vif_returned(&self, vif: &VifId) {
        self.driver.vif_returned(vif);
    }
}

#[async_trait]
impl BulkVifDriver for Remote<MemoryBulkVifDriver> {
    fn host(&self, request: &VifRequest) -> Result<String, DriverError> {
        self.driver.host(request)
    }

    async fn create_vifs(&self, order: &BulkVifRequest) -> BulkVifResult {
        let (what, order) = (format!("create_vifs {} {}", order.key.host, order.count), order.clone());
        let created = self.call(what, true, async move |driver| Ok(driver.create_vifs(&order).await)).await;
        created.unwrap_or_else(|error| BulkVifResult { vifs: Vec::new(), failure: Some(error) })
    }

    async fn set_security_groups(&self, vif: &Vif, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        let (what, vif, groups) = (format!("set_security_groups {}", vif.id), vif.clone(), groups.to_vec());
        self.call(what, true, async move |driver| driver.set_security_groups(&vif, &groups).await).await
    }

    async fn delete_vifs(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)> {
        let vifs = vifs.to_vec();
        let ids: Vec<_> = vifs.iter().map(|vif| vif.id.clone()).collect();
        let what = format!("delete_vifs {ids:?}");
        let deleted = self.call(what, true, async move |driver| Ok(driver.delete_vifs(&vifs).await)).await;
        deleted.unwrap_or_else(|error| ids.into_iter().map(|id| (id, error.clone())).collect())
    }

    async fn list_vifs(&self) -> Result<PooledVifList, DriverError> {
        self.call("list_vifs".to_owned(), false, async |driver| driver.list_vifs().await).await
    }

    fn is_active_unbound(&self, vif: &Vif) -> bool {
        self.driver.is_active_unbound(vif)
    }
}

#[async_trait]
impl LoadBalancerDriver for Remote<MemoryLoadBalancerDriver> {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Owned<LoadBalancer>>, DriverError> {
        let owner = owner.cloned();
        let what = "load_balancers".to_owned();
        self.call(what, false, async move |driver| driver.load_balancers(owner.as_ref()).await).await
    }

    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        let (owner, spec) = (owner.clone(), spec.clone());
        let what = format!("ensure_load_balancer {} {}", owner.name, spec.vip);
        self.call(what, true, async move |driver| driver.ensure_load_balancer(&owner, &spec).await).await
    }

    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<LoadBalancerProgress, DriverError> {
        let load_balancer = load_balancer.clone();
        let what = "progress".to_owned();
        self.call(what, false, async move |driver| driver.progress(&load_balancer).await).await
    }

    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        let (owner, id) = (owner.clone(), id.clone());
        let what = format!("release_load_balancer {} {id}", owner.name);
        self.call(what, true, async move |driver| driver.release_load_balancer(&owner, &id).await).await
    }
}

#[async_trait]
impl ListenerDriver for Remote<MemoryLoadBalancerDriver> {
    async fn change_listener(
        &self,
        load_balancer: &LoadBalancer,
        change: &ListenerChange,
    ) -> Result<LoadBalancer, DriverError> {
        let (load_balancer, change) = (load_balancer.clone(), change.clone());
        let what = format!("change_listener {} {change:?}", load_balancer.id);
        self.call(what, true, async move |driver| driver.change_listener(&load_balancer, &change).await).await
    }
}

#[async_trait]
impl ServicePublicIpDriver for Remote<MemoryPublicIpDriver> {
    async fn public_ips(&self, owner: Option<&Owner>) -> Result<Vec<Owned<PublicIp>>, DriverError> {
        let owner = owner.cloned();
        let what = "public_ips".to_owned();
        self.call(what, false, async move |driver| driver.public_ips(owner.as_ref()).await).await
    }

    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> Result<PublicIp, DriverError> {
        let (owner, request) = (owner.clone(), request.clone());
        let what = format!("acquire {}", owner.name);
        self.call(what, true, async move |driver| driver.acquire(&owner, &request).await).await
    }

    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        let (public_ip, port) = (public_ip.clone(), port.clone());
        let what = format!("associate {} {port}", public_ip.ip);
        self.call(what, true, async move |driver| driver.associate(&public_ip, &port).await).await
    }

    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        let (public_ip, port) = (public_ip.clone(), port.clone());
        let what = format!("disassociate {} {port}", public_ip.ip);
        self.call(what, true, async move |driver| driver.disassociate(&public_ip, &port).await).await
    }

    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError> {
        let (owner, public_ip) = (owner.clone(), public_ip.clone());
        let what = format!("release {} {}", owner.name, public_ip.ip);
        self.call(what, true, async move |driver| driver.release(&owner, &public_ip).await).await
    }
}

#[async_trait]
impl NetworkPolicyDriver for Remote<MemoryNetworkPolicyDriver> {
    async fn groups(&self) -> Result<Vec<SecurityGroup>, DriverError> {
        self.call("groups".to_owned(), false, async |driver| driver.groups().await).await
    }

    async fn create_group(
        &self,
        name: &GroupName,
        owner: Option<&Owner>,
    ) -> Result<SecurityGroup, DriverError> {
        let (what, name, owner) = (format!("create_group {name}"), name.clone(), owner.cloned());
        self.call(what, true, async move |driver| driver.create_group(&name, owner.as_ref()).await).await
    }

    async fn update_rules(
        &self,
        group: &SecurityGroupId,
        change: &RuleChange,
    ) -> Result<Vec<ExistingRule>, DriverError> {
        let (what, group, change) =
            (format!("update_rules {group} {change:?}"), group.clone(), change.clone());
        self.call(what, true, async move |driver| driver.update_rules(&group, &change).await).await
    }

    async fn delete_group(&self, group: &SecurityGroupId) -> Result<(), DriverError> {
        let (what, group) = (format!("delete_group {group}"), group.clone());
        self.call(what, true, async move |driver| driver.delete_group(&group).await).await
    }

    async fn vif_groups(&self) -> Result<Vec<VifSecurityGroups>, DriverError> {
        self.call("vif_groups".to_owned(), false, async |driver| driver.vif_groups().await).await
    }

    async fn set_vif_groups(&self, vif: &VifId, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        let (what, vif, groups) = (format!("set_vif_groups {vif} {groups:?}"), vif.clone(), groups.to_vec());
        self.call(what, true, async move |driver| driver.set_vif_groups(&vif, &groups).await).await
    }
}
