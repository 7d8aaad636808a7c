//! The stock of the pool `neutron`: ports that are bound on a node.

use async_trait::async_trait;
use futures_util::future::join_all;
use staffetta_driver::{
    DriverError, Reason, SecurityGroupId, StockList, StockMade, StockOrder, Stocked, Vif, VifId, VifRequest,
    VifStock,
};

use super::{
    Batches, Lot, abandoned, adapt, all_left, in_lots, key, make, ordered, ordered_groups, remove_all,
};
use crate::neutron::mark::Mark;
use crate::neutron::translate::{self, Binding};
use crate::neutron::vif::NeutronVifDriver;
use crate::neutron::wire::Port;

/// Ports for the driver `neutron-vif`. One becomes ACTIVE when its node binds it for a pod.
#[derive(Clone, Debug)]
pub struct NeutronStock {
    driver: NeutronVifDriver,
    batches: Batches,
}

impl NeutronStock {
    /// Of ports that `driver` could have made.
    pub fn new(driver: NeutronVifDriver) -> Self {
        Self { driver, batches: Batches::new() }
    }

    async fn lot(&self, order: &StockOrder, count: usize) -> Lot {
        let ports = self.driver.ports();
        let batch = self.batches.begin();
        let port = ordered(ports, order, &batch, None, Some(&order.key.host));
        let (made, mut failure) = match make(ports, &port, count).await {
            Ok(made) => (made, None),
            Err((found, error)) => (found, Some(error)),
        };
        let mut lot = Lot::default();
        for vif in join_all(made.into_iter().map(|port| self.finished(port, order))).await {
            match vif {
                Ok(vif) => lot.vifs.push(vif),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        lot.failure = failure;
        lot
    }

    async fn finished(&self, port: Port, order: &StockOrder) -> Result<Vif, DriverError> {
        let port = self.driver.bound(port).await?;
        match translate::vif_in(&port, &order.subnets, self.driver.kind()) {
            Ok(vif) => Ok(vif),
            Err(error) => Err(self.driver.ports().undo(&port.id, error).await),
        }
    }
}

#[async_trait]
impl VifStock for NeutronStock {
    fn host(&self, request: &VifRequest) -> Result<String, DriverError> {
        Ok(request.node_name.clone())
    }

    async fn make(&self, order: &StockOrder) -> StockMade {
        in_lots(order.count, |count| self.lot(order, count)).await
    }

    async fn adapt(&self, vif: &Vif, security_groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        adapt(self.driver.ports(), vif, security_groups).await
    }

    async fn destroy(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)> {
        let ports = self.driver.ports();
        match ports.stocked(vifs).await {
            Ok(stocked) => {
                let left = remove_all(ports, stocked.into_iter().map(|(id, _)| id)).await;
                left.into_iter().map(|(id, error)| (id, error.into())).collect()
            }
            Err(error) => all_left(vifs, &error),
        }
    }

    async fn list(&self) -> Result<StockList, DriverError> {
        let (ports, began) = (self.driver.ports(), self.batches.now());
        let mut marked = ports.marked(None).await?;
        marked.retain(|(mark, _)| mark.nesting.is_none() && mark.owner().is_none());
        if let Some((_, port)) = marked.iter().find(|(_, port)| Binding::of(port) == Binding::Hidden) {
            return Err(hidden(port));
        }
        let subnets = ports.subnets(&marked).await?;
        let default_groups = ports.all_default_groups(&marked).await?;
        let (whole, mut halves): (Vec<_>, Vec<_>) =
            marked.into_iter().partition(|(_, port)| Binding::of(port) == Binding::Bound);
        halves.retain(|(mark, _)| abandoned(&self.batches, mark, began));
        let stocked = |(_, port): (Mark, Port)| Stocked {
            key: key(&port, port.host.clone()),
            vif: translate::listed(&port, &subnets, self.driver.kind()),
            security_groups: ordered_groups(&port, &default_groups),
        };
        let [whole, halves] = [whole, halves].map(|ports| ports.into_iter().map(stocked).collect());
        Ok(StockList { whole, halves })
    }

    fn came_back(&self, vif: &VifId) {
        self.driver.unsee(vif);
    }

    fn is_active_unbound(&self, _: &Vif) -> bool {
        false
    }
}

/// Neutron does not show whether ports are bound, so that all of them look half made.
fn hidden(port: &Port) -> DriverError {
    let detail = format!(
        "Neutron does not show the binding of port {}; the user needs a role that may see it, such as `service`",
        port.id
    );
    DriverError::new(Reason::Refused, "list the ports in stock").detail(detail)
}
