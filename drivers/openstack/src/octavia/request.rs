//! Builds the JSON bodies of requests, from specs and from the differences between existing and wanted settings. Pure functions.

use serde_json::{Value, json};
use staffetta_driver::{
    HealthMonitor, ListenerPort, ListenerSettings, ListenerSpec, LoadBalancerSpec, MemberSpec, PoolSettings,
    Protocol, SessionPersistence,
};

use super::wire::PersistenceBody;
use crate::text::{self, without_nulls};

/// The type of session persistence by client address. Octavia's other types use cookies.
pub(super) const SOURCE_IP: &str = "SOURCE_IP";

/// Returns the name of the listener at a protocol and port, which is also the name of its pool.
pub(super) fn name(load_balancer: &str, at: ListenerPort) -> String {
    text::name(&format!("{load_balancer}:{at}"))
}

/// Returns the bodies of the listeners of a new load balancer, each with its pool and members. If they are longer than `limit` bytes, each
/// pool has only as many members as fit; if even listeners without members are longer, the list is empty.
pub(super) fn listeners(spec: &LoadBalancerSpec, limit: usize) -> Vec<Value> {
    let whole = listeners_with(spec, usize::MAX);
    if length(&whole) <= limit {
        return whole;
    }
    let members = spec.listeners.iter().flat_map(|listener| &listener.pool.members);
    let longest = members.map(|spec| length(&[member(spec)])).max().unwrap_or_default();
    let fitting = |room: usize| room / (longest * spec.listeners.len()).max(1);
    let room = limit.checked_sub(length(&listeners_with(spec, 0)));
    room.map_or_else(Vec::new, |room| listeners_with(spec, fitting(room)))
}

/// Returns the bodies of the listeners of a new load balancer, each with its pool and at most `count` of the members.
fn listeners_with(spec: &LoadBalancerSpec, count: usize) -> Vec<Value> {
    let whole = |listener: &ListenerSpec| {
        let name = name(&spec.name, listener.at);
        let members: Vec<_> = listener.pool.members.iter().take(count).map(member).collect();
        let settings = &listener.pool.settings;
        let extra = json!({
            "healthmonitor": settings.monitor.map(|settings| monitor(listener.at.protocol, settings)),
            "members": (!members.is_empty()).then_some(members),
        });
        let pool = merged(pool(&name, listener), extra);
        merged(self::listener(&name, listener), json!({ "default_pool": pool }))
    };
    spec.listeners.iter().map(whole).collect()
}

/// Returns the body of a new listener without its pool.
pub(super) fn listener(name: &str, spec: &ListenerSpec) -> Value {
    let ListenerPort { protocol, port } = spec.at;
    let identity = json!({ "name": name, "protocol": protocol, "protocol_port": port });
    merged(identity, listener_update(&ListenerSettings::default(), &spec.settings))
}

/// Returns the body of a new pool without members and monitor.
pub(super) fn pool(name: &str, spec: &ListenerSpec) -> Value {
    let settings = pool_update(&PoolSettings::default(), &spec.pool.settings);
    merged(json!({ "name": name, "protocol": spec.at.protocol }), settings)
}

/// Returns the wanted settings of a listener that differ from the existing ones, as the fields of an update, which also enables a disabled
/// listener. Equal settings are not sent, because older Octavia releases do not know all of them.
pub(super) fn listener_update(existing: &ListenerSettings, wanted: &ListenerSettings) -> Value {
    let changed = |existing: Option<u32>, wanted: Option<u32>| wanted.filter(|_| existing != wanted);
    let cidrs = &wanted.allowed_cidrs;
    without_nulls(json!({
        "timeout_client_data": changed(existing.client_timeout_ms, wanted.client_timeout_ms),
        "timeout_member_data": changed(existing.member_timeout_ms, wanted.member_timeout_ms),
        "allowed_cidrs": (existing.allowed_cidrs != *cidrs).then_some(cidrs),
        "admin_state_up": existing.disabled.then_some(true),
    }))
}

/// Returns the body of an update to the wanted settings of a pool, without its monitor, or `None` if they do not differ from the existing
/// ones.
pub(super) fn changed_pool(existing: &PoolSettings, wanted: &PoolSettings) -> Option<Value> {
    let same = (existing.algorithm, existing.persistence) == (wanted.algorithm, wanted.persistence);
    (!same || existing.disabled).then(|| pool_update(existing, wanted))
}

/// Returns the wanted settings of a pool without its monitor, as fields of a request. Enables the pool if `existing` is disabled.
fn pool_update(existing: &PoolSettings, wanted: &PoolSettings) -> Value {
    let persistence = |SessionPersistence { timeout_s }| PersistenceBody {
        kind: SOURCE_IP.to_owned(),
        persistence_timeout: timeout_s,
    };
    let mut body = json!({
        "lb_algorithm": wanted.algorithm.unwrap_or_default(),
        "session_persistence": wanted.persistence.map(persistence),
    });
    if existing.disabled {
        body["admin_state_up"] = true.into();
    }
    body
}

/// Returns the body of a new health monitor, which checks by the protocol of the pool.
pub(super) fn monitor(protocol: Protocol, settings: HealthMonitor) -> Value {
    let kind = match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP-CONNECT",
        Protocol::Sctp => "SCTP",
    };
    merged(json!({ "type": kind }), monitor_update(settings))
}

/// Returns the settings of a health monitor, as fields of a request.
pub(super) fn monitor_update(settings: HealthMonitor) -> Value {
    let HealthMonitor { delay_s, timeout_s, max_retries } = settings;
    json!({ "delay": delay_s, "timeout": timeout_s, "max_retries": max_retries, "max_retries_down": max_retries })
}

/// Returns the body of a member.
pub(super) fn member(spec: &MemberSpec) -> Value {
    json!({ "name": text::name(&spec.name), "address": spec.ip, "protocol_port": spec.port, "subnet_id": spec.subnet })
}

/// Returns the length in bytes of these values as a JSON list, or slightly more.
pub(super) fn length(values: &[Value]) -> usize {
    2 + values.iter().map(|value| value.to_string().len() + 1).sum::<usize>()
}

/// Merges two JSON objects and removes fields whose value is null. A field of `other` replaces the one of the same name.
pub(super) fn merged(mut object: Value, other: Value) -> Value {
    if let (Value::Object(object), Value::Object(other)) = (&mut object, other) {
        object.extend(other);
    }
    without_nulls(object)
}

#[cfg(test)]
mod tests {
    use super::super::tree::{self, tests::spec};
    use super::super::wire::{ListenerBody, PoolBody};
    use super::*;

    fn listener_with_pool(spec: ListenerSpec) -> Value {
        let spec = LoadBalancerSpec {
            name: "shop/web".into(),
            project: "p".into(),
            subnet: "s".into(),
            vip: [10, 0, 0, 1].into(),
            provider: None,
            security_groups: None,
            listeners: vec![spec],
            adopt: None,
        };
        listeners(&spec, usize::MAX).remove(0)
    }

    #[test]
    fn a_listener_is_created_with_its_pool_members_and_monitor() {
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
        assert_eq!(listener_with_pool(spec()), expected);
    }

    #[test]
    fn a_created_listener_equals_its_spec() {
        let spec = spec();
        let body = listener_with_pool(spec.clone());
        let listener: ListenerBody = serde_json::from_value(body.clone()).unwrap();
        let pool: PoolBody = serde_json::from_value(body["default_pool"].clone()).unwrap();
        let members = tree::members(&pool.members, &"v".into());
        let pool = tree::pool(&pool, pool.healthmonitor.as_ref(), members);
        assert_eq!(pool.settings, spec.pool.settings);
        assert_eq!(pool.members[0].spec, spec.pool.members[0]);
        let listener = tree::listener(&listener, Some(pool)).unwrap();
        assert_eq!((listener.at, listener.settings), (spec.at, spec.settings));
    }

    #[test]
    fn an_update_of_a_listener_contains_only_what_differs() {
        let existing = spec().settings;
        assert_eq!(listener_update(&existing, &existing), json!({}));
        let wanted =
            ListenerSettings { allowed_cidrs: Vec::new(), client_timeout_ms: Some(9), ..existing.clone() };
        let expected = json!({ "timeout_client_data": 9, "allowed_cidrs": [] });
        assert_eq!(listener_update(&existing, &wanted), expected);
    }

    #[test]
    fn what_is_disabled_is_enabled_again() {
        let spec = spec();
        let existing = ListenerSettings { disabled: true, ..spec.settings.clone() };
        assert_eq!(listener_update(&existing, &spec.settings), json!({ "admin_state_up": true }));
        let wanted = &spec.pool.settings;
        for existing in [PoolSettings::default(), wanted.clone()] {
            let existing = PoolSettings { disabled: true, ..existing };
            assert_eq!(changed_pool(&existing, wanted).unwrap()["admin_state_up"], true);
        }
        let other_monitor = PoolSettings { monitor: None, ..wanted.clone() };
        assert_eq!([wanted, &other_monitor].map(|existing| changed_pool(existing, wanted)), [None, None]);
    }
}
