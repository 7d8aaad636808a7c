//! The annotation `openstack.org/kuryr-lbaas-state`: the observed load balancer of a service, in
//! Kuryr's format.
//!
//! The annotation contains flat lists of objects of Kuryr's classes; in memory the objects are a
//! tree. The field `settings` of listeners and pools is an extension of this program. It is written
//! only if settings are set; other programs ignore unknown fields. An annotation that another
//! program wrote lacks the field, so the settings are applied again.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use staffetta_driver::{
    Allocation, Listener, ListenerId, ListenerPort, ListenerSettings, LoadBalancer, LoadBalancerId, Member,
    MemberId, MemberSpec, Pool, PoolId, PoolSettings, PortId, ProjectId, Protocol, ProvisioningStatus,
    PublicIp, PublicIpId, SecurityGroupId, SubnetId,
};

use super::state::LbaasState;
use crate::annotation::{AnnotationError, read as read_annotation};
use crate::versioned_object::{Versioned, to_text, versioned_objects};

/// The key of the annotation with the observed load balancer of a service.
pub const STATE_ANNOTATION: &str = "openstack.org/kuryr-lbaas-state";

/// The maximum length of an annotation with members, in bytes; a longer one is written without
/// members. Kubernetes allows 256 KiB for all annotations of an object.
const MAX_LENGTH: usize = 192 * 1024;

// The oldest version that has the fields, so that every later reader understands it.
versioned_objects! { "kuryr_kubernetes":
    StateForm, "LBaaSState", "1.0";
    LoadBalancerForm, "LBaaSLoadBalancer", "1.2";
    ListenerForm, "LBaaSListener", "1.0";
    PoolForm, "LBaaSPool", "1.1";
    MemberForm, "LBaaSMember", "1.0";
    PublicIpForm, "LBaaSPubIp", "1.0";
}

/// The JSON form of Kuryr's class `LBaaSState`, version 1.0: listeners, pools and members in flat lists.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StateForm {
    loadbalancer: Option<Versioned<LoadBalancerForm>>,
    listeners: Vec<Versioned<ListenerForm>>,
    pools: Vec<Versioned<PoolForm>>,
    members: Vec<Versioned<MemberForm>>,
    service_pub_ip_info: Option<Versioned<PublicIpForm>>,
}

/// The JSON form of Kuryr's class `LBaaSLoadBalancer`, version 1.2.
#[derive(Serialize, Deserialize)]
struct LoadBalancerForm {
    id: LoadBalancerId,
    project_id: ProjectId,
    name: String,
    ip: IpAddr,
    subnet_id: SubnetId,
    port_id: PortId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(default)]
    security_groups: Option<Vec<SecurityGroupId>>,
}

/// The JSON form of Kuryr's class `LBaaSListener`, version 1.0, with the field `settings` of this program.
#[derive(Serialize, Deserialize)]
struct ListenerForm {
    id: ListenerId,
    project_id: ProjectId,
    name: String,
    loadbalancer_id: LoadBalancerId,
    protocol: Protocol,
    port: u16,
    #[serde(default, skip_serializing_if = "ListenerSettings::is_default")]
    settings: ListenerSettings,
}

/// The JSON form of Kuryr's class `LBaaSPool`, version 1.1, with the field `settings` of this program.
#[derive(Serialize, Deserialize)]
struct PoolForm {
    id: PoolId,
    project_id: ProjectId,
    name: String,
    loadbalancer_id: LoadBalancerId,
    listener_id: ListenerId,
    protocol: Protocol,
    #[serde(default, skip_serializing_if = "PoolSettings::is_default")]
    settings: PoolSettings,
}

/// The JSON form of Kuryr's class `LBaaSMember`, version 1.0.
#[derive(Serialize, Deserialize)]
struct MemberForm {
    id: MemberId,
    project_id: ProjectId,
    name: String,
    pool_id: PoolId,
    subnet_id: SubnetId,
    ip: IpAddr,
    port: u16,
}

/// The JSON form of Kuryr's class `LBaaSPubIp`, version 1.0.
#[derive(Serialize, Deserialize)]
struct PublicIpForm {
    ip_id: PublicIpId,
    ip_addr: IpAddr,
    alloc_method: Allocation,
}

/// Converts the status of Kuryr's custom resource `KuryrLoadBalancer` to the value of the annotation
/// [`STATE_ANNOTATION`]. The status has the same objects without the envelopes of
/// oslo.versionedobjects. Returns an error if `status` is malformed.
pub fn annotation_of_status(status: &Value) -> Result<String, serde_json::Error> {
    fn versioned<T: DeserializeOwned>(objects: &Value) -> Result<Vec<Versioned<T>>, serde_json::Error> {
        let objects = Option::<Vec<T>>::deserialize(objects)?.unwrap_or_default();
        Ok(objects.into_iter().map(Versioned).collect())
    }
    Ok(to_text(&Versioned(StateForm {
        loadbalancer: Option::deserialize(&status["loadbalancer"])?.map(Versioned),
        listeners: versioned(&status["listeners"])?,
        pools: versioned(&status["pools"])?,
        members: versioned(&status["members"])?,
        service_pub_ip_info: Option::deserialize(&status["service_pub_ip_info"])?.map(Versioned),
    })))
}

/// Returns the load balancer and the public address that `text`, the value of the annotation
/// [`STATE_ANNOTATION`], names. Returns an error if `text` is malformed.
pub fn resources_of_annotation(
    text: &str,
) -> Result<(Option<LoadBalancer>, Option<PublicIp>), AnnotationError> {
    let LbaasState { load_balancer, public_ip, .. } = read(text)?;
    Ok((load_balancer, public_ip))
}

/// Parses the value of the annotation [`STATE_ANNOTATION`]. The result is the state when the annotation
/// was written. Returns an error if `text` is malformed.
pub(super) fn read(text: &str) -> Result<LbaasState, AnnotationError> {
    let Versioned(state) = read_annotation::<Versioned<StateForm>>(STATE_ANNOTATION, text)?;
    let pool_of = |listener: &ListenerId| {
        let pool =
            state.pools.iter().map(|Versioned(pool)| pool).find(|pool| pool.listener_id == *listener)?;
        let members = state.members.iter().map(|Versioned(member)| member);
        let members = members.filter(|member| member.pool_id == pool.id).map(|member| Member {
            id: member.id.clone(),
            spec: MemberSpec {
                ip: member.ip,
                port: member.port,
                name: member.name.clone(),
                subnet: member.subnet_id.clone(),
            },
        });
        Some(Pool { id: pool.id.clone(), settings: pool.settings.clone(), members: members.collect() })
    };
    let listeners = state.listeners.into_iter().map(|Versioned(listener)| Listener {
        pool: pool_of(&listener.id),
        at: ListenerPort { protocol: listener.protocol, port: listener.port },
        settings: listener.settings,
        id: listener.id,
    });
    let listeners = listeners.collect();
    let load_balancer = state.loadbalancer.map(|Versioned(form)| {
        let mut security_groups = form.security_groups.unwrap_or_default();
        security_groups.sort();
        LoadBalancer {
            id: form.id,
            project: form.project_id,
            name: form.name,
            vip: form.ip,
            subnet: form.subnet_id,
            port: form.port_id,
            provider: form.provider,
            security_groups,
            disabled: false,
            status: ProvisioningStatus::Active,
            listeners,
        }
    });
    let public_ip = state.service_pub_ip_info.map(|Versioned(form)| PublicIp {
        id: form.ip_id,
        ip: form.ip_addr,
        allocation: form.alloc_method,
        port: load_balancer.as_ref().map(|load_balancer| load_balancer.port.clone()),
    });
    Ok(LbaasState { load_balancer, public_ip, unmarked: false })
}

/// Formats the value of the annotation [`STATE_ANNOTATION`], without members of pools if it would be
/// longer than 192 KiB. The returned flag is `true` if no members were left out.
pub(super) fn write_bounded(state: &LbaasState) -> (String, bool) {
    let text = write(state);
    if text.len() <= MAX_LENGTH {
        return (text, true);
    }
    let mut bare = state.clone();
    let listeners = bare.load_balancer.iter_mut().flat_map(|found| &mut found.listeners);
    for pool in listeners.filter_map(|listener| listener.pool.as_mut()) {
        pool.members.clear();
    }
    (write(&bare), false)
}

/// Formats the value of the annotation [`STATE_ANNOTATION`]. The public address is included only if it
/// is associated with the load balancer.
pub(super) fn write(state: &LbaasState) -> String {
    let public_ip = state.reachable().map(|public_ip| PublicIpForm {
        ip_id: public_ip.id.clone(),
        ip_addr: public_ip.ip,
        alloc_method: public_ip.allocation,
    });
    let mut form = StateForm { service_pub_ip_info: public_ip.map(Versioned), ..StateForm::default() };
    if let Some(load_balancer) = &state.load_balancer {
        form.loadbalancer = Some(Versioned(LoadBalancerForm {
            id: load_balancer.id.clone(),
            project_id: load_balancer.project.clone(),
            name: load_balancer.name.clone(),
            ip: load_balancer.vip,
            subnet_id: load_balancer.subnet.clone(),
            port_id: load_balancer.port.clone(),
            provider: load_balancer.provider.clone(),
            security_groups: Some(load_balancer.security_groups.clone()),
        }));
        let mut listeners: Vec<_> = load_balancer.listeners.iter().collect();
        listeners.sort_by_key(|listener| listener.at);
        for listener in listeners {
            add_listener(&mut form, load_balancer, listener);
        }
    }
    to_text(&Versioned(form))
}

/// Adds a listener, its pool and the pool's members, sorted, to the flat lists of the annotation in `form`.
fn add_listener(form: &mut StateForm, load_balancer: &LoadBalancer, listener: &Listener) {
    let name = load_balancer.listener_name(listener.at);
    form.listeners.push(Versioned(ListenerForm {
        id: listener.id.clone(),
        project_id: load_balancer.project.clone(),
        name: name.clone(),
        loadbalancer_id: load_balancer.id.clone(),
        protocol: listener.at.protocol,
        port: listener.at.port,
        settings: listener.settings.clone(),
    }));
    let Some(pool) = &listener.pool else { return };
    form.pools.push(Versioned(PoolForm {
        id: pool.id.clone(),
        project_id: load_balancer.project.clone(),
        name,
        loadbalancer_id: load_balancer.id.clone(),
        listener_id: listener.id.clone(),
        protocol: listener.at.protocol,
        settings: pool.settings.clone(),
    }));
    let mut members: Vec<_> = pool.members.iter().collect();
    members.sort_by(|one, other| one.spec.cmp(&other.spec));
    form.members.extend(members.into_iter().map(|member| {
        Versioned(MemberForm {
            id: member.id.clone(),
            project_id: load_balancer.project.clone(),
            name: member.spec.name.clone(),
            pool_id: pool.id.clone(),
            subnet_id: member.spec.subnet.clone(),
            ip: member.spec.ip,
            port: member.spec.port,
        })
    }));
}

#[cfg(test)]
mod tests {
    use staffetta_driver::{Algorithm, SessionPersistence};

    use super::*;
    use crate::lb::testing::{listener, load_balancer, public_ip};

    fn state() -> LbaasState {
        let tree = LoadBalancer {
            listeners: vec![
                listener(Protocol::Tcp, 80, &["10.1.0.1", "10.1.0.2"]),
                Listener { pool: None, ..listener(Protocol::Tcp, 443, &[]) },
                listener(Protocol::Udp, 53, &["10.1.0.1"]),
            ],
            ..load_balancer("default/web", "10.0.0.1")
        };
        LbaasState {
            load_balancer: Some(tree),
            public_ip: Some(public_ip(Allocation::Pool)),
            unmarked: false,
        }
    }

    #[test]
    fn the_format_is_kuryrs_with_sorted_keys() {
        let envelope = |name: &str, version: &str, data: Value| {
            serde_json::json!({ "versioned_object.name": name, "versioned_object.namespace": "kuryr_kubernetes",
                "versioned_object.version": version, "versioned_object.data": data })
        };
        let tree = LoadBalancer {
            listeners: vec![listener(Protocol::Tcp, 80, &["10.1.0.1"])],
            ..load_balancer("default/web", "10.0.0.1")
        };
        let state = LbaasState { load_balancer: Some(tree), ..state() };
        let mut expected = envelope(
            "LBaaSState",
            "1.0",
            serde_json::json!({
                "loadbalancer": envelope("LBaaSLoadBalancer", "1.2", serde_json::json!({
                    "id": "lb", "project_id": "memory", "name": "default/web", "ip": "10.0.0.1", "subnet_id": "services",
                    "port_id": "port", "provider": "memory", "security_groups": ["default"] })),
                "listeners": [envelope("LBaaSListener", "1.0", serde_json::json!({
                    "id": "listener-TCP:80", "project_id": "memory", "name": "default/web:TCP:80", "loadbalancer_id": "lb",
                    "protocol": "TCP", "port": 80 }))],
                "pools": [envelope("LBaaSPool", "1.1", serde_json::json!({
                    "id": "pool-TCP:80", "project_id": "memory", "name": "default/web:TCP:80", "loadbalancer_id": "lb",
                    "listener_id": "listener-TCP:80", "protocol": "TCP" }))],
                "members": [envelope("LBaaSMember", "1.0", serde_json::json!({
                    "id": "member-TCP:80-10.1.0.1", "project_id": "memory", "name": "default/10.1.0.1:8080",
                    "pool_id": "pool-TCP:80", "subnet_id": "services", "ip": "10.1.0.1", "port": 8080 }))],
                "service_pub_ip_info": envelope("LBaaSPubIp", "1.0", serde_json::json!({
                    "ip_id": "public", "ip_addr": "203.0.113.7", "alloc_method": "pool" })),
            }),
        );
        expected.sort_all_objects();
        assert_eq!(write(&state), expected.to_string());
    }

    #[test]
    fn reading_restores_the_written_state() {
        assert_eq!(read(&write(&state())).unwrap(), state());
        assert_eq!(read(&write(&LbaasState::default())).unwrap(), LbaasState::default());
    }

    #[test]
    fn settings_are_written_in_fields_of_our_own_and_only_if_set() {
        let mut changed = state();
        let plain = write(&changed);
        assert!(!plain.contains("settings"), "{plain}");
        let listener = &mut changed.load_balancer.as_mut().unwrap().listeners[0];
        listener.settings.client_timeout_ms = Some(5000);
        listener.settings.allowed_cidrs = vec!["192.0.2.0/24".parse().unwrap()];
        let pool = listener.pool.as_mut().unwrap();
        pool.settings.persistence = Some(SessionPersistence { timeout_s: Some(60) });
        pool.settings.algorithm = Some(Algorithm::SourceIp);
        let text = write(&changed);
        assert!(
            text.contains(r#""settings":{"allowed_cidrs":["192.0.2.0/24"],"client_timeout_ms":5000}"#),
            "{text}"
        );
        assert_eq!(read(&text).unwrap(), changed);
        assert_eq!(read(&plain).unwrap(), state(), "an annotation of another program has none");
    }

    #[test]
    fn older_and_newer_versions_are_read() {
        let text = write(&state());
        for version in ["1.4", "1.0"] {
            let version = format!(
                r#""LBaaSLoadBalancer","versioned_object.namespace":"kuryr_kubernetes","versioned_object.version":"{version}""#
            );
            let ours = r#""LBaaSLoadBalancer","versioned_object.namespace":"kuryr_kubernetes","versioned_object.version":"1.2""#;
            assert!(text.contains(ours), "{text}");
            assert_eq!(read(&text.replace(ours, &version)).unwrap(), state());
        }
        let nulls = text
            .replace(r#""provider":"memory""#, r#""provider":null"#)
            .replace(r#""security_groups":["default"]"#, r#""security_groups":null"#);
        let read = read(&nulls).unwrap().load_balancer.unwrap();
        assert_eq!((read.provider, read.security_groups), (None, Vec::new()));
    }

    #[test]
    fn an_address_without_an_association_is_not_written() {
        let mut state = state();
        state.public_ip.as_mut().unwrap().port = None;
        assert_eq!(read(&write(&state)).unwrap().public_ip, None);
    }

    #[test]
    fn the_error_for_a_malformed_annotation_names_the_remedy() {
        for text in ["[", "{}", r#"{"versioned_object.name":"Other"}"#] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(STATE_ANNOTATION) && error.contains("remove it"), "{error}");
        }
    }
}
