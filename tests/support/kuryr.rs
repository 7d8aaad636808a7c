//! The objects of Kuryr's last releases.

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

/// The finalizers of Kuryr on a pod, a `KuryrPort`, a service and a `KuryrLoadBalancer`.
pub(crate) const POD: &str = "kuryr.openstack.org/pod-finalizer";
pub(crate) const PORT: &str = "kuryr.openstack.org/kuryrport-finalizer";
pub(crate) const SERVICE: &str = "kuryr.openstack.org/service-finalizer";
pub(crate) const BALANCER: &str = "kuryr.openstack.org/kuryrloadbalancer-finalizers";

/// The custom resources of this kind in the namespace `default`.
pub(crate) fn resources(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("openstack.org", "v1", kind));
    Api::namespaced_with(client.clone(), "default", &resource)
}

/// Defines the custom resources.
pub(crate) async fn define(client: &Client) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for (kind, plural) in [
        ("KuryrPort", "kuryrports"),
        ("KuryrLoadBalancer", "kuryrloadbalancers"),
        ("KuryrNetwork", "kuryrnetworks"),
        ("KuryrNetworkPolicy", "kuryrnetworkpolicies"),
    ] {
        let schema =
            json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        let definition = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.openstack.org") },
            "spec": { "group": "openstack.org", "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }] } });
        let definition = serde_json::from_value(definition).unwrap();
        definitions.create(&PostParams::default(), &definition).await.unwrap();
    }
}

/// Creates a custom resource with a finalizer, whose owner has the same name. `more` contains its other fields.
pub(crate) async fn create(
    client: &Client,
    (kind, finalizer): (&str, &str),
    owner: (&str, &str, &str),
    more: Value,
) {
    let (owner_kind, name, uid) = owner;
    let owner = json!({ "apiVersion": "v1", "kind": owner_kind, "name": name, "uid": uid });
    let mut object = json!({ "apiVersion": "openstack.org/v1", "kind": kind,
        "metadata": { "name": name, "finalizers": [finalizer], "ownerReferences": [owner] } });
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object = serde_json::from_value(object).unwrap();
    resources(client, kind).create(&PostParams::default(), &object).await.unwrap();
}
