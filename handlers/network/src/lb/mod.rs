//! The handler `lb`: every service has the load balancer that its spec describes, and gives it back.
//!
//! A service, its slices and its `Endpoints` share one queue, and whatever of them changed, the service is looked at as a
//! whole: what it wants (its spec and its endpoints), what stands (the annotation, or what this process knows beyond it),
//! and the steps from one to the other. The annotation and the finalizer are written together, once, when all is
//! asked for; the public address is shown when the load balancer works.

mod annotation;
mod asked;
mod claims;
mod drift;
mod endpoints;
mod error;
mod index;
mod options;
mod plan;
mod publish;
mod release;
mod settle;
mod standing;
mod steps;
mod sweep;
mod told;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Client, Resource, ResourceExt};
use staffetta_driver::{Feasible, LoadBalancer, Owner, Uid};
use staffetta_handler::{
    Event, Failure, Identity, Message, Notes, OrderingKey, Registration, ResourceEventHandler, Superseded,
    Tombstone, Writer,
};

use self::asked::Asked;
use self::claims::{Claim, Claims};
use self::drift::Comparison;
use self::index::{EndpointIndex, ServiceIndex, ServiceKey};
use self::settle::Settling;
use self::standing::Standing;
use self::told::Told;
use self::wanted::Wanted;
use crate::lbaasspec::{LbaasServiceSpec, SPEC_ANNOTATION};
use crate::namespaces::feeding;

pub use self::annotation::STATE_ANNOTATION;
pub use self::asked::{CLIENT_TIMEOUT_ANNOTATION, MEMBER_TIMEOUT_ANNOTATION};
pub use self::drift::Drifted;
pub use self::error::LbError;
pub use self::options::LoadBalancerOptions;
pub use self::settle::LbDrivers;

/// The finalizer by which a service waits for the release of its load balancer.
pub const FINALIZER: &str = "staffetta.dev/lb";

/// The handler `lb`.
pub struct LbHandler {
    client: Client,
    drivers: LbDrivers,
    options: LoadBalancerOptions,
    told: Told,
    writer: Writer<Service>,
    services: Arc<ServiceIndex>,
    endpoints: Arc<EndpointIndex>,
    claims: Arc<Claims>,
    /// The states that older controllers left on `Endpoints`.
    legacy: DashMap<ServiceKey, String>,
}

impl LbHandler {
    /// Writes through `client`.
    pub fn new(client: Client, drivers: LbDrivers) -> Self {
        Self {
            writer: Writer::new(client.clone()),
            client,
            drivers,
            options: LoadBalancerOptions::default(),
            told: Told::default(),
            services: Arc::default(),
            endpoints: Arc::default(),
            claims: Arc::default(),
            legacy: DashMap::new(),
        }
    }

    /// Balances services by `options`.
    #[must_use]
    pub fn options(mut self, options: LoadBalancerOptions) -> Self {
        self.options = options;
        self
    }

    /// Tells by `notes` what happens to load balancers and is no failure.
    #[must_use]
    pub fn telling(mut self, notes: Notes) -> Self {
        self.told = Told::by(notes);
        self
    }

    /// The handler as it is registered: for services and their slices, or `Endpoints` where the server `has_slices` not,
    /// with its indexes, a sweep, a comparison of what stands with what is shown, and namespaces where the driver wants to know them.
    pub fn registration(self, has_slices: bool) -> Registration<Self> {
        let (services, endpoints) = (Arc::clone(&self.services), Arc::clone(&self.endpoints));
        let comparison = self.options.check_interval().map(|interval| self.comparison(interval));
        let namespaces = self.drivers.load_balancer.namespaces();
        let registration = Registration::new(self)
            .on::<Service>()
            .on_signal::<Drifted>()
            .index::<Service>(services)
            .superseded(Superseded::ByAnyOfItsKey)
            .sweep();
        let registration = feeding(registration, [namespaces]);
        let registration = match comparison {
            Some(comparison) => registration.source(comparison),
            None => registration,
        };
        if has_slices {
            registration.on::<EndpointSlice>().index::<EndpointSlice>(endpoints)
        } else {
            registration.on::<Endpoints>().index::<Endpoints>(endpoints)
        }
    }

    fn comparison(&self, interval: Duration) -> Comparison {
        let (services, claims) = (Arc::clone(&self.services), Arc::clone(&self.claims));
        Comparison { drivers: self.drivers.clone(), services, claims, interval }
    }

    /// Brings the load balancer of a service to what is wanted by now, whatever it was that changed.
    async fn sync(&self, key: &ServiceKey) -> Result<(), LbError> {
        // Of a service that is gone or goes, an event of its own tells.
        let present = self.services.get(key).filter(|service| service.metadata.deletion_timestamp.is_none());
        let Some(service) = present else { return Ok(()) };
        self.writer.fresh(&service)?;
        let owner = Owner::of(&service.metadata);
        let spec = LbaasServiceSpec::of(&service).map_err(LbError::Spec)?;
        let Some(spec) = spec else {
            return if self.is_ours(&service) { self.withdraw(&service, &owner).await } else { Ok(()) };
        };
        // It was another one when the event came.
        if !spec.is_of(&service) {
            return Err(LbError::Outdated);
        }
        let annotated = self.annotated(&service, key)?;
        let wanted = self.wanted(&service, &owner, &spec, annotated.load_balancer.as_ref()).await?;
        let doubtful = self.is_doubtful(&service);
        let mut settling = self.settling(&owner, Some(wanted), annotated, doubtful).await?;
        let settled = settling.settle().await;
        if settling.broke {
            self.told.replaced(&service);
        }
        match &settled {
            Ok(()) => {
                self.publish(&service, key, &settling, true).await?;
                settling.served()
            }
            // What failed for good is written down as far as it came; so is what lacks nothing but its public address, or
            // time.
            // A predecessor's annotation stays until all of it is marked: nothing else tells what there is.
            Err(_) if settling.standing.unmarked => settled,
            Err(error)
                if !error.transient() || settling.accepted || matches!(error, LbError::PublicIp(_)) =>
            {
                let published = self.publish(&service, key, &settling, false).await;
                settled.and(published)
            }
            Err(_) => settled,
        }
    }

    /// What the service wants, as far as the driver can serve it; `shown` is what its annotation tells of the load balancer.
    async fn wanted(
        &self,
        service: &Service,
        owner: &Owner,
        spec: &LbaasServiceSpec,
        shown: Option<&LoadBalancer>,
    ) -> Result<Wanted, LbError> {
        let endpoints = self.endpoints.of(&ServiceKey::of(&service.metadata));
        let asked = Asked::of(service)?;
        let wanted = Wanted::of(owner, spec, (&asked, &self.options), &endpoints);
        let wanted = wanted.while_renamed(spec, &endpoints, shown);
        let feasible = self.drivers.load_balancer.feasible(wanted.load_balancer).await;
        let Feasible { spec, without } = feasible.map_err(LbError::LoadBalancer)?;
        self.told.without(service, &without);
        Ok(Wanted { load_balancer: spec, ..wanted })
    }

    /// What stands on the service, or, from an older controller, on its endpoints.
    fn annotated(&self, service: &Service, key: &ServiceKey) -> Result<Standing, LbError> {
        let legacy = self.legacy.get(key).map(|text| text.clone());
        let Some(text) = service.annotations().get(STATE_ANNOTATION).cloned().or(legacy) else {
            return Ok(Standing::default());
        };
        let read = annotation::read(&text).map_err(LbError::State)?;
        // Whoever wrote it without our finalizer is not this program.
        Ok(Standing { unmarked: !has_finalizer(service) && !read.is_empty(), ..read })
    }

    /// Whether the finalizer says that there is something, and the annotation does not say what this process wrote there: it
    /// was removed, or somebody else wrote it.
    fn is_doubtful(&self, service: &Service) -> bool {
        let text = service.annotations().get(STATE_ANNOTATION).map(String::as_str).unwrap_or_default();
        has_finalizer(service) && !self.claims.wrote(&Owner::of(&service.metadata).uid, text)
    }

    /// What stands: as this process knows, else as the annotation shows. The marks are read where neither can know.
    async fn settling<'a>(
        &'a self,
        owner: &'a Owner,
        wanted: Option<Wanted>,
        annotated: Standing,
        doubtful: bool,
    ) -> Result<Settling<'a>, LbError> {
        // What bears no mark of ours is adopted where it is wanted, and never released.
        let foreign = annotated.unmarked && wanted.is_none();
        let annotated = if foreign { Standing::default() } else { annotated };
        let standing = annotated.clone();
        let (drivers, claims) = (&self.drivers, &*self.claims);
        let mut settling = Settling::new((drivers, claims), owner, wanted, annotated, standing);
        match self.claims.get(&owner.uid) {
            Some(Claim::Known(standing)) => settling.begin_at(standing),
            Some(Claim::Marked(marked)) => {
                let completed = marked.completed_by(self.claims.seen(settling.annotated.clone()));
                settling.begin_at(completed);
            }
            Some(Claim::Asked(users)) => {
                let seen = settling.look().await?;
                settling.begin_at(seen);
                settling.disown(users);
            }
            None if doubtful => {
                let seen = settling.look().await?;
                settling.begin_at(seen);
            }
            None => {}
        }
        Ok(settling)
    }

    fn is_ours(&self, service: &Service) -> bool {
        has_finalizer(service) || self.claims.is_there(&Owner::of(&service.metadata).uid)
    }

    fn forget(&self, uid: &Uid) {
        self.claims.forget(uid);
        self.claims.mends(uid);
        self.claims.unwrites(uid);
        self.told.forget(uid);
        self.writer.forget(uid.as_str());
    }

    /// Whether endpoints concern a service that wants a load balancer. Of those that go, the index must be told.
    fn is_concerned<K>(&self, event: &Event<K>) -> bool
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let Some(key) = self.endpoints.service_of(event.uid()) else { return false };
        matches!(event, Event::Deleted(_))
            || self.services.get(&key).is_some_and(|service| {
                service.annotations().contains_key(SPEC_ANNOTATION) && !awaits_spec(&service)
            })
    }
}

/// Whether the spec of a service that stays does not say what the service says itself. The event of its correction looks at all
/// that has changed by then.
fn awaits_spec(service: &Service) -> bool {
    let stays = service.metadata.deletion_timestamp.is_none();
    stays && LbaasServiceSpec::of(service).is_ok_and(|spec| spec.is_some_and(|spec| !spec.is_of(service)))
}

fn has_finalizer(service: &Service) -> bool {
    service.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

impl ResourceEventHandler<Service> for LbHandler {
    type Error = LbError;

    fn wants(&self, event: &Event<Service>) -> bool {
        match event.object() {
            Some(service) => {
                let annotated = |key| service.annotations().contains_key(key);
                let concerned =
                    annotated(SPEC_ANNOTATION) || annotated(STATE_ANNOTATION) || self.is_ours(service);
                concerned && !awaits_spec(service)
            }
            None => true,
        }
    }

    fn key(&self, event: &Event<Service>) -> OrderingKey {
        let subject = event.subject();
        ServiceKey::new(subject.namespace, subject.name).ordering()
    }

    async fn on_present(&self, service: &Arc<Service>) -> Result<(), LbError> {
        self.sync(&ServiceKey::of(&service.metadata)).await
    }

    async fn on_finalize(&self, service: &Arc<Service>) -> Result<(), LbError> {
        if self.writer.is_stale(service) { Ok(()) } else { self.finalize(service).await }
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Service>) -> Result<(), LbError> {
        self.bury(tombstone).await
    }
}

impl ResourceEventHandler<EndpointSlice> for LbHandler {
    type Error = LbError;

    fn wants(&self, event: &Event<EndpointSlice>) -> bool {
        self.is_concerned(event)
    }

    fn key(&self, event: &Event<EndpointSlice>) -> OrderingKey {
        match self.endpoints.service_of(event.uid()) {
            Some(service) => service.ordering(),
            None => OrderingKey::of(event.uid()),
        }
    }

    async fn on_present(&self, slice: &Arc<EndpointSlice>) -> Result<(), LbError> {
        self.endpoints_changed(slice.metadata.uid.as_deref().unwrap_or_default()).await
    }

    async fn on_finalize(&self, slice: &Arc<EndpointSlice>) -> Result<(), LbError> {
        self.endpoints_go(slice.metadata.uid.as_deref().unwrap_or_default()).await
    }

    async fn on_deleted(&self, tombstone: &Tombstone<EndpointSlice>) -> Result<(), LbError> {
        self.endpoints_gone(tombstone.subject().uid).await
    }
}

impl ResourceEventHandler<Endpoints> for LbHandler {
    type Error = LbError;

    fn wants(&self, event: &Event<Endpoints>) -> bool {
        self.is_concerned(event)
    }

    fn key(&self, event: &Event<Endpoints>) -> OrderingKey {
        let subject = event.subject();
        ServiceKey::new(subject.namespace, subject.name).ordering()
    }

    async fn on_present(&self, endpoints: &Arc<Endpoints>) -> Result<(), LbError> {
        self.endpoints_changed(endpoints.metadata.uid.as_deref().unwrap_or_default()).await
    }

    async fn on_finalize(&self, endpoints: &Arc<Endpoints>) -> Result<(), LbError> {
        self.endpoints_go(endpoints.metadata.uid.as_deref().unwrap_or_default()).await
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Endpoints>) -> Result<(), LbError> {
        self.endpoints_gone(tombstone.subject().uid).await
    }
}

impl LbHandler {
    async fn endpoints_changed(&self, uid: &str) -> Result<(), LbError> {
        let Some(key) = self.endpoints.service_of(uid) else { return Ok(()) };
        let Err(error) = self.sync(&key).await else { return Ok(()) };
        // Whoever wonders looks at the service, not at its slices.
        let service = self.services.get(&key).map(|service| Box::new(Identity::of_object(&*service)));
        Err(match service {
            Some(service) => LbError::Service { service, source: Box::new(error) },
            None => error,
        })
    }

    /// Endpoints go. Nothing supersedes that, so it must not wait for what stands in the queue behind it: the event of a
    /// write, which looks at all endpoints that there are by then.
    async fn endpoints_go(&self, uid: &str) -> Result<(), LbError> {
        match self.endpoints_changed(uid).await {
            Err(error) if error.awaits_event() => Ok(()),
            changed => changed,
        }
    }

    async fn endpoints_gone(&self, uid: &str) -> Result<(), LbError> {
        self.endpoints_go(uid).await?;
        self.endpoints.forget(uid);
        Ok(())
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
