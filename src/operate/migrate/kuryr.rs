//! The custom resources of Kuryr's last releases.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Client, Error};
use serde_json::Value;
use staffetta_network::kuryr;

use crate::base::connect::{list, none_if_missing};

/// The API version of Kuryr's custom resources.
pub(super) const API_VERSION: &str = "openstack.org/v1";

/// The namespace (empty for a cluster-scoped object) and the name of an object.
pub(super) type ObjectKey = (String, String);

/// The custom resources of one kind, by namespace and name.
pub(super) type KuryrResources = BTreeMap<ObjectKey, DynamicObject>;

/// All custom resources of Kuryr in the cluster, by kind.
#[derive(Clone, Default)]
pub(super) struct KuryrObjects {
    /// The `KuryrPort`s. Each has the name of its pod.
    pub(super) ports: KuryrResources,
    /// The `KuryrLoadBalancer`s. Each has the name of its service.
    pub(super) load_balancers: KuryrResources,
    /// The `KuryrNetwork`s. Each is in the namespace whose network it records, and has the name of that namespace.
    pub(super) networks: KuryrResources,
    /// The `KuryrNetworkPolicy`s. Each has the name of its policy.
    pub(super) policies: KuryrResources,
}

/// A kind of Kuryr's custom resources: its name in the field `kind`, and its plural.
#[derive(Clone, Copy)]
pub(super) struct KuryrKind(pub(super) &'static str, &'static str);

impl KuryrKind {
    /// The kind `KuryrPort`, which records the ports of a pod.
    pub(super) const PORT: Self = Self("KuryrPort", "kuryrports");
    /// The kind `KuryrLoadBalancer`, which records the load balancer of a service.
    pub(super) const LOAD_BALANCER: Self = Self("KuryrLoadBalancer", "kuryrloadbalancers");
    /// The kind `KuryrNetwork`, which records the network of a namespace.
    pub(super) const NETWORK: Self = Self("KuryrNetwork", "kuryrnetworks");
    /// The kind `KuryrNetworkPolicy`, which records the security group of a network policy.
    pub(super) const NETWORK_POLICY: Self = Self("KuryrNetworkPolicy", "kuryrnetworkpolicies");

    /// Returns the names under which the API server serves the kind.
    pub(super) fn resource(self) -> ApiResource {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("openstack.org", "v1", self.0), self.1)
    }

    /// Lists the objects of this kind; none if the server does not have its definition. Fails if they cannot be read.
    async fn read(self, client: &Client) -> Result<KuryrResources, Error> {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &self.resource());
        let objects = list(ListParams::default(), async |page| api.list(page).await).await;
        Ok(none_if_missing(objects)?.into_iter().map(|object| (key_of(&object), object)).collect())
    }
}

impl KuryrObjects {
    /// Lists Kuryr's custom resources of all kinds. Fails if those of one kind cannot be read.
    pub(super) async fn read(client: &Client) -> Result<Self, Error> {
        Ok(Self {
            ports: KuryrKind::PORT.read(client).await?,
            load_balancers: KuryrKind::LOAD_BALANCER.read(client).await?,
            networks: KuryrKind::NETWORK.read(client).await?,
            policies: KuryrKind::NETWORK_POLICY.read(client).await?,
        })
    }
}

/// Returns the namespace and the name of an object.
pub(super) fn key_of(object: &impl ResourceExt) -> ObjectKey {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Returns the finalizers of Kuryr on an object.
pub(super) fn finalizers_of(object: &impl ResourceExt) -> Vec<String> {
    object.finalizers().iter().filter(|finalizer| kuryr::is_finalizer(finalizer)).cloned().collect()
}

/// Returns the UID of the owner that a custom resource names, that of its pod, service, namespace or policy; `None` without an owner.
pub(super) fn owner_uid(object: &DynamicObject) -> Option<&str> {
    object.metadata.owner_references.iter().flatten().map(|owner| owner.uid.as_str()).next()
}

/// Returns the string at a JSON pointer in `data`, such as `text(&port.data, "/spec/podUid")`; `None` if it is missing or empty.
pub(super) fn text<'a>(data: &'a Value, pointer: &str) -> Option<&'a str> {
    data.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
}
