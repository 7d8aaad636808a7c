//! The annotation `openstack.org/kuryr-lbaas-spec`: the desired load balancer of a service, in
//! Kuryr's format.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use staffetta_driver::{ProjectId, Protocol, SecurityGroupId, SubnetId};

use crate::annotation::{AnnotationError, read};
use crate::versioned_object::{Versioned, to_text, versioned_objects};

/// The key of the annotation with the desired load balancer of a service.
pub const SPEC_ANNOTATION: &str = "openstack.org/kuryr-lbaas-spec";

/// The desired load balancer of a service: Kuryr's class `LBaaSServiceSpec`, version 1.0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LbaasServiceSpec {
    /// The cluster IP of the service.
    pub ip: IpAddr,
    /// The public address that the service requests in `spec.loadBalancerIP`; `None` if the service
    /// requests none.
    #[serde(default)]
    pub lb_ip: Option<IpAddr>,
    /// The ports of the service, sorted.
    pub ports: Vec<Versioned<LbaasPortSpec>>,
    /// The project of the load balancer.
    pub project_id: ProjectId,
    /// The security groups of the load balancer, sorted by id.
    #[serde(default)]
    pub security_groups_ids: Vec<SecurityGroupId>,
    /// The subnet of the cluster IP.
    pub subnet_id: SubnetId,
    /// The type of the service, which decides if the load balancer gets a public address.
    #[serde(rename = "type")]
    pub service_type: ServiceType,
}

/// The type of a service that has a load balancer. A service of type `LoadBalancer` whose load
/// balancer class belongs to another controller counts as `NodePort`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceType {
    /// A service that is reachable at its cluster IP.
    ClusterIP,
    /// A service that is reachable at its cluster IP and, through kube-proxy, at a port of each
    /// node.
    NodePort,
    /// A service that is also reachable at a public address.
    LoadBalancer,
}

/// A port of a service: Kuryr's class `LBaaSPortSpec`, version 1.0. The field `targetPort` of
/// version 1.1 is ignored, because the endpoints of a port are found by the name of the port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LbaasPortSpec {
    /// The name of the port, which the endpoints use, too; `None` if the service has only one port,
    /// without a name.
    #[serde(default)]
    pub name: Option<String>,
    /// The port number of the service at its cluster IP.
    pub port: u16,
    /// The transport protocol of the port.
    pub protocol: Protocol,
}

versioned_objects! { "kuryr_kubernetes":
    LbaasServiceSpec, "LBaaSServiceSpec", "1.0";
    LbaasPortSpec, "LBaaSPortSpec", "1.0";
}

impl LbaasServiceSpec {
    /// Parses the annotation `openstack.org/kuryr-lbaas-spec` of `service`. Returns `None` if the
    /// service does not have the annotation, and an error if the annotation is malformed.
    pub fn of(service: &Service) -> Result<Option<Self>, AnnotationError> {
        let text = service.annotations().get(SPEC_ANNOTATION);
        text.map(|text| Self::read(text)).transpose()
    }

    /// Parses the value of the annotation `openstack.org/kuryr-lbaas-spec`. Returns an error if `text` is malformed.
    pub fn read(text: &str) -> Result<Self, AnnotationError> {
        let Versioned(mut spec) = read::<Versioned<Self>>(SPEC_ANNOTATION, text)?;
        spec.security_groups_ids.sort();
        spec.ports.sort_by(|Versioned(one), Versioned(other)| one.cmp(other));
        Ok(spec)
    }

    /// Formats the value of the annotation `openstack.org/kuryr-lbaas-spec`: JSON in one line with sorted keys.
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
