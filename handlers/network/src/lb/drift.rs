//! Compares what stands outside with what it is to be, now and then: somebody may have changed, broken or removed it.
//!
//! One list of each kind answers for all services. Who is at work there by now knows better than a list, and is left alone; of
//! the others, those whose annotation tells another story than the marks are looked at again, each in its own queue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use staffetta_driver::{PublicIp, PublicIpId, Uid};
use staffetta_handler::{HandlerError, Identity, OrderingKey, Outlet, Signal, SignalHandler, Source};

use super::annotation::{self, STATE_ANNOTATION};
use super::claims::{Claim, Claims, by_owner, unmarked};
use super::error::LbError;
use super::index::{ServiceIndex, ServiceKey};
use super::settle::LbDrivers;
use super::standing::Standing;
use super::{LbHandler, has_finalizer};

/// What stands for a service is not what the service shows.
#[derive(Clone, Debug)]
pub struct Drifted(Identity);

impl Signal for Drifted {
    fn identity(&self) -> &Identity {
        &self.0
    }
}

/// Looks for services that have drifted.
pub(super) struct Comparison {
    pub(super) drivers: LbDrivers,
    pub(super) services: Arc<ServiceIndex>,
    pub(super) claims: Arc<Claims>,
    pub(super) interval: Duration,
}

impl Comparison {
    /// The services whose annotation and marks tell different stories.
    pub(super) async fn look(&self) -> Result<Vec<Identity>, LbError> {
        // What is written down or begun after this may not be in the lists yet.
        let shown: Vec<_> = self.services.all().iter().filter_map(|service| self.shown(service)).collect();
        let balancers = self.drivers.load_balancer.load_balancers(None).await.map_err(LbError::Marks)?;
        let public_ips = self.drivers.public_ip.public_ips(None).await.map_err(LbError::Marks)?;
        let unmarked = unmarked(&public_ips);
        let marked = by_owner(balancers, public_ips);
        let drifted = shown.into_iter().filter(|Shown { service, text, standing }| {
            let untouched = self.claims.get(&uid(service)).is_none() && self.shows(service, text);
            untouched && !is_there(standing, marked.get(&uid(service)), &unmarked)
        });
        Ok(drifted.map(|Shown { service, .. }| Identity::of_object(&*service)).collect())
    }

    /// What a service shows that is ours, whole and at rest.
    fn shown(&self, service: &Arc<Service>) -> Option<Shown> {
        let rests = has_finalizer(service)
            && service.metadata.deletion_timestamp.is_none()
            && self.claims.get(&uid(service)).is_none();
        let text = service.annotations().get(STATE_ANNOTATION).filter(|_| rests)?;
        if !self.claims.wrote(&uid(service), text) {
            return None;
        }
        let standing = annotation::read(text).ok()?;
        Some(Shown { service: Arc::clone(service), text: text.clone(), standing })
    }

    /// Whether the service still shows that.
    fn shows(&self, service: &Service, text: &str) -> bool {
        let present = self.services.get(&ServiceKey::of(&service.metadata));
        present.is_some_and(|present| {
            present.metadata.uid == service.metadata.uid
                && present.annotations().get(STATE_ANNOTATION).is_some_and(|shown| shown == text)
        })
    }
}

struct Shown {
    service: Arc<Service>,
    text: String,
    standing: Standing,
}

fn uid(service: &Service) -> Uid {
    service.metadata.uid.as_deref().unwrap_or_default().into()
}

/// Whether the marks tell of just what is shown, and an address that the user made, of which they tell nothing, is among
/// those that bear none and leads where it is shown to lead.
fn is_there(shown: &Standing, marked: Option<&Claim>, unmarked: &HashMap<PublicIpId, PublicIp>) -> bool {
    let found = match marked {
        Some(Claim::Marked(found)) => found.clone(),
        Some(_) => return false,
        None => Standing::default(),
    };
    if !shown.has_users() {
        return shown.is_as(&found);
    }
    let leads = shown.clone().seen_with(unmarked).public_ip == shown.public_ip;
    leads && found.public_ip.is_none() && Standing { public_ip: None, ..shown.clone() }.is_as(&found)
}

impl Source for Comparison {
    async fn run(&self, outlet: Outlet) -> Result<(), HandlerError> {
        loop {
            tokio::time::sleep(self.interval).await;
            for service in self.look().await? {
                outlet.signal(Drifted(service));
            }
        }
    }
}

impl SignalHandler<Drifted> for LbHandler {
    type Error = LbError;

    fn key(&self, Drifted(service): &Drifted) -> OrderingKey {
        ServiceKey::new(service.namespace.as_deref(), &service.name).ordering()
    }

    async fn on_signal(&self, Drifted(service): &Drifted) -> Result<(), LbError> {
        let key = ServiceKey::new(service.namespace.as_deref(), &service.name);
        let present = self.services.get(&key);
        let Some(present) = present.filter(|present| uid(present).as_str() == service.uid) else {
            return Ok(());
        };
        // Something was written there a moment ago: the next comparison tells.
        if self.writer.is_stale(&present) {
            return Ok(());
        }
        // This was looked at before, and is not done yet.
        if self.claims.get(&uid(&present)).is_some() {
            return self.sync(&key).await;
        }
        self.told.drifted(&present);
        self.claims.suspect(&uid(&present));
        self.sync(&key).await
    }
}
