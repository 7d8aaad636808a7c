//! How what Octavia tells becomes a tree, and how a spec becomes what Octavia takes: pure.

use ipnet::IpNet;
use staffetta_driver::{
    Algorithm, HealthMonitor, Listener, ListenerPort, ListenerSettings, ListenerSpec, LoadBalancer,
    LoadBalancerSpec, Member, MemberSpec, Owner, Pool, PoolSettings, Protocol, Provisioning, SecurityGroupId,
    SessionPersistence, SubnetId,
};

use super::board::End;
use super::waiting::end;
use super::wire::{
    ListenerChange, ListenerTold, LoadBalancerTold, MemberTold, MonitorChange, MonitorTold, NewListener,
    NewMember, NewMonitor, NewPool, PersistenceTold, PoolChange, PoolTold,
};
use crate::neutron::wire::Port;

/// The one kind of session persistence that knows no cookies.
const SOURCE_IP: &str = "SOURCE_IP";
/// The longest name, in characters.
const LONGEST: usize = 255;

/// The load balancer with these groups and listeners; none when it has no address, which it has from its first moment.
pub(super) fn load_balancer(
    told: &LoadBalancerTold,
    security_groups: Vec<SecurityGroupId>,
    listeners: Vec<Listener>,
) -> Option<LoadBalancer> {
    Some(LoadBalancer {
        id: told.id.clone(),
        project: told.project_id.clone(),
        name: told.name.clone(),
        vip: told.vip_address?,
        subnet: told.vip_subnet_id.clone()?,
        port: told.vip_port_id.clone().unwrap_or_default(),
        provider: told.provider.clone(),
        security_groups,
        disabled: told.admin_state_up == Some(false),
        status: match end(told) {
            None => Provisioning::Pending,
            Some(End::Active) => Provisioning::Active,
            Some(End::Error | End::Gone) => Provisioning::Error,
        },
        listeners,
    })
}

/// What stands of a load balancer of which only the port of its address was made: one that failed, and must be made anew. It
/// has the id of its port, which no other load balancer has.
pub(super) fn half_made(owner: &Owner, port: &Port) -> Option<LoadBalancer> {
    let fixed = port.fixed_ips.first()?;
    Some(LoadBalancer {
        id: port.id.as_str().into(),
        project: port.project_id.clone(),
        name: format!("{}/{}", owner.namespace, owner.name),
        vip: fixed.ip_address?,
        subnet: fixed.subnet_id.clone(),
        port: port.id.as_str().into(),
        provider: None,
        security_groups: Vec::new(),
        disabled: false,
        status: Provisioning::Error,
        listeners: Vec::new(),
    })
}

/// The listener; none of a protocol that no service has.
pub(super) fn listener(told: &ListenerTold, pool: Option<Pool>) -> Option<Listener> {
    let protocol: Protocol = told.protocol.parse().ok()?;
    let mut allowed_cidrs: Vec<IpNet> = told.allowed_cidrs.iter().map(IpNet::trunc).collect();
    allowed_cidrs.sort_unstable();
    Some(Listener {
        id: told.id.clone(),
        at: ListenerPort { protocol, port: told.protocol_port },
        settings: ListenerSettings {
            client_timeout_ms: told.timeout_client_data,
            member_timeout_ms: told.timeout_member_data,
            allowed_cidrs,
            disabled: told.admin_state_up == Some(false),
        },
        pool,
    })
}

/// The pool with these members.
pub(super) fn pool(told: &PoolTold, monitor: Option<&MonitorTold>, members: Vec<Member>) -> Pool {
    let persistence = told.session_persistence.as_ref().filter(|persistence| persistence.kind == SOURCE_IP);
    let settings = PoolSettings {
        algorithm: told.lb_algorithm.parse().ok(),
        persistence: persistence
            .map(|persistence| SessionPersistence { timeout_s: persistence.persistence_timeout }),
        monitor: monitor.filter(|monitor| monitor.admin_state_up != Some(false)).map(|monitor| {
            HealthMonitor {
                delay_s: monitor.delay,
                timeout_s: monitor.timeout,
                max_retries: monitor.max_retries,
            }
        }),
        disabled: told.admin_state_up == Some(false),
    };
    Pool { id: told.id.clone(), settings, members }
}

/// The member; none without an address. Where no subnet is told, it is reached through that of the load balancer's address.
pub(super) fn member(told: &MemberTold, vip: &SubnetId) -> Option<Member> {
    let spec = MemberSpec {
        ip: told.address?,
        port: told.protocol_port,
        name: told.name.clone(),
        subnet: told.subnet_id.as_ref().unwrap_or(vip).clone(),
    };
    Some(Member { id: told.id.clone(), spec })
}

/// A listener with its pool, as it is made together with its load balancer.
pub(super) fn whole_listener(name: &str, spec: &ListenerSpec) -> NewListener {
    let members = spec.pool.members.iter().map(new_member).collect();
    let pool = NewPool { listener_id: None, members, ..new_pool(name, spec) };
    NewListener { default_pool: Some(pool), ..new_listener(name, spec) }
}

/// A listener by itself.
pub(super) fn new_listener(name: &str, spec: &ListenerSpec) -> NewListener {
    let settings = listener_change(&ListenerSettings::default(), &spec.settings);
    NewListener {
        name: cut(name),
        protocol: protocol(spec.at.protocol),
        protocol_port: spec.at.port,
        loadbalancer_id: None,
        settings,
        default_pool: None,
    }
}

/// A pool without members, with its monitor.
pub(super) fn new_pool(name: &str, spec: &ListenerSpec) -> NewPool {
    let PoolChange { lb_algorithm, session_persistence, .. } =
        pool_change(&PoolSettings::default(), &spec.pool.settings);
    NewPool {
        name: cut(name),
        protocol: protocol(spec.at.protocol),
        listener_id: None,
        lb_algorithm,
        session_persistence,
        healthmonitor: spec.pool.settings.monitor.map(|monitor| new_monitor(spec.at.protocol, monitor)),
        members: Vec::new(),
    }
}

/// What is to be sent to a listener that `stands` to make it the `wanted` one.
pub(super) fn listener_change(stands: &ListenerSettings, wanted: &ListenerSettings) -> ListenerChange {
    let changed = |stands: Option<u32>, wanted: Option<u32>| wanted.filter(|_| stands != wanted);
    ListenerChange {
        timeout_client_data: changed(stands.client_timeout_ms, wanted.client_timeout_ms),
        timeout_member_data: changed(stands.member_timeout_ms, wanted.member_timeout_ms),
        allowed_cidrs: (stands.allowed_cidrs != wanted.allowed_cidrs).then(|| wanted.allowed_cidrs.clone()),
        admin_state_up: stands.disabled.then_some(true),
    }
}

/// What a pool that `stands` is to be, but for its monitor and its members.
pub(super) fn pool_change(stands: &PoolSettings, wanted: &PoolSettings) -> PoolChange {
    let persistence = |persistence: SessionPersistence| PersistenceTold {
        kind: SOURCE_IP.to_owned(),
        persistence_timeout: persistence.timeout_s,
    };
    PoolChange {
        lb_algorithm: wanted.algorithm.unwrap_or(Algorithm::RoundRobin).name(),
        session_persistence: wanted.persistence.map(persistence),
        admin_state_up: stands.disabled.then_some(true),
    }
}

/// A monitor that asks by the protocol of the pool.
pub(super) fn new_monitor(protocol: Protocol, monitor: HealthMonitor) -> NewMonitor {
    let kind = match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP-CONNECT",
        Protocol::Sctp => "SCTP",
    };
    NewMonitor { pool_id: None, kind, settings: monitor_change(monitor) }
}

/// What a monitor is to be.
pub(super) fn monitor_change(monitor: HealthMonitor) -> MonitorChange {
    let HealthMonitor { delay_s, timeout_s, max_retries } = monitor;
    MonitorChange {
        delay: delay_s,
        timeout: timeout_s,
        max_retries,
        max_retries_down: max_retries,
        admin_state_up: None,
    }
}

/// A member.
pub(super) fn new_member(spec: &MemberSpec) -> NewMember {
    NewMember {
        name: cut(&spec.name),
        address: spec.ip,
        protocol_port: spec.port,
        subnet_id: spec.subnet.clone(),
    }
}

/// The name of a listener and of its pool.
pub(super) fn name(load_balancer: &str, at: ListenerPort) -> String {
    format!("{load_balancer}:{at}")
}

/// The listeners of a spec, each with its pool.
pub(super) fn whole_listeners(spec: &LoadBalancerSpec) -> Vec<NewListener> {
    spec.listeners.iter().map(|listener| whole_listener(&name(&spec.name, listener.at), listener)).collect()
}

/// The name of a protocol.
pub(super) fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

/// What of a name fits.
pub(super) fn cut(name: &str) -> String {
    name.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use staffetta_driver::PoolSpec;

    use super::*;

    fn spec() -> ListenerSpec {
        let member = MemberSpec {
            ip: [10, 1, 0, 1].into(),
            port: 8080,
            name: "shop/web-1:8080".into(),
            subnet: "s".into(),
        };
        ListenerSpec {
            at: ListenerPort { protocol: Protocol::Udp, port: 53 },
            settings: ListenerSettings {
                client_timeout_ms: Some(1),
                member_timeout_ms: Some(2),
                allowed_cidrs: vec!["192.0.2.0/24".parse().unwrap()],
                disabled: false,
            },
            pool: PoolSpec {
                settings: PoolSettings {
                    algorithm: Some(Algorithm::SourceIp),
                    persistence: Some(SessionPersistence { timeout_s: Some(60) }),
                    monitor: Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 }),
                    disabled: false,
                },
                members: vec![member],
            },
        }
    }

    #[test]
    fn a_listener_is_written_with_all_that_hangs_on_it() {
        let expected = json!({
            "name": "shop/web:UDP:53", "protocol": "UDP", "protocol_port": 53, "timeout_client_data": 1,
            "timeout_member_data": 2, "allowed_cidrs": ["192.0.2.0/24"],
            "default_pool": {
                "name": "shop/web:UDP:53", "protocol": "UDP", "lb_algorithm": "SOURCE_IP",
                "session_persistence": { "type": "SOURCE_IP", "persistence_timeout": 60 },
                "healthmonitor": { "type": "UDP-CONNECT", "delay": 5, "timeout": 3, "max_retries": 2, "max_retries_down": 2 },
                "members": [{ "name": "shop/web-1:8080", "address": "10.1.0.1", "protocol_port": 8080, "subnet_id": "s" }],
            },
        });
        let spec = spec();
        let written = whole_listener(&name("shop/web", spec.at), &spec);
        assert_eq!(serde_json::to_value(written).unwrap(), expected);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let spec = spec();
        let written = serde_json::to_value(whole_listener("web", &spec)).unwrap();
        let told: ListenerTold = serde_json::from_value(written.clone()).unwrap();
        let pool_told: PoolTold = serde_json::from_value(written["default_pool"].clone()).unwrap();
        let members = pool_told.members.iter().filter_map(|told| member(told, &"v".into()));
        let members: Vec<_> = members.collect();
        let pool = pool(&pool_told, pool_told.healthmonitor.as_ref(), members);
        assert_eq!(pool.settings, spec.pool.settings);
        assert_eq!(pool.members[0].spec, spec.pool.members[0]);
        let read = listener(&told, Some(pool)).unwrap();
        assert_eq!((read.at, read.settings), (spec.at, spec.settings));
    }

    #[test]
    fn of_a_listener_only_what_differs_is_sent() {
        let stands = spec().settings;
        assert_eq!(listener_change(&stands, &stands), ListenerChange::default());
        let wanted =
            ListenerSettings { allowed_cidrs: Vec::new(), client_timeout_ms: Some(9), ..stands.clone() };
        let change = listener_change(&stands, &wanted);
        let expected = json!({ "timeout_client_data": 9, "allowed_cidrs": [] });
        assert_eq!(serde_json::to_value(change).unwrap(), expected);
    }

    #[test]
    fn what_is_switched_off_is_told_and_switched_on_again() {
        let off = Some(false);
        let spec = spec();
        let told = LoadBalancerTold {
            vip_address: Some([10, 0, 0, 1].into()),
            vip_subnet_id: Some("s".into()),
            admin_state_up: off,
            ..LoadBalancerTold::default()
        };
        assert!(load_balancer(&told, Vec::new(), Vec::new()).unwrap().disabled);
        let told = ListenerTold { protocol: "UDP".into(), admin_state_up: off, ..ListenerTold::default() };
        let found = listener(&told, None).unwrap();
        assert!(found.settings.disabled);
        let stands = ListenerSettings { disabled: true, ..spec.settings.clone() };
        let change = listener_change(&stands, &spec.settings);
        assert_eq!(serde_json::to_value(change).unwrap(), json!({ "admin_state_up": true }));
        let monitor = MonitorTold { admin_state_up: off, ..MonitorTold::default() };
        let told = PoolTold { admin_state_up: off, ..PoolTold::default() };
        let found = pool(&told, Some(&monitor), Vec::new());
        assert_eq!((found.settings.disabled, found.settings.monitor), (true, None));
        let change = serde_json::to_value(pool_change(&found.settings, &spec.pool.settings)).unwrap();
        assert_eq!(change["admin_state_up"], true);
    }

    #[test]
    fn a_listener_of_another_protocol_is_none_of_ours() {
        let told = ListenerTold { protocol: "TERMINATED_HTTPS".into(), ..ListenerTold::default() };
        assert_eq!(listener(&told, None), None);
    }
}
