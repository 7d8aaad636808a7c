//! The stock of the pool `nested`: subports of the trunks of nodes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use async_trait::async_trait;
use staffetta_driver::{
    DriverError, Reason, SecurityGroupId, StockList, StockMade, StockOrder, Stocked, Vif, VifId, VifRequest,
    VifStock,
};

use super::{
    Batches, Lot, abandoned, adapt, all_left, in_lots, key, make, ordered, ordered_groups, remove_all,
};
use crate::neutron::mark::{Mark, Nesting, Parent};
use crate::neutron::nested_vlan::{NestedVlanDriver, trunk_of, trunks_of, vlan_of};
use crate::neutron::nodes::host_of;
use crate::neutron::translate::{self, Kind};
use crate::neutron::wire::Port;

/// Subports for the driver `nested-vlan`. One becomes ACTIVE in stock, and stays so.
#[derive(Clone, Debug)]
pub struct NestedStock {
    driver: NestedVlanDriver,
    batches: Batches,
}

impl NestedStock {
    /// Of subports that `driver` could have made.
    pub fn new(driver: NestedVlanDriver) -> Self {
        Self { driver, batches: Batches::new() }
    }

    async fn lot(&self, order: &StockOrder, host: IpAddr, count: usize) -> Lot {
        let (ports, trunks) = (self.driver.ports(), self.driver.trunks());
        let batch = self.batches.begin();
        let promise = match trunks.promise(host, count).await {
            Ok(promise) => promise,
            Err(error) => return error.into(),
        };
        let parent = Parent::Trunk { id: promise.trunk.id.clone(), vlan: None };
        let port = ordered(ports, order, &batch, Some(Nesting { host, parent }), None);
        let (made, failure) = match make(ports, &port, promise.vlans.len()).await {
            Ok(made) => (made, None),
            Err((found, error)) => (found, Some(error)),
        };
        if made.is_empty() {
            return Lot { vifs: Vec::new(), failure };
        }
        let ids: Vec<VifId> = made.iter().map(|port| port.id.clone()).collect();
        let vlans = match trunks.attach(host, promise, &ids).await {
            Ok(vlans) => vlans,
            // What is half made then is found in the list, and removed.
            Err(error) if error.ambiguous() => return error.into(),
            Err(error) => {
                let left = remove_all(ports, ids).await;
                return if left.is_empty() { error.into() } else { error.maybe_done().into() };
            }
        };
        let vif = |port: &Port| translate::vif_in(port, &order.subnets, Kind::Vlan(vlans[&port.id]));
        match made.iter().map(vif).collect() {
            Ok(vifs) => {
                for id in &ids {
                    self.driver.made(id);
                }
                Lot { vifs, failure }
            }
            Err(error) => DriverError::maybe_done(error).into(),
        }
    }
}

#[async_trait]
impl VifStock for NestedStock {
    fn host(&self, request: &VifRequest) -> Result<String, DriverError> {
        host_of(request).map(|host| host.to_string())
    }

    async fn make(&self, order: &StockOrder) -> StockMade {
        match order.key.host.parse() {
            Ok(host) => in_lots(order.count, |count| self.lot(order, host, count)).await,
            Err(error) => {
                let detail = format!("`{}` is no address of a node", order.key.host);
                let failure = DriverError::new(Reason::Refused, "make ports").detail(detail).because(error);
                StockMade { vifs: Vec::new(), failure: Some(failure) }
            }
        }
    }

    async fn adapt(&self, vif: &Vif, security_groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        adapt(self.driver.ports(), vif, security_groups).await
    }

    async fn destroy(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)> {
        let stocked = match self.driver.ports().stocked(vifs).await {
            Ok(stocked) => stocked,
            Err(error) => return all_left(vifs, &error),
        };
        let vlans: HashMap<VifId, u16> =
            vifs.iter().filter_map(|vif| Some((vif.id.clone(), vlan_of(vif)?))).collect();
        let mut by_trunk: BTreeMap<String, (Nesting, Vec<VifId>)> = BTreeMap::new();
        for (id, nesting) in stocked {
            let Some(nesting) = nesting else { continue };
            if let Parent::Trunk { id: trunk, .. } = &nesting.parent {
                by_trunk.entry(trunk.clone()).or_insert_with(|| (nesting.clone(), Vec::new())).1.push(id);
            }
        }
        let trunks = by_trunk.values();
        let dismantled = trunks.map(|(nesting, ids)| self.driver.dismantle(nesting, ids, &vlans));
        futures_util::future::join_all(dismantled).await.concat()
    }

    async fn list(&self) -> Result<StockList, DriverError> {
        let (ports, began) = (self.driver.ports(), self.batches.now());
        let mut marked = ports.marked(None).await?;
        marked.retain(|(mark, _)| trunk_of(mark).is_some() && mark.owner().is_none());
        // Read after the ports, so that what is no subport now was none then.
        let vlans = self.driver.trunks().subports(&trunks_of(&marked)).await?;
        let subnets = ports.subnets(&marked).await?;
        let default_groups = ports.all_default_groups(&marked).await?;
        let (whole, mut halves): (Vec<_>, Vec<_>) =
            marked.into_iter().partition(|(_, port)| vlans.contains_key(&port.id));
        halves.retain(|(mark, _)| abandoned(&self.batches, mark, began));
        let stocked = |(mark, port): (Mark, Port)| {
            let host = mark.nesting?.host.to_string();
            let vif = match vlans.get(&port.id) {
                Some(vlan) => translate::listed(&port, &subnets, Kind::Vlan(*vlan)),
                None => translate::half(&port, &subnets),
            };
            Some(Stocked {
                key: key(&port, host),
                vif,
                security_groups: ordered_groups(&port, &default_groups),
            })
        };
        let [whole, halves] = [whole, halves].map(|ports| ports.into_iter().filter_map(stocked).collect());
        Ok(StockList { whole, halves })
    }

    fn came_back(&self, vif: &VifId) {
        self.driver.unsee(vif);
    }

    fn is_active_unbound(&self, _: &Vif) -> bool {
        true
    }
}
