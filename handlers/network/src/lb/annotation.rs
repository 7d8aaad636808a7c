//! The annotation `openstack.org/kuryr-lbaas-state`: what load balancer a service has.
//!
//! It is a flat list of five classes; here and in the drivers it is a tree. How listeners and pools treat connections is
//! told by fields of our own, where anything is: readers of these classes skip what they do not know. A list that somebody
//! else wrote lacks them, and then that is brought back.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use staffetta_driver::{
    Allocation, Listener, ListenerId, ListenerPort, ListenerSettings, LoadBalancer, LoadBalancerId, Member,
    MemberId, MemberSpec, Pool, PoolId, PoolSettings, PortId, ProjectId, Protocol, Provisioning, PublicIp,
    PublicIpId, SecurityGroupId, SubnetId,
};

use super::standing::Standing;
use crate::annotation::{AnnotationError, read as read_annotation};
use crate::versioned_object::{Versioned, VersionedObject, to_text};

/// The name of the annotation.
pub const STATE_ANNOTATION: &str = "openstack.org/kuryr-lbaas-state";

/// The longest text with members, in bytes. Kubernetes takes 256 KiB of annotations of one object, and there are others.
const LONGEST: usize = 192 * 1024;

macro_rules! classes {
    ($($class:ident $name:literal $version:literal;)+) => {$(
        impl VersionedObject for $class {
            const NAMESPACE: &'static str = "kuryr_kubernetes";
            const NAME: &'static str = $name;
            const VERSION: &'static str = $version;
        }
    )+};
}

// The oldest version that has the fields: every reader since understands it.
classes! {
    State "LBaaSState" "1.0";
    StateLoadBalancer "LBaaSLoadBalancer" "1.2";
    StateListener "LBaaSListener" "1.0";
    StatePool "LBaaSPool" "1.1";
    StateMember "LBaaSMember" "1.0";
    StatePublicIp "LBaaSPubIp" "1.0";
}

#[derive(Serialize, Deserialize)]
struct State {
    #[serde(default)]
    loadbalancer: Option<Versioned<StateLoadBalancer>>,
    #[serde(default)]
    listeners: Vec<Versioned<StateListener>>,
    #[serde(default)]
    pools: Vec<Versioned<StatePool>>,
    #[serde(default)]
    members: Vec<Versioned<StateMember>>,
    #[serde(default)]
    service_pub_ip_info: Option<Versioned<StatePublicIp>>,
}

#[derive(Serialize, Deserialize)]
struct StateLoadBalancer {
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

#[derive(Serialize, Deserialize)]
struct StateListener {
    id: ListenerId,
    project_id: ProjectId,
    name: String,
    loadbalancer_id: LoadBalancerId,
    protocol: Protocol,
    port: u16,
    #[serde(default, skip_serializing_if = "ListenerSettings::is_default")]
    settings: ListenerSettings,
}

#[derive(Serialize, Deserialize)]
struct StatePool {
    id: PoolId,
    project_id: ProjectId,
    name: String,
    loadbalancer_id: LoadBalancerId,
    listener_id: ListenerId,
    protocol: Protocol,
    #[serde(default, skip_serializing_if = "PoolSettings::is_default")]
    settings: PoolSettings,
}

#[derive(Serialize, Deserialize)]
struct StateMember {
    id: MemberId,
    project_id: ProjectId,
    name: String,
    pool_id: PoolId,
    subnet_id: SubnetId,
    ip: IpAddr,
    port: u16,
}

#[derive(Serialize, Deserialize)]
struct StatePublicIp {
    ip_id: PublicIpId,
    ip_addr: IpAddr,
    alloc_method: AllocationMethod,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AllocationMethod {
    Pool,
    User,
}

/// Reads the text of the annotation. What it shows was there when it was written.
pub(super) fn read(text: &str) -> Result<Standing, AnnotationError> {
    let Versioned(state) = read_annotation::<Versioned<State>>(STATE_ANNOTATION, text)?;
    let pools: Vec<_> = state.pools.into_iter().map(|Versioned(pool)| pool).collect();
    let members: Vec<_> = state.members.into_iter().map(|Versioned(member)| member).collect();
    let pool_of = |listener: &ListenerId| {
        let pool = pools.iter().find(|pool| pool.listener_id == *listener)?;
        let of_pool = members.iter().filter(|member| member.pool_id == pool.id);
        let (id, settings) = (pool.id.clone(), pool.settings.clone());
        Some(Pool { id, settings, members: of_pool.map(member).collect() })
    };
    let listeners = state.listeners.into_iter().map(|Versioned(listener)| Listener {
        pool: pool_of(&listener.id),
        at: ListenerPort { protocol: listener.protocol, port: listener.port },
        settings: listener.settings,
        id: listener.id,
    });
    let listeners = listeners.collect();
    let load_balancer = state.loadbalancer.map(|Versioned(found)| {
        let mut security_groups = found.security_groups.unwrap_or_default();
        security_groups.sort();
        LoadBalancer {
            id: found.id,
            project: found.project_id,
            name: found.name,
            vip: found.ip,
            subnet: found.subnet_id,
            port: found.port_id,
            provider: found.provider,
            security_groups,
            disabled: false,
            status: Provisioning::Active,
            listeners,
        }
    });
    let public_ip = state.service_pub_ip_info.map(|Versioned(found)| PublicIp {
        id: found.ip_id,
        ip: found.ip_addr,
        allocation: match found.alloc_method {
            AllocationMethod::Pool => Allocation::Pool,
            AllocationMethod::User => Allocation::User,
        },
        port: load_balancer.as_ref().map(|load_balancer: &LoadBalancer| load_balancer.port.clone()),
    });
    Ok(Standing { load_balancer, public_ip, unmarked: false })
}

fn member(member: &StateMember) -> Member {
    let spec = MemberSpec {
        ip: member.ip,
        port: member.port,
        name: member.name.clone(),
        subnet: member.subnet_id.clone(),
    };
    Member { id: member.id.clone(), spec }
}

/// The text of the annotation, and whether it tells all: of a load balancer with very many members, it names none.
pub(super) fn bounded(standing: &Standing) -> (String, bool) {
    let text = write(standing);
    if text.len() <= LONGEST {
        return (text, true);
    }
    let mut bare = standing.clone();
    let listeners = bare.load_balancer.iter_mut().flat_map(|found| &mut found.listeners);
    for pool in listeners.filter_map(|listener| listener.pool.as_mut()) {
        pool.members.clear();
    }
    (write(&bare), false)
}

/// The text of the annotation. A public address is shown once it leads to the load balancer.
pub(super) fn write(standing: &Standing) -> String {
    let mut state = State {
        loadbalancer: None,
        listeners: Vec::new(),
        pools: Vec::new(),
        members: Vec::new(),
        service_pub_ip_info: standing.reachable().map(|public_ip| {
            Versioned(StatePublicIp {
                ip_id: public_ip.id.clone(),
                ip_addr: public_ip.ip,
                alloc_method: match public_ip.allocation {
                    Allocation::Pool => AllocationMethod::Pool,
                    Allocation::User => AllocationMethod::User,
                },
            })
        }),
    };
    if let Some(load_balancer) = &standing.load_balancer {
        state.loadbalancer = Some(Versioned(StateLoadBalancer {
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
            add_listener(&mut state, load_balancer, listener);
        }
    }
    to_text(&Versioned(state))
}

fn add_listener(state: &mut State, load_balancer: &LoadBalancer, listener: &Listener) {
    let name = load_balancer.listener_name(listener.at);
    state.listeners.push(Versioned(StateListener {
        id: listener.id.clone(),
        project_id: load_balancer.project.clone(),
        name: name.clone(),
        loadbalancer_id: load_balancer.id.clone(),
        protocol: listener.at.protocol,
        port: listener.at.port,
        settings: listener.settings.clone(),
    }));
    let Some(pool) = &listener.pool else { return };
    state.pools.push(Versioned(StatePool {
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
    state.members.extend(members.into_iter().map(|member| {
        Versioned(StateMember {
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

    fn standing() -> Standing {
        let tree = LoadBalancer {
            listeners: vec![
                listener(Protocol::Tcp, 80, &["10.1.0.1", "10.1.0.2"]),
                Listener { pool: None, ..listener(Protocol::Tcp, 443, &[]) },
                listener(Protocol::Udp, 53, &["10.1.0.1"]),
            ],
            ..load_balancer("default/web", "10.0.0.1")
        };
        Standing { load_balancer: Some(tree), public_ip: Some(public_ip(Allocation::Pool)), unmarked: false }
    }

    #[test]
    fn what_is_written_is_kuryrs_text_with_sorted_keys() {
        let envelope = |name: &str, version: &str, data: serde_json::Value| {
            serde_json::json!({ "versioned_object.name": name, "versioned_object.namespace": "kuryr_kubernetes",
                "versioned_object.version": version, "versioned_object.data": data })
        };
        let tree = LoadBalancer {
            listeners: vec![listener(Protocol::Tcp, 80, &["10.1.0.1"])],
            ..load_balancer("default/web", "10.0.0.1")
        };
        let standing = Standing { load_balancer: Some(tree), ..standing() };
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
        assert_eq!(write(&standing), expected.to_string());
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        assert_eq!(read(&write(&standing())).unwrap(), standing());
        assert_eq!(read(&write(&Standing::default())).unwrap(), Standing::default());
    }

    #[test]
    fn settings_are_told_by_fields_of_our_own_and_only_where_there_are_any() {
        let mut settled = standing();
        let plain = write(&settled);
        assert!(!plain.contains("settings"), "{plain}");
        let listener = &mut settled.load_balancer.as_mut().unwrap().listeners[0];
        listener.settings.client_timeout_ms = Some(5000);
        listener.settings.allowed_cidrs = vec!["192.0.2.0/24".parse().unwrap()];
        let pool = listener.pool.as_mut().unwrap();
        pool.settings.persistence = Some(SessionPersistence { timeout_s: Some(60) });
        pool.settings.algorithm = Some(Algorithm::SourceIp);
        let text = write(&settled);
        assert!(
            text.contains(r#""settings":{"allowed_cidrs":["192.0.2.0/24"],"client_timeout_ms":5000}"#),
            "{text}"
        );
        assert_eq!(read(&text).unwrap(), settled);
        assert_eq!(read(&plain).unwrap(), standing(), "what another program wrote has none");
    }

    #[test]
    fn older_and_newer_forms_are_read() {
        let text = write(&standing());
        for version in ["1.4", "1.0"] {
            let version = format!(
                r#""LBaaSLoadBalancer","versioned_object.namespace":"kuryr_kubernetes","versioned_object.version":"{version}""#
            );
            let ours = r#""LBaaSLoadBalancer","versioned_object.namespace":"kuryr_kubernetes","versioned_object.version":"1.2""#;
            assert!(text.contains(ours), "{text}");
            assert_eq!(read(&text.replace(ours, &version)).unwrap(), standing());
        }
        let nulls = text
            .replace(r#""provider":"memory""#, r#""provider":null"#)
            .replace(r#""security_groups":["default"]"#, r#""security_groups":null"#);
        let read = read(&nulls).unwrap().load_balancer.unwrap();
        assert_eq!((read.provider, read.security_groups), (None, Vec::new()));
    }

    #[test]
    fn an_address_that_leads_nowhere_yet_is_not_shown() {
        let mut standing = standing();
        standing.public_ip.as_mut().unwrap().port = None;
        assert_eq!(read(&write(&standing)).unwrap().public_ip, None);
    }

    #[test]
    fn what_is_malformed_is_named_with_the_remedy() {
        for text in ["[", "{}", r#"{"versioned_object.name":"Other"}"#] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(STATE_ANNOTATION) && error.contains("remove it"), "{error}");
        }
    }
}
