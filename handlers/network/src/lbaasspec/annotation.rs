//! The annotation `openstack.org/kuryr-lbaas-spec`: the load balancer that a service wants.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use staffetta_driver::{ListenerPort, ProjectId, Protocol, SecurityGroupId, SubnetId};

use crate::annotation::{AnnotationError, read};
use crate::versioned_object::{Versioned, to_text, versioned_objects};

/// The key of the annotation.
pub const SPEC_ANNOTATION: &str = "openstack.org/kuryr-lbaas-spec";

/// Kuryr's class `LBaaSServiceSpec`: the load balancer that a service wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LbaasServiceSpec {
    /// The cluster IP of the service.
    pub ip: IpAddr,
    /// The public address that the service requests in `spec.loadBalancerIP`.
    #[serde(default)]
    pub lb_ip: Option<IpAddr>,
    /// The ports of the service.
    pub ports: Vec<Versioned<LbaasPortSpec>>,
    /// The project of the load balancer.
    pub project_id: ProjectId,
    /// The security groups of the load balancer, sorted.
    #[serde(default)]
    pub security_groups_ids: Vec<SecurityGroupId>,
    /// The subnet of the cluster IP.
    pub subnet_id: SubnetId,
    /// The type of the service.
    #[serde(rename = "type")]
    pub service_type: ServiceType,
}

/// The type of a service that has a load balancer. A `LoadBalancer` of another class counts as
/// `NodePort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceType {
    /// Reachable at its cluster IP.
    ClusterIP,
    /// Reachable at its cluster IP and, through kube-proxy, at a port of each node.
    NodePort,
    /// Reachable at a public address as well.
    LoadBalancer,
}

/// Kuryr's class `LBaaSPortSpec`: a port of a service. The target port of version 1.1 is ignored,
/// because endpoints are matched by the name of the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LbaasPortSpec {
    /// The name that the endpoints use for the same port; none for the only port of a service
    /// without a name.
    #[serde(default)]
    pub name: Option<String>,
    /// The port at the cluster IP.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

impl LbaasPortSpec {
    /// The protocol and port of the listener for this port.
    pub fn listener(&self) -> ListenerPort {
        ListenerPort { protocol: self.protocol, port: self.port }
    }
}

versioned_objects! { "kuryr_kubernetes":
    LbaasServiceSpec, "LBaaSServiceSpec", "1.0";
    LbaasPortSpec, "LBaaSPortSpec", "1.0";
}

impl LbaasServiceSpec {
    /// Reads the annotation of `service`, if it has one.
    pub fn of(service: &Service) -> Result<Option<Self>, AnnotationError> {
        let text = service.annotations().get(SPEC_ANNOTATION);
        text.map(|text| Self::read(text)).transpose()
    }

    /// Parses the value of the annotation.
    pub fn read(text: &str) -> Result<Self, AnnotationError> {
        let Versioned(mut spec) = read::<Versioned<Self>>(SPEC_ANNOTATION, text)?;
        spec.security_groups_ids.sort();
        Ok(spec)
    }

    /// Formats the value of the annotation.
    pub fn to_text(&self) -> String {
        to_text(&Versioned(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn envelope(name: &str, version: &str, data: &Value) -> Value {
        json!({ "versioned_object.name": name, "versioned_object.namespace": "kuryr_kubernetes",
            "versioned_object.version": version, "versioned_object.data": data })
    }

    fn data(port: &Value) -> Value {
        json!({ "ip": "10.0.0.130", "lb_ip": null, "ports": [port], "project_id": "p",
            "security_groups_ids": ["g2", "g1"], "subnet_id": "s", "type": "ClusterIP" })
    }

    fn spec() -> LbaasServiceSpec {
        LbaasServiceSpec {
            ip: [10, 0, 0, 130].into(),
            lb_ip: None,
            ports: vec![Versioned(LbaasPortSpec {
                name: Some("http".into()),
                port: 80,
                protocol: Protocol::Tcp,
            })],
            project_id: "p".into(),
            security_groups_ids: vec!["g1".into(), "g2".into()],
            subnet_id: "s".into(),
            service_type: ServiceType::ClusterIP,
        }
    }

    #[test]
    fn the_format_is_kuryrs_with_sorted_keys() {
        let expected = concat!(
            r#"{"versioned_object.data":{"ip":"10.0.0.130","lb_ip":null,"ports":["#,
            r#"{"versioned_object.data":{"name":"http","port":80,"protocol":"TCP"},"#,
            r#""versioned_object.name":"LBaaSPortSpec","versioned_object.namespace":"kuryr_kubernetes","#,
            r#""versioned_object.version":"1.0"}],"#,
            r#""project_id":"p","security_groups_ids":["g1","g2"],"subnet_id":"s","type":"ClusterIP"},"#,
            r#""versioned_object.name":"LBaaSServiceSpec","versioned_object.namespace":"kuryr_kubernetes","#,
            r#""versioned_object.version":"1.0"}"#,
        );
        assert_eq!(spec().to_text(), expected);
    }

    #[test]
    fn the_older_and_the_newer_form_of_a_port_are_read() {
        let older =
            envelope("LBaaSPortSpec", "1.0", &json!({ "name": "http", "port": 80, "protocol": "TCP" }));
        let newer = json!({ "name": "http", "port": 80, "protocol": "TCP", "targetPort": "8080" });
        let newer = envelope("LBaaSPortSpec", "1.1", &newer);
        for port in [older, newer] {
            let text = envelope("LBaaSServiceSpec", "1.0", &data(&port)).to_string();
            assert_eq!(LbaasServiceSpec::read(&text).unwrap(), spec());
        }
    }

    #[test]
    fn a_port_without_a_name_is_read_and_written() {
        let port = envelope("LBaaSPortSpec", "1.0", &json!({ "name": null, "port": 80, "protocol": "UDP" }));
        let read =
            LbaasServiceSpec::read(&envelope("LBaaSServiceSpec", "1.0", &data(&port)).to_string()).unwrap();
        assert_eq!(read.ports[0].0, LbaasPortSpec { name: None, port: 80, protocol: Protocol::Udp });
        assert_eq!(LbaasServiceSpec::read(&read.to_text()).unwrap(), read);
    }

    #[test]
    fn the_error_for_a_malformed_annotation_names_the_remedy() {
        let port = envelope("LBaaSPortSpec", "1.0", &json!({ "port": 80, "protocol": "HTTP" }));
        let foreign = envelope("LBaaSServiceSpec", "1.0", &data(&port)).to_string();
        for text in ["not JSON", "{}", &foreign, &envelope("LBaaSState", "1.0", &json!({})).to_string()] {
            let error = LbaasServiceSpec::read(text).unwrap_err().to_string();
            assert!(
                error.contains("openstack.org/kuryr-lbaas-spec") && error.contains("remove it"),
                "{error}"
            );
        }
    }
}
