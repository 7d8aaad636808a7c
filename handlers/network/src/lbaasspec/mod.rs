//! The handler `lbaasspec`: writes on each service what load balancer it wants.

mod annotation;
mod error;
mod service;

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Service;
use kube::{Client, ResourceExt};
use staffetta_driver::{ServiceProjectDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver};
use staffetta_handler::{
    Event, Identity, MetadataPatch, Note, Notes, Registration, ResourceEventHandler, Tombstone, Writer,
};

pub use annotation::{LbaasPortSpec, LbaasServiceSpec, Reach, SPEC_ANNOTATION};
pub use error::LbaasSpecError;
pub use service::LOAD_BALANCER_CLASS;
pub(crate) use service::stating;
use service::{Stated, is_balanced, second_ip, stated};

use crate::namespaces::feeding;
use crate::versioned_object::Versioned;

/// The reason of the Event by which a person learns that the second cluster IP of a service is not served.
pub(crate) const UNSERVED: &str = "SecondFamilyUnserved";

/// Writes on each service what load balancer it wants: the annotation `openstack.org/kuryr-lbaas-spec`.
///
/// * Services with a cluster IP get one, with a selector or without; headless and `ExternalName` services and
///   `default/kubernetes` do not, and a service that becomes such a one loses its annotation.
/// * A service of type `LoadBalancer` whose class is not ours is written down as `NodePort`: its public address is
///   somebody else's work.
/// * It makes nothing outside, so it has no finalizer; and it writes only what differs.
/// * An annotation that cannot be read is an error and stays as it is.
/// * A service of two families is served at its first cluster IP; that is told, and no failure.
pub struct LbaasSpecHandler {
    drivers: LbaasSpecDrivers,
    writer: Writer<Service>,
    notes: Notes,
    /// Of which second cluster IPs it was told that nobody serves them, by the UID of the service.
    told: DashMap<String, String>,
}

/// The drivers of the handler.
#[derive(Clone)]
pub struct LbaasSpecDrivers {
    /// To which project a service belongs.
    pub project: Arc<dyn ServiceProjectDriver>,
    /// In which subnet its cluster IP lies.
    pub subnets: Arc<dyn ServiceSubnetsDriver>,
    /// Which security groups guard its load balancer.
    pub security_groups: Arc<dyn ServiceSecurityGroupsDriver>,
}

impl LbaasSpecHandler {
    /// Writes through `client` what the drivers answer.
    pub fn new(client: Client, drivers: LbaasSpecDrivers) -> Self {
        Self { drivers, writer: Writer::new(client), notes: Notes::default(), told: DashMap::new() }
    }

    /// Tells by `notes` what a service goes without.
    #[must_use]
    pub fn telling(mut self, notes: Notes) -> Self {
        self.notes = notes;
        self
    }

    /// The handler as it is registered: for services, and with namespaces where a driver wants to know them.
    pub fn registration(self) -> Registration<Self> {
        let observer = self.drivers.project.namespaces();
        feeding(Registration::new(self).on::<Service>(), [observer])
    }

    async fn wanted(&self, service: &Service, stated: Stated) -> Result<LbaasServiceSpec, LbaasSpecError> {
        let LbaasSpecDrivers { project, subnets, security_groups } = &self.drivers;
        let project = project.project(service).await.map_err(LbaasSpecError::Project)?;
        let subnets = subnets.subnets(service, &project).await.map_err(LbaasSpecError::Subnets)?;
        let groups = security_groups.security_groups(service, &project).await;
        let mut security_groups_ids = groups.map_err(LbaasSpecError::SecurityGroups)?;
        security_groups_ids.sort();
        Ok(LbaasServiceSpec {
            ip: stated.ip,
            lb_ip: stated.lb_ip,
            ports: stated.ports.into_iter().map(Versioned).collect(),
            project_id: project,
            security_groups_ids,
            subnet_id: subnets.into_iter().next().ok_or(LbaasSpecError::NoSubnet)?,
            reach: stated.reach,
        })
    }

    /// Tells once that the second cluster IP of `service` is not served, if it has one.
    fn tell_of_second_ip(&self, service: &Service) {
        let uid = service.metadata.uid.clone().unwrap_or_default();
        let Some(ip) = second_ip(service) else {
            self.told.remove(&uid);
            return;
        };
        if self.told.insert(uid, ip.to_owned()).is_some_and(|told| told == ip) {
            return;
        }
        let first = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
        let text = format!("a load balancer has one address: {first} is served, and {ip} is not");
        self.notes.tell(Note {
            handler: "lbaasspec",
            regarding: Identity::of_object(service),
            warning: true,
            reason: UNSERVED,
            text,
        });
    }
}

impl ResourceEventHandler<Service> for LbaasSpecHandler {
    type Error = LbaasSpecError;

    fn wants(&self, event: &Event<Service>) -> bool {
        match event {
            Event::Added(service) | Event::Modified(service) => {
                is_balanced(service) || service.annotations().contains_key(SPEC_ANNOTATION)
            }
            Event::Deleted(_) => true,
        }
    }

    async fn on_present(&self, service: &Arc<Service>) -> Result<(), LbaasSpecError> {
        self.writer.fresh(service)?;
        let current = LbaasServiceSpec::of(service)?;
        let patch = match stated(service)? {
            Some(stated) => {
                let wanted = self.wanted(service, stated).await?;
                self.tell_of_second_ip(service);
                if current.as_ref() == Some(&wanted) {
                    return Ok(());
                }
                MetadataPatch::default().annotate(SPEC_ANNOTATION, wanted.to_text())
            }
            None => MetadataPatch::default().remove_annotation(SPEC_ANNOTATION),
        };
        // Of a service that is gone or changed meanwhile, an event tells.
        self.writer.metadata(service, &patch).await?;
        Ok(())
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Service>) -> Result<(), LbaasSpecError> {
        self.writer.forget(tombstone.subject().uid);
        self.told.remove(tombstone.subject().uid);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
