//! The handler `lbaasspec`: writes the desired load balancer of each service into an annotation,
//! which the handler `lb` reads.

mod annotation;
mod error;
mod service;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::{Client, ResourceExt};
use staffetta_driver::{ServiceProjectDriver, ServiceSecurityGroupsDriver, ServiceSubnetsDriver};
use staffetta_handler::{
    Action, Event, Identity, Interest, MetadataPatch, Recorder, Registration, ResourceEventHandler,
    Tombstone, Writer,
};

pub use annotation::{LbaasPortSpec, LbaasServiceSpec, SPEC_ANNOTATION, ServiceType};
pub use error::LbaasSpecError;
pub use service::LOAD_BALANCER_CLASS;
use service::{ServiceFields, has_foreign_class, no_load_balancer_reason};
pub(crate) use service::{gets_load_balancer, invalid};

use crate::annotation::RESTORED;
use crate::installation::Installation;
use crate::kuryr;
use crate::notices::Notices;
use crate::observers::observe_namespaces;
use crate::step_error::{AWAIT_OWN_WRITE, StepContext};
use crate::versioned_object::Versioned;

/// The reason of the Event for a service whose second cluster IP has no load balancer.
pub(crate) const SECOND_FAMILY_UNSERVED: &str = "SecondFamilyUnserved";

/// The finalizer of the handler `lb`, which delays the deletion of a service until its load balancer is released.
pub const LB_FINALIZER: &str = "staffetta.dev/lb";

/// The handler `lbaasspec`, which writes the annotation `openstack.org/kuryr-lbaas-spec` on services.
///
/// * Services with a cluster IP get the annotation, with or without a selector. Headless services,
///   `ExternalName` services, `default/kubernetes` and services that Kuryr manages do not get it. If
///   a service becomes headless or `ExternalName`, the annotation is removed.
/// * A service of type `LoadBalancer` whose load balancer class belongs to another controller is
///   annotated as `NodePort`, because that controller provides the public address.
/// * The handler creates nothing outside the cluster, so it adds no finalizer. It writes only if
///   the annotation must change.
/// * A malformed annotation is an error and is not overwritten.
/// * The load balancer of a dual-stack service has the first cluster IP. An Event reports that the
///   second cluster IP is not served.
pub struct LbaasSpecHandler {
    drivers: LbaasSpecDrivers,
    writer: Writer<Service>,
    notices: Notices,
    installation: Installation,
}

/// The drivers that choose the project, the subnet and the security groups of a load balancer. The
/// handlers `lbaasspec` and `lb` both ask them, because others may write the annotation.
#[derive(Clone)]
pub struct LbaasSpecDrivers {
    /// The driver that chooses the project of a service.
    pub project: Arc<dyn ServiceProjectDriver>,
    /// The driver that finds the subnet of the cluster IP.
    pub subnets: Arc<dyn ServiceSubnetsDriver>,
    /// The driver that chooses the security groups of the load balancer.
    pub security_groups: Arc<dyn ServiceSecurityGroupsDriver>,
}

impl LbaasSpecDrivers {
    /// Returns the spec of a service's load balancer: the fields of the service, with the project,
    /// the subnet and the security groups that the drivers choose. Returns `None` if the service
    /// gets no load balancer.
    pub async fn spec(&self, service: &Service) -> Result<Option<LbaasServiceSpec>, LbaasSpecError> {
        let Some(fields) = ServiceFields::of(service)? else { return Ok(None) };
        let Self { project, subnets, security_groups } = self;
        let project = project.project(service).await.step("find the project of the service")?;
        let subnets = subnets.subnets(service, &project).await.step("find the subnet of the service")?;
        let groups = security_groups.security_groups(service, &project).await;
        let mut security_groups_ids = groups.step("find the security groups of the service")?;
        security_groups_ids.sort();
        Ok(Some(LbaasServiceSpec {
            ip: fields.ip,
            lb_ip: fields.lb_ip,
            ports: fields.ports.into_iter().map(Versioned).collect(),
            project_id: project,
            security_groups_ids,
            subnet_id: subnets.into_iter().next().ok_or(LbaasSpecError::NoSubnet)?,
            service_type: fields.service_type,
        }))
    }
}

impl LbaasSpecHandler {
    /// Creates the handler. It writes annotations through `client` and records Events through
    /// `recorder`.
    pub fn new(client: Client, drivers: LbaasSpecDrivers, recorder: Recorder) -> Self {
        let notices = Notices::new("lbaasspec", recorder);
        Self { drivers, writer: Writer::new(client), notices, installation: Installation::default() }
    }

    /// Makes the handler one of this installation.
    #[must_use]
    pub fn managed_by(self, installation: Installation) -> Self {
        Self { installation, ..self }
    }

    /// Registers the handler for services, and for namespaces if the project driver observes them.
    pub fn registration(self) -> Registration<Self> {
        let observer = self.drivers.project.namespaces();
        observe_namespaces(Registration::new(self).on::<Service>().keeps_unselected(), [observer])
    }

    /// Records an Event if the service has a second cluster IP, because only the first one is
    /// served.
    fn report_second_ip(&self, service: &Service) {
        let ips = service.spec.as_ref().and_then(|spec| spec.cluster_ips.as_deref());
        let text = match ips {
            Some([first, second, ..]) => {
                Some(format!("a load balancer has one address: {first} is served, {second} is not"))
            }
            _ => None,
        };
        self.notices.set_condition(Identity::of_object(service), SECOND_FAMILY_UNSERVED, text);
    }
}

impl ResourceEventHandler<Service> for LbaasSpecHandler {
    type Error = LbaasSpecError;

    fn wants(&self, event: &Event<Service>) -> Interest {
        let (Event::Added(service) | Event::Modified(service)) = event else { return Interest::Taken };
        match no_load_balancer_reason(service) {
            Some(_) if service.annotations().contains_key(SPEC_ANNOTATION) => Interest::Taken,
            Some(reason) => Interest::Declined(reason),
            None if kuryr::managed_notice(&**service).is_some() => Interest::Limited(
                "Kuryr manages it by a custom resource, and it is left alone until `staffetta migrate kuryr` takes it over",
            ),
            None if service.spec.as_ref().is_some_and(has_foreign_class) => Interest::Limited(
                "its loadBalancerClass is that of another controller, so it is served as a NodePort, without a public IP",
            ),
            None => Interest::Taken,
        }
    }

    async fn on_present(&self, service: &Arc<Service>) -> Result<Action, LbaasSpecError> {
        if let Some((reason, text)) = self.installation.managed_notice(&**service) {
            self.notices.set_condition(Identity::of_object(&**service), reason, Some(text));
            return Ok(Action::done());
        }
        self.writer.fresh(service).step(AWAIT_OWN_WRITE)?;
        let current = LbaasServiceSpec::of(service).step("read the spec of the load balancer")?;
        // With a finalizer that somebody else has added, a service that is not selected gets here.
        if current.is_none() && !self.installation.selects(&**service) {
            return Ok(Action::done());
        }
        let patch = match self.drivers.spec(service).await? {
            Some(spec) => {
                self.report_second_ip(service);
                if current.as_ref() == Some(&spec) {
                    return Ok(Action::done());
                }
                // Another installation may be about to write it too.
                self.installation
                    .mark(MetadataPatch::default().annotate(SPEC_ANNOTATION, spec.to_text()))
                    .claim()
            }
            None => MetadataPatch::default().remove_annotation(SPEC_ANNOTATION),
        };
        // If the service was deleted or changed meanwhile, another event follows.
        self.writer.metadata(service, &patch).await.step("write the spec of the load balancer")?;
        // The finalizer tells that there is a load balancer, so there was a spec.
        if current.is_none() && service.finalizers().iter().any(|finalizer| finalizer == LB_FINALIZER) {
            let text = format!(
                "the annotation {SPEC_ANNOTATION} was missing; it was written again, and the load balancer is kept"
            );
            self.notices.warn(Identity::of_object(&**service), RESTORED, text);
        }
        Ok(Action::done())
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Service>) -> Result<Action, LbaasSpecError> {
        self.writer.forget(tombstone.object_ref().uid);
        self.notices.forget(tombstone.object_ref().uid);
        Ok(Action::done())
    }
}

#[cfg(test)]
mod tests;
