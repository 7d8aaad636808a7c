//! The drivers of OpenStack, by the names that they have in kuryr.conf.

mod services;
mod vifs;

use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::{
    DriverError, NamespaceProjectDriver, NamespaceSubnetDriver, NetworkPolicyDriver, PodProjectDriver,
    PodSecurityGroupsDriver, PodSubnetsDriver, ProjectId, ServiceProjectDriver, ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::{Failure, Registry, Setup, SetupError, causes};
use staffetta_openstack::{
    AnnotationProject, Cloud, DefaultPodSubnets, DefaultProject, DefaultSecurityGroups,
    DefaultServiceSubnets, Environment, NamespaceNetworks, NamespacePodSubnets, NamespaceSubnetOptions,
    Namespaces, NeutronDefaults, NeutronOptions, NeutronSecurityGroups, Subnets,
};

use super::vif_pool::chosen;
use crate::metrics::CloudRequests;

/// Adds the drivers, in the cloud that the section `[neutron]` names.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<NeutronOptions>("neutron");
    registry.section::<NeutronDefaults>("neutron_defaults");
    registry.section::<NamespaceSubnetOptions>("namespace_subnet");
    projects(registry);
    subnets(registry);
    security_groups(registry);
    vifs::drivers(registry);
    services::drivers(registry);
}

fn projects(registry: &mut Registry) {
    const DEFAULT: &str = "OpenStack: the project of [neutron_defaults].";
    const ANNOTATION: &str =
        "OpenStack: the project that the namespace names by openstack.org/kuryr-project.";
    registry.driver::<dyn PodProjectDriver>("default", DEFAULT, |setup| Ok(default_project(setup)?));
    registry.driver::<dyn ServiceProjectDriver>("default", DEFAULT, |setup| Ok(default_project(setup)?));
    registry.driver::<dyn NamespaceProjectDriver>("default", DEFAULT, |setup| Ok(default_project(setup)?));
    registry.driver::<dyn PodProjectDriver>("annotation", ANNOTATION, |setup| Ok(annotation_project(setup)?));
    registry
        .driver::<dyn ServiceProjectDriver>("annotation", ANNOTATION, |setup| Ok(annotation_project(setup)?));
    registry.driver::<dyn NamespaceProjectDriver>("annotation", ANNOTATION, |setup| {
        Ok(annotation_project(setup)?)
    });
}

fn subnets(registry: &mut Registry) {
    registry.driver::<dyn PodSubnetsDriver>(
        "default",
        "OpenStack: the pod_subnet of [neutron_defaults].",
        |setup| {
            let subnet = required(defaults(setup)?.pod_subnet, "neutron_defaults.pod_subnet")?;
            Ok(Arc::new(DefaultPodSubnets { subnets: known_subnets(setup)?, subnet }))
        },
    );
    registry.driver::<dyn PodSubnetsDriver>(
        "namespace",
        "OpenStack: the subnet of the namespace, which the handler `namespace` makes.",
        |setup| {
            let (subnets, namespaces) = (known_subnets(setup)?, known_namespaces(setup)?);
            Ok(Arc::new(NamespacePodSubnets { subnets, namespaces }))
        },
    );
    registry.driver::<dyn ServiceSubnetsDriver>(
        "default",
        "OpenStack: the service_subnet of [neutron_defaults].",
        |setup| {
            let subnet = required(defaults(setup)?.service_subnet, "neutron_defaults.service_subnet")?;
            Ok(Arc::new(DefaultServiceSubnets(subnet)))
        },
    );
    registry.driver::<dyn NamespaceSubnetDriver>(
        "namespace",
        "OpenStack: a network with a subnet of the pool of [namespace_subnet], joined by its router.",
        |setup| {
            let options: NamespaceSubnetOptions = setup.section("namespace_subnet")?;
            let pool = required(options.pod_subnet_pool, "namespace_subnet.pod_subnet_pool")?;
            let (network, cluster) = (cloud(setup)?.network(), setup.cluster_id()?.into());
            let networks = NamespaceNetworks::new(network, cluster, pool, options.pod_router);
            // Without a pool nobody needs a VIF driver here.
            Ok(Arc::new(match setup.driver_name::<dyn VifPoolDriver>()?.as_str() {
                "noop" => networks,
                _ => networks.vacated_by(setup.driver::<dyn VifPoolDriver>()?),
            }))
        },
    );
}

fn security_groups(registry: &mut Registry) {
    const ABOUT: &str = "OpenStack: the pod_security_groups of [neutron_defaults].";
    const POLICIES: &str = "OpenStack: security groups in the project of [neutron_defaults].";
    registry.driver::<dyn PodSecurityGroupsDriver>("default", ABOUT, |setup| {
        Ok(Arc::new(DefaultSecurityGroups(defaults(setup)?.pod_security_groups)))
    });
    registry.driver::<dyn NetworkPolicyDriver>("default", POLICIES, network_policies);
    registry.driver::<dyn ServiceSecurityGroupsDriver>("default", ABOUT, |setup| {
        Ok(Arc::new(DefaultSecurityGroups(defaults(setup)?.pod_security_groups)))
    });
}

/// Security groups are of one project, and so are the ports that have them.
fn network_policies(setup: &Setup) -> Result<Arc<dyn NetworkPolicyDriver>, SetupError> {
    let by = chosen(setup, "pod_project_driver", "memory")?;
    if by != "default" {
        let wrong = format!(
            "`kubernetes.network_policy_driver = \"default\"` needs `kubernetes.pod_project_driver = \"default\"`, and \
             not \"{by}\": security groups guard the ports of one project"
        );
        return Err(SetupError::Invalid(wrong));
    }
    let project = required(defaults(setup)?.project, "neutron_defaults.project")?;
    let cloud = cloud(setup)?;
    Ok(Arc::new(NeutronSecurityGroups::new(&cloud, setup.cluster_id()?.into(), project)))
}

fn default_project(setup: &Setup) -> Result<Arc<DefaultProject>, SetupError> {
    let project = required(defaults(setup)?.project, "neutron_defaults.project")?;
    Ok(Arc::new(DefaultProject(project)))
}

fn annotation_project(setup: &Setup) -> Result<Arc<AnnotationProject>, SetupError> {
    let default: Option<ProjectId> = defaults(setup)?.project;
    Ok(Arc::new(AnnotationProject::new(known_namespaces(setup)?, default)))
}

/// The options of `[neutron_defaults]`.
pub(super) fn defaults(setup: &Setup) -> Result<NeutronDefaults, SetupError> {
    setup.section("neutron_defaults")
}

fn required<T>(option: Option<T>, name: &str) -> Result<T, SetupError> {
    option.ok_or_else(|| SetupError::Invalid(format!("`{name}` is missing")))
}

/// All drivers share what is known of subnets.
fn known_subnets(setup: &Setup) -> Result<Arc<Subnets>, SetupError> {
    setup.shared(|| Ok(Subnets::new(cloud(setup)?.network(), &defaults(setup)?)))
}

/// All drivers share what is known of namespaces.
fn known_namespaces(setup: &Setup) -> Result<Arc<Namespaces>, SetupError> {
    setup.shared(|| Ok(Namespaces::default()))
}

/// All drivers share one cloud, and with it its connections, its token and its limits.
pub(super) fn cloud(setup: &Setup) -> Result<Arc<Cloud>, SetupError> {
    setup.shared(|| {
        let options: NeutronOptions = setup.section("neutron")?;
        let access = options.access(&Environment::of_the_process());
        let access = access.map_err(|error| SetupError::Invalid(error.to_string()))?;
        let requests = setup.shared(|| Ok(CloudRequests::default()))?;
        let cloud = Cloud::new(access, requests);
        let cloud = cloud.map_err(|error| SetupError::Invalid(causes(&error)))?;
        let network = cloud.network();
        setup.check("openstack", move || {
            let network = network.clone();
            async move {
                let asked = network.has_extension("standard-attr-tag").await;
                asked.map(drop).map_err(|error| Unreachable(DriverError::from(error)).into())
            }
        });
        Ok(cloud)
    })
}

/// Neutron or Octavia does not answer, or not us.
#[derive(Debug, thiserror::Error)]
#[error("OpenStack cannot be used as the section [neutron] says")]
struct Unreachable(#[source] DriverError);

impl Failure for Unreachable {
    fn transient(&self) -> bool {
        self.0.transient()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after()
    }
}
