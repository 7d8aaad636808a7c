//! Reads all that the plan of a migration from Kuryr depends on: the objects of Kubernetes and of Kuryr, and the resources of the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Endpoints, Namespace, Node, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use staffetta_driver::{
    AdoptionDriver, ExistingAttachment, ExistingLoadBalancer, ExistingNetwork, ExistingPort,
    ExistingPublicIp, PodVifDriver, ServiceProjectDriver, SubnetId, VifPoolDriver,
};
use staffetta_handler::{Setup, causes};
use staffetta_network::lb::STATE_ANNOTATION;
use staffetta_network::lbaasspec::{LbaasServiceSpec, LbaasSpecDrivers};

use super::MigrateError;
use super::kuryr::{API_VERSION, KuryrObjects, ObjectKey, finalizers_of, key_of};
use crate::base::config::Configuration;
use crate::base::connect::list;
use crate::engine::cluster::ClusterInfo;

/// The name of Kuryr's Deployment, and the value of the label `name` or `app` of its pods, in all of its manifests.
const CONTROLLER: &str = "kuryr-controller";

/// All that the plan of a migration from Kuryr depends on: the objects of Kubernetes, the resources of the cloud, and the configuration.
#[derive(Clone, Default)]
pub(super) struct ClusterState {
    /// The pods of the cluster.
    pub(super) pods: Vec<Pod>,
    /// The services of the cluster.
    pub(super) services: Vec<Service>,
    /// The load balancer spec that the configured drivers choose for each service that Kuryr manages, or the error of a driver. `None` for
    /// a service that gets no load balancer. Empty unless the handlers `lb` and `lbaasspec` are enabled.
    pub(super) specs: BTreeMap<ObjectKey, Result<Option<LbaasServiceSpec>, String>>,
    /// The states of load balancers in annotations of `Endpoints`, where the first releases of Kuryr wrote them.
    pub(super) states_on_endpoints: BTreeMap<ObjectKey, String>,
    /// The namespaces of the cluster.
    pub(super) namespaces: Vec<Namespace>,
    /// The network policies of the cluster.
    pub(super) policies: Vec<NetworkPolicy>,
    /// The names of the nodes.
    pub(super) nodes: BTreeSet<String>,
    /// The IP addresses of the nodes.
    pub(super) node_ips: BTreeSet<IpAddr>,
    /// The custom resources of Kuryr.
    pub(super) kuryr: KuryrObjects,
    /// The Neutron ports of pods in the projects of the configuration.
    pub(super) ports: Vec<ExistingPort>,
    /// The load balancers in the projects of the configuration; empty if Kuryr has none to take over.
    pub(super) load_balancers: Vec<ExistingLoadBalancer>,
    /// The floating IPs in the projects of the configuration; empty if Kuryr has no load balancers to take over.
    pub(super) public_ips: Vec<ExistingPublicIp>,
    /// The networks in the projects of the configuration; empty if there are neither `KuryrNetwork`s nor subports of trunks.
    pub(super) networks: Vec<ExistingNetwork>,
    /// The names of the enabled handlers.
    pub(super) handlers: BTreeSet<String>,
    /// The option `neutron_defaults.pod_subnet`, the subnet of pods; `None` if it is not set.
    pub(super) pod_subnet: Option<SubnetId>,
    /// The names of the VIF drivers that the configuration uses.
    pub(super) vif_drivers: BTreeSet<String>,
    /// The Deployments of Kuryr's controller that have replicas, and its pods that have not ended, as `Deployment NAMESPACE/NAME` or
    /// `Pod NAMESPACE/NAME`.
    pub(super) running_kuryr: Vec<String>,
}

impl ClusterState {
    /// Reads the state from the cluster of `setup`, from `configuration`, and from the projects of the configuration through `cloud`. Fails
    /// if a part of it cannot be read.
    pub(super) async fn read(
        setup: &Setup,
        configuration: &Configuration,
        cluster: &ClusterInfo,
        cloud: &dyn AdoptionDriver,
    ) -> Result<Self, MigrateError> {
        let client = setup.client();
        let kuryr = if cluster.serves(API_VERSION) {
            KuryrObjects::read(&client).await.map_err(MigrateError::api)?
        } else {
            KuryrObjects::default()
        };
        let nodes: Vec<Node> = all(&client).await?;
        let mut state = Self {
            pods: all(&client).await?,
            services: all(&client).await?,
            states_on_endpoints: states_on_endpoints(&client).await?,
            namespaces: all(&client).await?,
            policies: all(&client).await?,
            node_ips: nodes.iter().flat_map(addresses).collect(),
            nodes: nodes.iter().map(ResourceExt::name_any).collect(),
            kuryr,
            ports: cloud.ports().await?,
            handlers: configuration.kubernetes.enabled_handlers.iter().cloned().collect(),
            vif_drivers: vif_drivers(setup, configuration)?,
            pod_subnet: configuration.value["neutron_defaults"]["pod_subnet"].as_str().map(SubnetId::from),
            ..Self::default()
        };
        state.running_kuryr = running_kuryr(&client, &state.pods).await?;
        let managed: Vec<_> =
            state.services.iter().filter(|service| state.is_kuryrs(service)).cloned().collect();
        if !managed.is_empty() || !state.kuryr.load_balancers.is_empty() {
            state.load_balancers = cloud.load_balancers().await?;
            state.public_ips = cloud.public_ips().await?;
        }
        if !managed.is_empty() && state.has_handlers(&["lb", "lbaasspec"]) {
            state.specs = specs(setup, &state.namespaces, &managed).await?;
        }
        // The subnets of an idle subport are compared with those of the namespaces, also without a record of them.
        let is_subport = |port: &ExistingPort| matches!(port.attachment, ExistingAttachment::Trunk { .. });
        if !state.kuryr.networks.is_empty() || state.ports.iter().any(is_subport) {
            state.networks = cloud.networks().await?;
        }
        Ok(state)
    }

    /// Returns `true` if all handlers with these names are enabled.
    pub(super) fn has_handlers(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.handlers.contains(*name))
    }

    /// Returns `true` if Kuryr manages the load balancer of `service`, or managed it before a migration that has not ended.
    pub(super) fn is_kuryrs(&self, service: &Service) -> bool {
        let key = key_of(service);
        let is_annotated = || {
            service.annotations().contains_key(STATE_ANNOTATION)
                || self.states_on_endpoints.contains_key(&key)
        };
        let is_ours =
            || service.finalizers().iter().any(|finalizer| finalizer == staffetta_network::lb::FINALIZER);
        self.kuryr.load_balancers.contains_key(&key)
            || !finalizers_of(service).is_empty()
            || (is_annotated() && !is_ours())
    }
}

/// Lists all objects of a kind in all namespaces. Fails if the API server does not return them.
async fn all<K>(client: &Client) -> Result<Vec<K>, MigrateError>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api = Api::<K>::all(client.clone());
    list(ListParams::default(), async |page| api.list(page).await).await.map_err(MigrateError::api)
}

/// Reads the load balancer states in annotations of `Endpoints`, by the namespace and name of the `Endpoints`. Fails if these cannot be
/// listed.
async fn states_on_endpoints(client: &Client) -> Result<BTreeMap<ObjectKey, String>, MigrateError> {
    let endpoints: Vec<Endpoints> = all(client).await?;
    let state =
        |object: &Endpoints| Some((key_of(object), object.annotations().get(STATE_ANNOTATION)?.clone()));
    Ok(endpoints.iter().filter_map(state).collect())
}

/// Returns the IP addresses in the status of a node.
fn addresses(node: &Node) -> Vec<IpAddr> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    addresses.into_iter().flatten().filter_map(|address| address.address.parse().ok()).collect()
}

/// Returns the names of the VIF drivers that the configuration uses. With `multi_pool`, they include those of its mapping. Fails if the
/// driver trait of VIFs or that of VIF pools is not registered.
fn vif_drivers(setup: &Setup, configuration: &Configuration) -> Result<BTreeSet<String>, MigrateError> {
    let mut drivers = BTreeSet::from([setup.driver_name::<dyn PodVifDriver>()?]);
    if setup.driver_name::<dyn VifPoolDriver>()? == "multi_pool" {
        let mapping = configuration.value["vif_pool"]["vif_pool_mapping"].as_object();
        drivers.extend(mapping.into_iter().flat_map(|mapping| mapping.keys().cloned()));
    }
    Ok(drivers)
}

/// Returns the load balancer spec that the configured drivers choose for each of `services`, or the error of a driver. `None` for
/// a service that gets no load balancer.
async fn specs(
    setup: &Setup,
    namespaces: &[Namespace],
    services: &[Service],
) -> Result<BTreeMap<ObjectKey, Result<Option<LbaasServiceSpec>, String>>, MigrateError> {
    let project = setup.driver::<dyn ServiceProjectDriver>()?;
    if let Some(observer) = project.namespaces() {
        for namespace in namespaces {
            observer.present(namespace);
        }
    }
    let placement = LbaasSpecDrivers { project, subnets: setup.driver()?, security_groups: setup.driver()? };
    let mut specs = BTreeMap::new();
    for service in services {
        let spec = placement.spec(service).await.map_err(|error| causes(&error));
        specs.insert(key_of(service), spec);
    }
    Ok(specs)
}

/// Finds the Deployments of Kuryr's controller with replicas, and its pods that have not ended. A controller that runs outside of the
/// cluster is not found. Fails if the Deployments cannot be listed.
async fn running_kuryr(client: &Client, pods: &[Pod]) -> Result<Vec<String>, MigrateError> {
    let deployments: Vec<Deployment> = all(client).await?;
    let scaled = deployments.iter().filter(|deployment| {
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        deployment.name_any() == CONTROLLER && replicas > 0
    });
    let is_running = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let has_label = |key: &str| pod.labels().get(key).is_some_and(|value| value == CONTROLLER);
        (has_label("name") || has_label("app")) && !matches!(phase, "Succeeded" | "Failed")
    };
    let name = |kind: &str, (namespace, name): ObjectKey| format!("{kind} {namespace}/{name}");
    let deployments = scaled.map(|deployment| name("Deployment", key_of(deployment)));
    Ok(deployments.chain(pods.iter().filter(is_running).map(|pod| name("Pod", key_of(pod)))).collect())
}
