//! The annotation `openstack.org/kuryr-lbaas-spec`: what load balancer a service wants.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use staffetta_driver::{ListenerPort, ProjectId, Protocol, SecurityGroupId, SubnetId};

use crate::annotation::{AnnotationError, read};
use crate::versioned_object::{Versioned, VersionedObject, to_text};

/// The name of the annotation.
pub const SPEC_ANNOTATION: &str = "openstack.org/kuryr-lbaas-spec";

/// What load balancer a service wants: Kuryr's class `LBaaSServiceSpec`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LbaasServiceSpec {
    /// The service's cluster IP.
    pub ip: IpAddr,
    /// The public address that the user named.
    #[serde(default)]
    pub lb_ip: Option<IpAddr>,
    /// The service's ports.
    pub ports: Vec<Versioned<LbaasPortSpec>>,
    /// The project of the load balancer.
    pub project_id: ProjectId,
    /// The security groups of the load balancer, sorted.
    #[serde(default)]
    pub security_groups_ids: Vec<SecurityGroupId>,
    /// The subnet of the cluster IP.
    pub subnet_id: SubnetId,
    /// How the service is reached.
    #[serde(rename = "type")]
    pub reach: Reach,
}

/// How a service is reached: as its type says, less a `LoadBalancer` that is somebody else's to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reach {
    /// By its cluster IP.
    ClusterIP,
    /// By its cluster IP and, which is kube-proxy's work, by a port of each node.
    NodePort,
    /// By a public address too.
    LoadBalancer,
}

/// A port of a service: Kuryr's class `LBaaSPortSpec`. Version 1.1 adds the target port, which nobody here needs: members
/// are found by the name of the port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LbaasPortSpec {
    /// The name, by which endpoints name the same port; none where the service has one port without a name.
    #[serde(default)]
    pub name: Option<String>,
    /// The port on which the service is reached.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

impl LbaasPortSpec {
    /// The listener that serves this port.
    pub fn listener(&self) -> ListenerPort {
        ListenerPort { protocol: self.protocol, port: self.port }
    }
}

impl VersionedObject for LbaasServiceSpec {
    const NAMESPACE: &'static str = "kuryr_kubernetes";
    const NAME: &'static str = "LBaaSServiceSpec";
    const VERSION: &'static str = "1.0";
}

impl VersionedObject for LbaasPortSpec {
    const NAMESPACE: &'static str = "kuryr_kubernetes";
    const NAME: &'static str = "LBaaSPortSpec";
    const VERSION: &'static str = "1.0";
}

impl LbaasServiceSpec {
    /// The spec that stands on `service`.
    pub fn of(service: &Service) -> Result<Option<Self>, AnnotationError> {
        let text = service.annotations().get(SPEC_ANNOTATION);
        text.map(|text| Self::read(text)).transpose()
    }

    /// Reads the text of the annotation.
    pub fn read(text: &str) -> Result<Self, AnnotationError> {
        let Versioned(mut spec) = read::<Versioned<Self>>(SPEC_ANNOTATION, text)?;
        spec.security_groups_ids.sort();
        Ok(spec)
    }

    /// The text of the annotation.
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
            reach: Reach::ClusterIP,
        }
    }

    #[test]
    fn the_text_is_kuryrs_with_sorted_keys() {
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
    fn what_is_malformed_is_named_with_the_remedy() {
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
