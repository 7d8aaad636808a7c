//! Converts the JSON bodies of Octavia to load balancers, listeners, pools and members. Pure functions.

use ipnet::IpNet;
use staffetta_driver::{
    HealthMonitor, Listener, ListenerPort, ListenerSettings, LoadBalancer, Member, MemberSpec, Owner, Pool,
    PoolSettings, ProvisioningStatus, SecurityGroupId, SessionPersistence, SubnetId,
};

use super::pacing::ProvisioningOutcome;
use super::request::SOURCE_IP;
use super::wire::{ListenerBody, LoadBalancerBody, MemberBody, MonitorBody, PoolBody};
use crate::neutron::wire::PortBody;

/// Returns the final status of a load balancer, or `None` while it is pending.
pub(super) fn outcome(body: &LoadBalancerBody) -> Option<ProvisioningOutcome> {
    match body.provisioning_status.as_str() {
        "ACTIVE" => Some(ProvisioningOutcome::Active),
        "ERROR" => Some(ProvisioningOutcome::Error),
        "DELETED" => Some(ProvisioningOutcome::Deleted),
        _ => None,
    }
}

/// Converts a load balancer with these security groups and listeners, or returns `None` if it has no address or subnet.
pub(super) fn load_balancer(
    body: &LoadBalancerBody,
    security_groups: Vec<SecurityGroupId>,
    listeners: Vec<Listener>,
) -> Option<LoadBalancer> {
    Some(LoadBalancer {
        id: body.id.clone(),
        project: body.project_id.clone(),
        name: body.name.clone(),
        vip: body.vip_address?,
        subnet: body.vip_subnet_id.clone()?,
        port: body.vip_port_id.clone().unwrap_or_default(),
        provider: body.provider.clone(),
        security_groups,
        disabled: body.admin_state_up == Some(false),
        status: match outcome(body) {
            None => ProvisioningStatus::Pending,
            Some(ProvisioningOutcome::Active) => ProvisioningStatus::Active,
            Some(ProvisioningOutcome::Error | ProvisioningOutcome::Deleted) => ProvisioningStatus::Error,
        },
        listeners,
    })
}

/// Converts a port of a virtual address that no load balancer uses. The result is a failed load balancer with the id of the port, so that
/// it is released like a load balancer. Returns `None` if the port has no address.
pub(super) fn failed_load_balancer(owner: &Owner, port: &PortBody) -> Option<LoadBalancer> {
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
        status: ProvisioningStatus::Error,
        listeners: Vec::new(),
    })
}

/// Converts a listener, or returns `None` if its protocol is not one that services can have.
pub(super) fn listener(body: &ListenerBody, pool: Option<Pool>) -> Option<Listener> {
    let mut allowed_cidrs: Vec<IpNet> = body.allowed_cidrs.iter().map(IpNet::trunc).collect();
    allowed_cidrs.sort_unstable();
    Some(Listener {
        id: body.id.clone(),
        at: ListenerPort { protocol: body.protocol.parse().ok()?, port: body.protocol_port },
        settings: ListenerSettings {
            client_timeout_ms: body.timeout_client_data,
            member_timeout_ms: body.timeout_member_data,
            allowed_cidrs,
            disabled: body.admin_state_up == Some(false),
        },
        pool,
    })
}

/// Converts a pool with these members. A disabled monitor is omitted.
pub(super) fn pool(body: &PoolBody, monitor: Option<&MonitorBody>, members: Vec<Member>) -> Pool {
    let persistence = body.session_persistence.as_ref().filter(|persistence| persistence.kind == SOURCE_IP);
    let monitor = monitor.filter(|monitor| monitor.admin_state_up != Some(false));
    let settings = PoolSettings {
        algorithm: serde_json::from_value(body.lb_algorithm.as_str().into()).ok(),
        persistence: persistence
            .map(|persistence| SessionPersistence { timeout_s: persistence.persistence_timeout }),
        monitor: monitor.map(|&MonitorBody { delay, timeout, max_retries, .. }| HealthMonitor {
            delay_s: delay,
            timeout_s: timeout,
            max_retries,
        }),
        disabled: body.admin_state_up == Some(false),
    };
    Pool { id: body.id.clone(), settings, members }
}

/// Converts the members that have an address. Members without a subnet get `vip`, the subnet of the load balancer's virtual address.
pub(super) fn members(bodies: &[MemberBody], vip: &SubnetId) -> Vec<Member> {
    let member = |body: &MemberBody| {
        let subnet = body.subnet_id.as_ref().unwrap_or(vip).clone();
        let spec =
            MemberSpec { ip: body.address?, port: body.protocol_port, name: body.name.clone(), subnet };
        Some(Member { id: body.id.clone(), spec })
    };
    bodies.iter().filter_map(member).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use staffetta_driver::{Algorithm, ListenerSpec, PoolSpec, Protocol};

    use super::*;

    pub(in crate::octavia) fn spec() -> ListenerSpec {
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
    fn disabled_resources_are_shown_as_disabled() {
        let off = Some(false);
        let body = LoadBalancerBody {
            vip_address: Some([10, 0, 0, 1].into()),
            vip_subnet_id: Some("s".into()),
            admin_state_up: off,
            ..LoadBalancerBody::default()
        };
        assert!(load_balancer(&body, Vec::new(), Vec::new()).unwrap().disabled);
        let body = ListenerBody { protocol: "UDP".into(), admin_state_up: off, ..ListenerBody::default() };
        assert!(listener(&body, None).unwrap().settings.disabled);
        let monitor = MonitorBody { admin_state_up: off, ..MonitorBody::default() };
        let body = PoolBody { admin_state_up: off, ..PoolBody::default() };
        let found = pool(&body, Some(&monitor), Vec::new());
        assert_eq!((found.settings.disabled, found.settings.monitor), (true, None));
    }

    #[test]
    fn a_listener_of_another_protocol_is_ignored() {
        let body = ListenerBody { protocol: "TERMINATED_HTTPS".into(), ..ListenerBody::default() };
        assert_eq!(listener(&body, None), None);
    }
}
