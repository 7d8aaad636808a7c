//! Registers the drivers of OpenStack under the names that they have in `kuryr.conf`.

mod diagnosis;
mod services;
mod vifs;

use std::sync::Arc;

use serde_json::json;
use staffetta_driver::{
    DriverError, NamespaceProjectDriver, NamespaceSubnetDriver, NetworkPolicyDriver, PodProjectDriver,
    PodSecurityGroupsDriver, PodSubnetsDriver, ServiceProjectDriver, ServiceSecurityGroupsDriver,
    ServiceSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::{Registry, Setup, SetupError, causes};
use staffetta_openstack::{
    AnnotationProject, Cloud, DefaultPodSubnets, DefaultProject, DefaultSecurityGroups,
    DefaultServiceSubnets, Environment, NamespaceNetworks, NamespacePodSubnets, NamespaceSubnetOptions,
    Namespaces, NeutronDefaults, NeutronOptions, NeutronSecurityGroups, Subnets,
};

use super::family::DriverFamily;
use super::fence;
use super::unreachable::Unreachable;
use crate::base::config::KubernetesOptions;
use crate::base::metrics::Metrics;
use diagnosis::{CATEGORY, declare_created, needs_extension, needs_quotas};

/// The description of the drivers that return the project of `[neutron_defaults]`.
const PROJECT: &str = "OpenStack: the project of [neutron_defaults].";
/// The description of the drivers that read the project from an annotation of the namespace.
const ANNOTATION: &str =
    "OpenStack: the project in the annotation openstack.org/kuryr-project of the namespace.";
/// The description of the driver that creates a network for each namespace.
const NAMESPACE: &str =
    "OpenStack: a network with a subnet from the subnet pool of [namespace_subnet], connected to its router.";
/// The description of the drivers that return the security groups of `[neutron_defaults]`.
const GROUPS: &str = "OpenStack: the pod_security_groups of [neutron_defaults].";

/// Registers all drivers of OpenStack, and their sections.
pub(super) fn drivers(registry: &mut Registry) {
    registry.section::<NeutronOptions>("neutron");
    registry.section::<NeutronDefaults>("neutron_defaults");
    registry.section::<NamespaceSubnetOptions>("namespace_subnet");
    drivers! { registry, setup:
        dyn PodProjectDriver, "default", PROJECT => default_project(setup)?;
        dyn ServiceProjectDriver, "default", PROJECT => default_project(setup)?;
        dyn NamespaceProjectDriver, "default", PROJECT => default_project(setup)?;
        dyn PodProjectDriver, "annotation", ANNOTATION => annotation_project(setup)?;
        dyn ServiceProjectDriver, "annotation", ANNOTATION => annotation_project(setup)?;
        dyn NamespaceProjectDriver, "annotation", ANNOTATION => annotation_project(setup)?;
        dyn PodSubnetsDriver, "default", "OpenStack: the pod_subnet of [neutron_defaults]." => {
            let subnet = required(defaults(setup)?.pod_subnet, "neutron_defaults.pod_subnet")?;
            Arc::new(DefaultPodSubnets { subnets: shared_subnets(setup)?, subnet })
        };
        dyn PodSubnetsDriver, "namespace", "OpenStack: the subnet of the namespace, which the handler `namespace` creates." =>
            Arc::new(NamespacePodSubnets { subnets: shared_subnets(setup)?, namespaces: shared_namespaces(setup)? });
        dyn ServiceSubnetsDriver, "default", "OpenStack: the service_subnet of [neutron_defaults]." => {
            let subnet = required(defaults(setup)?.service_subnet, "neutron_defaults.service_subnet")?;
            Arc::new(DefaultServiceSubnets(subnet))
        };
        dyn NamespaceSubnetDriver, "namespace", NAMESPACE => Arc::new(namespace_networks(setup)?);
        dyn PodSecurityGroupsDriver, "default", GROUPS => Arc::new(DefaultSecurityGroups(defaults(setup)?.pod_security_groups));
        dyn ServiceSecurityGroupsDriver, "default", GROUPS => Arc::new(DefaultSecurityGroups(defaults(setup)?.pod_security_groups));
        dyn NetworkPolicyDriver, "default", "OpenStack: security groups in the project of [neutron_defaults]." =>
            Arc::new(network_policies(setup)?);
    }
    vifs::drivers(registry);
    services::drivers(registry);
}

/// Creates the driver of networks for namespaces, which needs the option `namespace_subnet.pod_subnet_pool` and Neutron's extension
/// `subnet_allocation`. With a VIF pool, the ports that the pool keeps in a network are deleted before the network.
fn namespace_networks(setup: &Setup) -> Result<NamespaceNetworks, SetupError> {
    let options: NamespaceSubnetOptions = setup.section("namespace_subnet")?;
    let pool = required(options.pod_subnet_pool, "namespace_subnet.pod_subnet_pool")?;
    let (cloud, cluster) = (cloud(setup)?, setup.cluster_id()?.into());
    needs_extension(setup, &cloud, "subnet_allocation", "namespace_subnet_driver = \"namespace\"");
    declare_created(setup, &["network", "subnet"])?;
    let network = cloud.network();
    let networks = NamespaceNetworks::new(network, cluster, pool, options.pod_router);
    // Without a pool no VIF driver is needed here, and without the handler `vif` no pool is started.
    let KubernetesOptions { enabled_handlers, .. } = setup.section("kubernetes")?;
    let has_pods = enabled_handlers.iter().any(|handler| handler == "vif");
    Ok(match setup.driver_name::<dyn VifPoolDriver>()?.as_str() {
        name if has_pods && name != "noop" => networks.with_pool(setup.driver::<dyn VifPoolDriver>()?),
        _ => networks,
    })
}

/// Builds the driver of network policies. A security group belongs to one project, so this fails unless all pods are in one project.
fn network_policies(setup: &Setup) -> Result<NeutronSecurityGroups, SetupError> {
    let by = setup.driver_name::<dyn PodProjectDriver>()?;
    if by != "default" {
        let wrong = format!(
            "`kubernetes.network_policy_driver = \"default\"` needs `kubernetes.pod_project_driver = \"default\"`, and \
             not \"{by}\": security groups apply to the ports of one project"
        );
        return Err(SetupError::Invalid(wrong));
    }
    let project = required(defaults(setup)?.project, "neutron_defaults.project")?;
    let cloud = cloud(setup)?;
    needs_extension(setup, &cloud, "security-group", "network_policy_driver = \"default\"");
    declare_created(setup, &["security_group", "security_group_rule"])?;
    Ok(NeutronSecurityGroups::new(&cloud, setup.cluster_id()?.into(), project))
}

/// Creates the driver that returns the project of `[neutron_defaults]`; fails if none is set.
fn default_project(setup: &Setup) -> Result<Arc<DefaultProject>, SetupError> {
    let project = required(defaults(setup)?.project, "neutron_defaults.project")?;
    Ok(Arc::new(DefaultProject(project)))
}

/// Creates the driver that reads the project from an annotation of the namespace.
fn annotation_project(setup: &Setup) -> Result<Arc<AnnotationProject>, SetupError> {
    // The driver reads namespaces only, so it is of no family.
    let defaults: NeutronDefaults = setup.section("neutron_defaults")?;
    let projects = defaults.all_projects();
    Ok(Arc::new(AnnotationProject::new(shared_namespaces(setup)?, defaults.project, projects)))
}

/// Returns the options of `[neutron_defaults]`. Fails if a simulated driver is in use.
pub(super) fn defaults(setup: &Setup) -> Result<NeutronDefaults, SetupError> {
    DriverFamily::Real.select(setup)?;
    setup.section("neutron_defaults")
}

/// Returns the value of the option `name` (`section.option`), an id; fails with [`SetupError::Missing`] if it is not set.
fn required<T>(option: Option<T>, name: &str) -> Result<T, SetupError> {
    let (section, key) = name.split_once('.').unwrap_or_default();
    let stand_in = json!({ section: { key: "0" } });
    option.ok_or_else(|| SetupError::Missing { message: format!("`{name}` is missing"), stand_in })
}

/// Returns the error of a check for the case that Neutron or Octavia does not respond, or rejects the credentials.
fn unusable(error: impl Into<DriverError>) -> Unreachable {
    Unreachable::new("OpenStack cannot be used with the options of the section [neutron]", error.into())
}

/// Returns the cache of Neutron subnets, which all drivers of OpenStack share.
fn shared_subnets(setup: &Setup) -> Result<Arc<Subnets>, SetupError> {
    let create = || Ok(Subnets::new(cloud(setup)?.network(), &defaults(setup)?, setup.cluster_id()?.into()));
    setup.shared(create)
}

/// Returns the index of the observed namespaces, which all drivers of OpenStack share.
fn shared_namespaces(setup: &Setup) -> Result<Arc<Namespaces>, SetupError> {
    setup.shared(|| Ok(Namespaces::default()))
}

/// Returns the client of OpenStack, whose token and limits all drivers share. The first call adds a readiness check and, if
/// `neutron_defaults.project` is set, a check of the project's quotas in Neutron.
pub(super) fn cloud(setup: &Setup) -> Result<Arc<Cloud>, SetupError> {
    DriverFamily::Real.select(setup)?;
    setup.shared(|| {
        let options: NeutronOptions = setup.section("neutron")?;
        let access = options.access(&Environment::from_process());
        let access = access.map_err(|error| {
            let url = "http://unknown.invalid";
            let no_url = error.problems.len() == 1 && error.problems[0].location == "neutron.auth_url";
            let stand_in = if no_url && options.auth_url.is_none() {
                json!({ "neutron": { "auth_url": url } })
            } else {
                json!({ "neutron": {
                    "auth_type": "none", "endpoint_override": url, "load_balancer_endpoint_override": url } })
            };
            SetupError::Missing { message: error.to_string(), stand_in }
        })?;
        let requests = Arc::clone(&setup.shared(|| Ok(Metrics::default()))?.cloud_requests);
        let cloud = Cloud::fenced(access, requests, fence(setup)?);
        let cloud = cloud.map_err(|error| SetupError::Invalid(causes(&error)))?;
        let cloud = cloud.in_projects(defaults(setup)?.all_projects());
        let network = cloud.network();
        setup.check("openstack", move || {
            let network = network.clone();
            async move {
                let asked = network.has_extension("standard-attr-tag").await;
                asked.map(drop).map_err(|error| unusable(error).into())
            }
        });
        if let Some(project) = defaults(setup)?.project {
            let unknown =
                "not known: the user may not read them, or Neutron lacks the extension quota_details";
            let remedy = "see whether `openstack quota show --usage` has room";
            needs_quotas(setup, CATEGORY, cloud.network(), project, (unknown, remedy))?;
        }
        Ok(cloud)
    })
}
