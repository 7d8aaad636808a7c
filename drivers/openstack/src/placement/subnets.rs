//! The drivers `default` and `namespace` of pod subnets, and the reader of subnets that all drivers share.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use staffetta_driver::{
    ClusterId, DriverError, NAMESPACE_NETWORK, NamespaceObserver, Network, PodSubnetsDriver, ProjectId,
    Reason, Route, Subnet, SubnetId, Uid,
};

use super::defaults::NeutronDefaults;
use super::namespaces::{Namespaces, REWRITTEN};
use crate::cached::Cached;
use crate::cloud::Service;
use crate::error::{DriverResult, Result};
use crate::mark;
use crate::text::{is_well_formed, or_default};

const READ: &str = "read a subnet";

/// The time for which a subnet is cached. Its CIDR never changes; its name servers and routes may.
const SUBNET_TTL: Duration = Duration::from_secs(300);

/// Subnets of Neutron by their ids.
pub(crate) type SubnetMap = HashMap<SubnetId, Subnet>;

/// A reader of subnets and their networks in Neutron, which caches each for five minutes.
#[derive(Debug)]
pub struct Subnets {
    network: Service,
    defaults: NeutronDefaults,
    cluster: ClusterId,
    cached: Cached<SubnetId, KnownSubnet>,
}

/// A cached subnet.
#[derive(Clone, Debug)]
struct KnownSubnet {
    /// The project that owns the subnet.
    project: ProjectId,
    /// The namespace in the ownership mark of the network; `None` for a network without a mark of this cluster, or of another project than
    /// those of the configuration.
    namespace: Option<Uid>,
    subnet: Subnet,
}

/// A subnet in a response of Neutron.
#[derive(Deserialize)]
struct SubnetBody {
    #[serde(default)]
    project_id: ProjectId,
    network_id: String,
    cidr: IpNet,
    gateway_ip: Option<IpAddr>,
    #[serde(default)]
    dns_nameservers: Vec<IpAddr>,
    #[serde(default)]
    host_routes: Vec<RouteBody>,
}

/// A static route of a subnet in a response.
#[derive(Deserialize)]
struct RouteBody {
    destination: IpNet,
    nexthop: IpAddr,
}

/// A network in a response of Neutron.
#[derive(Deserialize)]
struct NetworkBody {
    name: Option<String>,
    #[serde(default)]
    project_id: ProjectId,
    #[serde(default, deserialize_with = "or_default")]
    description: String,
    #[serde(default, deserialize_with = "or_default")]
    mtu: u32,
}

impl Subnets {
    /// Creates the reader of subnets, which recognizes the ownership marks of `cluster`. The Open vSwitch bridge of `defaults` is used for
    /// every network. A `network_device_mtu` above zero replaces the MTU of the network.
    pub fn new(network: Service, defaults: &NeutronDefaults, cluster: ClusterId) -> Self {
        Self { network, defaults: defaults.clone(), cluster, cached: Cached::new(SUBNET_TTL) }
    }

    /// Returns the subnet with this id. The id may come from a user: if it does not have the form of an id, the error is
    /// [`Reason::NotFound`], as for a subnet that does not exist.
    pub async fn subnet(&self, id: &SubnetId) -> DriverResult<Subnet> {
        Ok(self.known(id).await?.subnet)
    }

    /// Returns the subnet that the annotation of the namespace `name` names, if the ownership mark of its network names the namespace too. If
    /// it does not, somebody else wrote the annotation, and the error is [`Reason::Awaited`] until it is written again.
    pub(crate) async fn of_namespace(&self, namespaces: &Namespaces, name: &str) -> DriverResult<Subnet> {
        let (uid, named) = namespaces.network(name)?;
        let known = self.known(&named.subnet).await?;
        if known.namespace == Some(uid) && known.subnet.network.id == named.network {
            return Ok(known.subnet);
        }
        let text = format!("names in {NAMESPACE_NETWORK} a subnet that was not created for it; {REWRITTEN}");
        Err(namespaces.awaited(name, &text))
    }

    /// Returns a subnet with its owners, from the cache or from Neutron.
    async fn known(&self, id: &SubnetId) -> DriverResult<KnownSubnet> {
        if !is_well_formed(id.as_str()) {
            let shortened: String = id.as_str().chars().take(60).collect();
            return Err(
                DriverError::new(Reason::NotFound, READ).detail(format!("{shortened:?} is not an id"))
            );
        }
        Ok(self.cached.get(id, || self.fetch(id)).await?)
    }

    /// Returns the subnet with this id, which a user names for a pod of `project`: a subnet of the project, or one of
    /// `neutron_defaults.additional_subnets`. For any other, the error is [`Reason::Refused`].
    pub async fn additional(&self, id: &SubnetId, project: &ProjectId) -> DriverResult<Subnet> {
        let KnownSubnet { project: owner, subnet, .. } = self.known(id).await?;
        if owner == *project || self.defaults.additional_subnets.contains(id) {
            return Ok(subnet);
        }
        let detail = format!(
            "the subnet {id} does not belong to the project of the pod; to let all pods use it, add it to \
             `neutron_defaults.additional_subnets`"
        );
        Err(DriverError::new(Reason::Refused, READ).detail(detail))
    }

    /// Reads a subnet and its network from Neutron.
    async fn fetch(&self, id: &SubnetId) -> Result<KnownSubnet> {
        let subnet = self.network.get(READ, format!("subnets/{id}"));
        let subnet: SubnetBody = subnet.json_member("subnet").await?;
        let network = self.network.get("read a network", format!("networks/{}", subnet.network_id));
        let network: NetworkBody = network.json_member("network").await?;
        let project = subnet.project_id;
        let is_ours = self.network.owns(&network.project_id);
        let owner = mark::owner_in(&network.description, &self.cluster).filter(|_| is_ours);
        let subnet = Subnet {
            id: id.clone(),
            network: Network {
                label: network.name.filter(|name| !name.is_empty()),
                bridge: self.defaults.ovs_bridge.clone(),
                mtu: [self.defaults.network_device_mtu, network.mtu].into_iter().find(|mtu| *mtu > 0),
                ..Network::new(subnet.network_id.into())
            },
            cidr: subnet.cidr,
            gateway: subnet.gateway_ip,
            dns: subnet.dns_nameservers,
            routes: subnet
                .host_routes
                .into_iter()
                .map(|route| Route { cidr: route.destination, gateway: route.nexthop })
                .collect(),
        };
        Ok(KnownSubnet { project, namespace: owner.map(|owner| owner.uid), subnet })
    }
}

/// The driver `default` of pod subnets: one subnet for all pods.
pub struct DefaultPodSubnets {
    /// The reader of the subnet in Neutron, with a cache.
    pub subnets: Arc<Subnets>,
    /// The subnet of all pods.
    pub subnet: SubnetId,
}

#[async_trait]
impl PodSubnetsDriver for DefaultPodSubnets {
    async fn subnets(&self, _: &Pod, _: &ProjectId) -> DriverResult<Vec<Subnet>> {
        Ok(vec![self.subnets.subnet(&self.subnet).await?])
    }

    async fn subnet(&self, id: &SubnetId, project: &ProjectId) -> DriverResult<Subnet> {
        self.subnets.additional(id, project).await
    }
}

/// The driver `namespace` of pod subnets: each pod is in the subnet of its namespace, which the handler `namespace` creates.
pub struct NamespacePodSubnets {
    /// The reader of the subnets in Neutron, with a cache.
    pub subnets: Arc<Subnets>,
    /// The namespaces of the Kubernetes cluster, whose annotations contain the ids of their subnets.
    pub namespaces: Arc<Namespaces>,
}

#[async_trait]
impl PodSubnetsDriver for NamespacePodSubnets {
    async fn subnets(&self, pod: &Pod, _: &ProjectId) -> DriverResult<Vec<Subnet>> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        Ok(vec![self.subnets.of_namespace(&self.namespaces, namespace).await?])
    }

    async fn subnet(&self, id: &SubnetId, project: &ProjectId) -> DriverResult<Subnet> {
        self.subnets.additional(id, project).await
    }

    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        Some(Arc::clone(&self.namespaces) as _)
    }
}
