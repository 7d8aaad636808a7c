//! What exists outside, as its marks tell, and what older controllers left on `Endpoints`.

use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use staffetta_driver::{LoadBalancer, Marked, PublicIp};
use staffetta_handler::{HandlerError, Identity, Sweep};

use super::annotation::STATE_ANNOTATION;
use super::index::ServiceKey;
use super::{LbError, LbHandler};
use crate::owners::identities;

/// How many objects a page of the list of `Endpoints` has.
const PAGE: u32 = 500;

impl LbHandler {
    async fn marks(&self) -> Result<(Vec<Marked<LoadBalancer>>, Vec<Marked<PublicIp>>), LbError> {
        let balancers = self.drivers.load_balancer.load_balancers(None).await.map_err(LbError::Marks)?;
        let public_ips = self.drivers.public_ip.public_ips(None).await.map_err(LbError::Marks)?;
        Ok((balancers, public_ips))
    }

    /// Reads the states that older controllers left on `Endpoints`: the metadata only, and once.
    async fn read_legacy(&self) -> Result<(), LbError> {
        let endpoints: Api<Endpoints> = Api::all(self.client.clone());
        let mut page = ListParams::default().limit(PAGE);
        self.legacy.clear();
        loop {
            let list =
                endpoints.list_metadata(&page).await.map_err(|error| LbError::Legacy(Box::new(error)))?;
            for found in &list.items {
                self.remember(found);
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = ListParams::default().limit(PAGE).continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    fn remember(&self, endpoints: &PartialObjectMeta<Endpoints>) {
        if let Some(state) = endpoints.annotations().get(STATE_ANNOTATION) {
            self.legacy.insert(ServiceKey::of(&endpoints.metadata), state.clone());
        }
    }
}

impl Sweep for LbHandler {
    async fn recover(&self) -> Result<(), HandlerError> {
        self.read_legacy().await?;
        let (balancers, public_ips) = self.marks().await?;
        self.claims.recover(balancers, public_ips);
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        let (balancers, public_ips) = self.marks().await?;
        let balancers = balancers.into_iter().filter_map(|marked| marked.owner);
        let owners = balancers.chain(public_ips.into_iter().filter_map(|marked| marked.owner));
        Ok(identities::<Service>(owners))
    }
}
