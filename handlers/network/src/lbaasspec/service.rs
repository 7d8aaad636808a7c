//! The fields of a service that its load balancer depends on.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use staffetta_driver::Protocol;

use super::annotation::{LbaasPortSpec, LbaasServiceSpec, ServiceType};
use super::error::LbaasSpecError;
use crate::versioned_object::Versioned;

/// The value of `spec.loadBalancerClass` in services that this program shall serve. This program
/// also serves services without a load balancer class.
pub const LOAD_BALANCER_CLASS: &str = "staffetta.dev/lb";

/// The number of characters of an invalid value that its error quotes.
const QUOTED: usize = 60;

/// The fields of a service that its load balancer depends on, parsed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServiceFields {
    /// The first cluster IP of the service.
    pub(super) ip: IpAddr,
    /// The requested public address; `None` if there is none, or if the type is not `LoadBalancer`.
    pub(super) lb_ip: Option<IpAddr>,
    /// The ports, sorted: their order in the service means nothing.
    pub(super) ports: Vec<LbaasPortSpec>,
    /// The type of the service.
    pub(super) service_type: ServiceType,
}

impl ServiceFields {
    /// Parses the fields of `service`. Returns `None` if the service gets no load balancer, and an
    /// error if a field is invalid.
    pub(super) fn of(service: &Service) -> Result<Option<Self>, LbaasSpecError> {
        let Some(spec) = service.spec.as_ref().filter(|_| gets_load_balancer(service)) else {
            return Ok(None);
        };
        let Some(ip) = cluster_ip(spec) else { return Ok(None) };
        let service_type = service_type(spec)?;
        let lb_ip = spec.load_balancer_ip.as_deref();
        let lb_ip = lb_ip.filter(|ip| service_type == ServiceType::LoadBalancer && !ip.is_empty());
        let mut ports = spec.ports.iter().flatten().map(port).collect::<Result<Vec<_>, _>>()?;
        ports.sort_unstable();
        Ok(Some(Self {
            ip: address("spec.clusterIP", ip)?,
            lb_ip: lb_ip.map(|ip| address("spec.loadBalancerIP", ip)).transpose()?,
            ports,
            service_type,
        }))
    }
}

impl LbaasServiceSpec {
    /// Returns `true` if this spec has the addresses, ports and type of `service`. They differ
    /// between a change of the service and the update of the annotation by the handler `lbaasspec`,
    /// or if another program wrote the annotation.
    pub(crate) fn matches(&self, service: &Service) -> bool {
        let fields = ServiceFields {
            ip: self.ip,
            lb_ip: self.lb_ip.filter(|_| self.service_type == ServiceType::LoadBalancer),
            ports: self.ports.iter().map(|Versioned(port)| port.clone()).collect(),
            service_type: self.service_type,
        };
        ServiceFields::of(service).is_ok_and(|of_service| of_service == Some(fields))
    }
}

/// Returns `true` if a service gets a load balancer.
pub(crate) fn gets_load_balancer(service: &Service) -> bool {
    no_load_balancer_reason(service).is_none()
}

/// Returns the reason why a service gets no load balancer; `None` if it gets one. A selector is not
/// required, because endpoints may be managed manually.
pub(super) fn no_load_balancer_reason(service: &Service) -> Option<&'static str> {
    let Some(spec) = &service.spec else { return Some("it has no spec") };
    let (namespace, name) = (service.metadata.namespace.as_deref(), service.metadata.name.as_deref());
    if (namespace, name) == (Some("default"), Some("kubernetes")) {
        return Some("it is the service of the API server, which has addresses of its own");
    }
    if spec.type_.as_deref() == Some("ExternalName") {
        return Some("it is of type ExternalName, which needs no load balancer");
    }
    let none = "it has no cluster IP: it is headless, or the API server has not assigned one yet";
    cluster_ip(spec).is_none().then_some(none)
}

/// Returns `true` if `spec.loadBalancerClass` names another controller.
pub(super) fn has_foreign_class(spec: &ServiceSpec) -> bool {
    spec.load_balancer_class.as_deref().is_some_and(|class| class != LOAD_BALANCER_CLASS)
}

/// Returns the assigned cluster IP. Returns `None` if no cluster IP is assigned yet, which leaves
/// the field empty, and for a headless service, whose field has the value `None`.
fn cluster_ip(spec: &ServiceSpec) -> Option<&str> {
    spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None")
}

/// Parses `spec.type`. A `LoadBalancer` whose class belongs to another controller becomes a
/// `NodePort`.
fn service_type(spec: &ServiceSpec) -> Result<ServiceType, LbaasSpecError> {
    let ours = !has_foreign_class(spec);
    match spec.type_.as_deref() {
        None | Some("ClusterIP") => Ok(ServiceType::ClusterIP),
        Some("LoadBalancer") if ours => Ok(ServiceType::LoadBalancer),
        Some("NodePort" | "LoadBalancer") => Ok(ServiceType::NodePort),
        Some(other) => Err(invalid("spec.type", other, "ClusterIP, NodePort or LoadBalancer")),
    }
}

/// Parses a port of the service. The protocol defaults to TCP.
fn port(port: &ServicePort) -> Result<LbaasPortSpec, LbaasSpecError> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let number = port.port;
    Ok(LbaasPortSpec {
        name: port.name.clone().filter(|name| !name.is_empty()),
        port: u16::try_from(number)
            .map_err(|_| invalid("spec.ports.port", &number.to_string(), "a port number"))?,
        protocol: protocol
            .parse::<Protocol>()
            .map_err(|_| invalid("spec.ports.protocol", protocol, "TCP, UDP or SCTP"))?,
    })
}

/// Parses `text`, the value of the field `field`, as an IP address.
fn address(field: &'static str, text: &str) -> Result<IpAddr, LbaasSpecError> {
    text.parse().map_err(|_| invalid(field, text, "an IP address"))
}

/// Returns the error for an invalid field or annotation, with a shortened value.
pub(crate) fn invalid(field: &'static str, found: &str, expected: &'static str) -> LbaasSpecError {
    LbaasSpecError::Field { field, found: found.chars().take(QUOTED).collect(), expected }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, spec: &Value) -> Service {
        let service = json!({ "metadata": { "namespace": "default", "name": name }, "spec": spec });
        serde_json::from_value(service).unwrap()
    }

    fn web(spec: &Value) -> Option<ServiceFields> {
        ServiceFields::of(&service("web", spec)).unwrap()
    }

    #[test]
    fn services_of_all_types_with_a_cluster_ip_are_balanced_with_and_without_a_selector() {
        for service_type in ["ClusterIP", "NodePort", "LoadBalancer"] {
            let without = json!({ "type": service_type, "clusterIP": "10.0.0.1" });
            let with = json!({ "type": service_type, "clusterIP": "10.0.0.1", "selector": { "app": "web" } });
            assert!(
                gets_load_balancer(&service("web", &without)) && gets_load_balancer(&service("web", &with))
            );
        }
    }

    #[test]
    fn headless_external_and_unassigned_services_and_that_of_the_api_server_are_not() {
        for spec in [
            json!({ "clusterIP": "None" }),
            json!({ "type": "ExternalName", "externalName": "example.com" }),
            json!({ "type": "ExternalName", "clusterIP": "10.0.0.1" }),
            json!({ "clusterIP": "" }),
            json!({}),
        ] {
            assert_eq!(web(&spec), None, "{spec}");
        }
        assert!(!gets_load_balancer(&service("kubernetes", &json!({ "clusterIP": "10.0.0.1" }))));
        assert!(!gets_load_balancer(&Service::default()));
    }

    #[test]
    fn a_public_address_is_wanted_only_of_a_load_balancer_whose_class_is_ours() {
        let type_and_ip = |class: Value| {
            let spec = json!({ "type": "LoadBalancer", "clusterIP": "10.0.0.1", "loadBalancerClass": class,
                "loadBalancerIP": "192.0.2.1" });
            let fields = web(&spec).unwrap();
            (fields.service_type, fields.lb_ip.is_some())
        };
        assert_eq!(type_and_ip(Value::Null), (ServiceType::LoadBalancer, true));
        assert_eq!(type_and_ip(json!(LOAD_BALANCER_CLASS)), (ServiceType::LoadBalancer, true));
        assert_eq!(type_and_ip(json!("example.com/other")), (ServiceType::NodePort, false));
    }

    #[test]
    fn ports_have_their_defaults() {
        let fields = web(&json!({ "clusterIP": "fd00::1", "ports": [
            { "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" } ] }));
        let expected = [
            LbaasPortSpec { name: None, port: 80, protocol: Protocol::Tcp },
            LbaasPortSpec { name: Some("dns".into()), port: 53, protocol: Protocol::Udp },
        ];
        assert_eq!(fields.unwrap().ports, expected);
    }

    #[test]
    fn an_invalid_field_is_an_error_that_names_it() {
        for (spec, field) in [
            (json!({ "clusterIP": "ten" }), "spec.clusterIP"),
            (json!({ "clusterIP": "10.0.0.1", "type": "Mesh" }), "spec.type"),
            (json!({ "clusterIP": "10.0.0.1", "ports": [{ "port": 70000 }] }), "spec.ports.port"),
            (
                json!({ "clusterIP": "10.0.0.1", "ports": [{ "port": 1, "protocol": "X" }] }),
                "spec.ports.protocol",
            ),
            (
                json!({ "clusterIP": "10.0.0.1", "type": "LoadBalancer", "loadBalancerIP": "x" }),
                "spec.loadBalancerIP",
            ),
        ] {
            let error = ServiceFields::of(&service("web", &spec)).unwrap_err().to_string();
            assert!(error.contains(field) && error.ends_with("correct or remove it"), "{error}");
        }
    }
}
