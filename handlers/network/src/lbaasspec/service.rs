//! What a service says of the load balancer that it wants: no driver, no API.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use staffetta_driver::Protocol;

use super::annotation::{LbaasPortSpec, LbaasServiceSpec, Reach};
use super::error::LbaasSpecError;
use crate::versioned_object::Versioned;

/// The class of load balancers that is ours by name. A service without a class is ours too.
pub const LOAD_BALANCER_CLASS: &str = "staffetta.dev/lb";

/// What a service itself says of its load balancer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Stated {
    pub(super) ip: IpAddr,
    /// None where no public address is wanted.
    pub(super) lb_ip: Option<IpAddr>,
    pub(super) ports: Vec<LbaasPortSpec>,
    pub(super) reach: Reach,
}

impl LbaasServiceSpec {
    /// Whether it says of address, ports and reach what `service` says itself. It does not while the service has changed and the
    /// spec has not, nor where somebody else wrote it.
    pub(crate) fn is_of(&self, service: &Service) -> bool {
        let told = Stated {
            ip: self.ip,
            lb_ip: self.lb_ip.filter(|_| self.reach == Reach::LoadBalancer),
            ports: self.ports.iter().map(|Versioned(port)| port.clone()).collect(),
            reach: self.reach,
        };
        stated(service).is_ok_and(|stated| stated == Some(told))
    }
}

/// The fields by which a service says it.
pub(crate) fn stating(spec: &ServiceSpec) -> ServiceSpec {
    let port = |port: &ServicePort| ServicePort {
        name: port.name.clone(),
        port: port.port,
        protocol: port.protocol.clone(),
        ..ServicePort::default()
    };
    ServiceSpec {
        cluster_ip: spec.cluster_ip.clone(),
        load_balancer_class: spec.load_balancer_class.clone(),
        load_balancer_ip: spec.load_balancer_ip.clone(),
        ports: spec.ports.as_ref().map(|ports| ports.iter().map(port).collect()),
        type_: spec.type_.clone(),
        ..ServiceSpec::default()
    }
}

/// Whether a service is to have a load balancer: it has a cluster IP, and is not the API server's own service. One
/// without a selector counts: its endpoints are somebody's own work.
pub(super) fn is_balanced(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    let named = |name: Option<&String>, text: &str| name.is_some_and(|name| name == text);
    let api_server = named(service.metadata.namespace.as_ref(), "default")
        && named(service.metadata.name.as_ref(), "kubernetes");
    !api_server && spec.type_.as_deref() != Some("ExternalName") && cluster_ip(spec).is_some()
}

/// What the service says; none when it is to have no load balancer.
pub(super) fn stated(service: &Service) -> Result<Option<Stated>, LbaasSpecError> {
    let Some(spec) = service.spec.as_ref().filter(|_| is_balanced(service)) else { return Ok(None) };
    let Some(ip) = cluster_ip(spec) else { return Ok(None) };
    let reach = reach(spec)?;
    let named = spec.load_balancer_ip.as_deref().filter(|ip| reach == Reach::LoadBalancer && !ip.is_empty());
    Ok(Some(Stated {
        ip: address("spec.clusterIP", ip)?,
        lb_ip: named.map(|ip| address("spec.loadBalancerIP", ip)).transpose()?,
        ports: spec.ports.iter().flatten().map(port).collect::<Result<_, _>>()?,
        reach,
    }))
}

/// The second cluster IP of a service of two families, which nobody here serves: a load balancer has one address.
pub(super) fn second_ip(service: &Service) -> Option<&str> {
    let spec = service.spec.as_ref().filter(|_| is_balanced(service))?;
    spec.cluster_ips.as_ref()?.get(1).map(String::as_str)
}

/// The cluster IP, where there is one: it is absent until it is assigned, and `None` for a headless service.
fn cluster_ip(spec: &ServiceSpec) -> Option<&str> {
    spec.cluster_ip.as_deref().filter(|ip| !ip.is_empty() && *ip != "None")
}

fn reach(spec: &ServiceSpec) -> Result<Reach, LbaasSpecError> {
    let ours = spec.load_balancer_class.as_deref().is_none_or(|class| class == LOAD_BALANCER_CLASS);
    match spec.type_.as_deref() {
        None | Some("ClusterIP") => Ok(Reach::ClusterIP),
        Some("LoadBalancer") if ours => Ok(Reach::LoadBalancer),
        Some("NodePort" | "LoadBalancer") => Ok(Reach::NodePort),
        Some(other) => Err(field("spec.type", other, "type of service that this program knows")),
    }
}

fn port(port: &ServicePort) -> Result<LbaasPortSpec, LbaasSpecError> {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let found = port.port;
    Ok(LbaasPortSpec {
        name: port.name.clone().filter(|name| !name.is_empty()),
        port: u16::try_from(found).map_err(|_| field("spec.ports.port", &found.to_string(), "port"))?,
        protocol: protocol
            .parse::<Protocol>()
            .map_err(|_| field("spec.ports.protocol", protocol, "protocol of TCP, UDP and SCTP"))?,
    })
}

fn address(name: &'static str, text: &str) -> Result<IpAddr, LbaasSpecError> {
    text.parse().map_err(|_| field(name, text, "IP address"))
}

fn field(field: &'static str, found: &str, expected: &'static str) -> LbaasSpecError {
    LbaasSpecError::Field { field, found: found.to_owned(), expected }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, spec: &Value) -> Service {
        let service = json!({ "metadata": { "namespace": "default", "name": name }, "spec": spec });
        serde_json::from_value(service).unwrap()
    }

    fn web(spec: &Value) -> Option<Stated> {
        stated(&service("web", spec)).unwrap()
    }

    #[test]
    fn services_of_all_types_with_a_cluster_ip_are_balanced_with_and_without_a_selector() {
        for reach in ["ClusterIP", "NodePort", "LoadBalancer"] {
            let without = json!({ "type": reach, "clusterIP": "10.0.0.1" });
            let with = json!({ "type": reach, "clusterIP": "10.0.0.1", "selector": { "app": "web" } });
            assert!(is_balanced(&service("web", &without)) && is_balanced(&service("web", &with)));
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
        assert!(!is_balanced(&service("kubernetes", &json!({ "clusterIP": "10.0.0.1" }))));
        assert!(!is_balanced(&Service::default()));
    }

    #[test]
    fn a_public_address_is_wanted_only_of_a_load_balancer_whose_class_is_ours() {
        let reach = |class: Value| {
            let spec = json!({ "type": "LoadBalancer", "clusterIP": "10.0.0.1", "loadBalancerClass": class,
                "loadBalancerIP": "192.0.2.1" });
            let stated = web(&spec).unwrap();
            (stated.reach, stated.lb_ip.is_some())
        };
        assert_eq!(reach(Value::Null), (Reach::LoadBalancer, true));
        assert_eq!(reach(json!(LOAD_BALANCER_CLASS)), (Reach::LoadBalancer, true));
        assert_eq!(reach(json!("example.com/other")), (Reach::NodePort, false));
    }

    #[test]
    fn of_two_cluster_ips_the_first_is_served() {
        let second = |spec: &Value| second_ip(&service("web", spec)).map(str::to_owned);
        let both = json!({ "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "fd00::1"] });
        assert_eq!(second(&both).as_deref(), Some("fd00::1"));
        assert_eq!(web(&both).unwrap().ip, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(second(&json!({ "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"] })), None);
        assert_eq!(second(&json!({ "clusterIP": "None", "clusterIPs": ["None", "fd00::1"] })), None);
    }

    #[test]
    fn ports_have_their_defaults() {
        let stated = web(&json!({ "clusterIP": "fd00::1", "ports": [
            { "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" } ] }));
        let expected = [
            LbaasPortSpec { name: None, port: 80, protocol: Protocol::Tcp },
            LbaasPortSpec { name: Some("dns".into()), port: 53, protocol: Protocol::Udp },
        ];
        assert_eq!(stated.unwrap().ports, expected);
    }

    #[test]
    fn the_fields_that_are_kept_say_the_same() {
        let whole = service(
            "web",
            &json!({ "type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
            "loadBalancerIP": "192.0.2.1", "loadBalancerClass": LOAD_BALANCER_CLASS, "selector": { "app": "web" },
            "ports": [{ "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353, "nodePort": 30053 }] }),
        );
        let fields = stating(whole.spec.as_ref().unwrap());
        assert_eq!((&fields.selector, &fields.cluster_ips), (&None, &None));
        let kept = Service { spec: Some(fields), ..whole.clone() };
        assert!(stated(&whole).unwrap().is_some());
        assert_eq!(stated(&kept).unwrap(), stated(&whole).unwrap());
    }

    #[test]
    fn a_field_that_makes_no_sense_is_named() {
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
            let error = stated(&service("web", &spec)).unwrap_err().to_string();
            assert!(error.contains(field) && error.ends_with("correct or remove it"), "{error}");
        }
    }
}
