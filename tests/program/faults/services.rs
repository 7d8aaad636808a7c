//! Services with their `EndpointSlices`, as the handlers `lbaasspec` and `lb` receive them.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use staffetta_apiserver::Requests;

use super::world::World;

/// The annotation of a service's load balancer.
const STATE: &str = "openstack.org/kuryr-lbaas-state";

/// The address of the one endpoint.
const ENDPOINT: &str = "10.10.7.7";

impl World {
    fn web_services(&self) -> Api<Service> {
        Api::namespaced(self.direct.clone(), "default")
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.direct.clone(), "default")
    }

    /// Creates a service and a slice with one endpoint, past the proxy.
    pub(crate) async fn service(&self, name: &str) {
        let service = json!({ "metadata": { "name": name },
            "spec": { "ports": [{ "name": "http", "port": 80, "targetPort": 8080 }] } });
        let slice = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
            "addressType": "IPv4", "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
            "endpoints": [{ "addresses": [ENDPOINT], "conditions": { "ready": true } }] });
        let parameters = PostParams::default();
        self.web_services().create(&parameters, &serde_json::from_value(service).unwrap()).await.unwrap();
        self.slices().create(&parameters, &serde_json::from_value(slice).unwrap()).await.unwrap();
    }

    /// Deletes both, past the proxy.
    pub(crate) async fn end_service(&self, name: &str) {
        self.slices().delete(name, &DeleteParams::default()).await.unwrap();
        self.web_services().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until each of these services shows its load balancer with the endpoint, and nobody else has one.
    pub(crate) async fn until_served(&self, names: &[&str]) {
        self.until(
            &format!("each of {names:?} shows its load balancer and nobody else has one"),
            async || {
                for name in names {
                    let service = self.web_services().get(name).await.unwrap();
                    let text =
                        service.metadata.annotations.unwrap_or_default().remove(STATE).unwrap_or_default();
                    let state: Value = serde_json::from_str(&text).unwrap_or_default();
                    let member = &state["versioned_object.data"]["members"][0]["versioned_object.data"];
                    if member["ip"] != json!(ENDPOINT) {
                        return false;
                    }
                }
                let uids = self.services.load_balancers().into_iter().filter_map(|(owner, _)| owner);
                let mut owners: Vec<_> = uids.map(|owner| owner.name).collect();
                owners.sort();
                let mut names = names.to_vec();
                names.sort_unstable();
                owners == names
            },
        )
        .await;
    }

    /// Waits until the service is gone.
    pub(crate) async fn until_service_is_gone(&self, name: &str) {
        self.until(&format!("the service {name} is gone"), async || {
            self.web_services().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }
}

/// Requests of the controller for services.
pub(crate) fn services(verb: &str) -> Requests {
    Requests::any().verb(verb).resource("services")
}
