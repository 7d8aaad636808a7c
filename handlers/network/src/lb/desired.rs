//! The desired load balancer and public address of a service.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use staffetta_driver::{
    ListenerPort, ListenerSettings, ListenerSpec, LoadBalancer, LoadBalancerSpec, MemberSpec, Owner,
    PoolSettings, PoolSpec,
};

use super::endpoints::{EndpointAddress, EndpointPort, EndpointSet};
use super::options::LoadBalancerOptions;
use super::settings::ServiceSettings;
use crate::lbaasspec::{LbaasPortSpec, LbaasServiceSpec, ServiceType};

/// The desired load balancer and public address of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredState {
    /// The desired load balancer.
    pub(super) load_balancer: LoadBalancerSpec,
    /// The desired public address; `None` for services of other types than `LoadBalancer`.
    pub(super) public_ip: Option<PublicAddress>,
}

/// The desired public address of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PublicAddress {
    /// Any address of the pool of public addresses.
    Any,
    /// The address that the user named in `spec.loadBalancerIP`.
    Named(IpAddr),
}

impl DesiredState {
    /// Computes the desired public address and the desired load balancer for `spec`. The load balancer has
    /// a listener and a pool for each port.
    ///
    /// The members of a pool are the ready addresses whose port matches the service's port by name
    /// and protocol, and whose IP version is that of the cluster IP. If there are none, the members
    /// are the terminating addresses that still serve, as in kube-proxy. A service without
    /// endpoints gets empty pools.
    pub(super) fn of(
        owner: &Owner,
        spec: &LbaasServiceSpec,
        (service, options): (&ServiceSettings, &LoadBalancerOptions),
        endpoints: &[Arc<Vec<EndpointSet>>],
    ) -> Self {
        let settings = ListenerSettings {
            client_timeout_ms: service.client_timeout_ms,
            member_timeout_ms: service.member_timeout_ms,
            allowed_cidrs: allowed_cidrs(spec, service, options),
            disabled: false,
        };
        let pool_settings = PoolSettings {
            persistence: service.persistence,
            monitor: options.monitor(),
            ..PoolSettings::default()
        };
        let listener = |port: &LbaasPortSpec| ListenerSpec {
            at: ListenerPort { protocol: port.protocol, port: port.port },
            settings: settings.clone(),
            pool: PoolSpec { settings: pool_settings.clone(), members: members(spec, port, endpoints) },
        };
        let mut listeners: Vec<_> = spec.ports.iter().map(|port| listener(&port.0)).collect();
        listeners.sort_by_key(|listener| listener.at);
        listeners.dedup_by_key(|listener| listener.at);
        Self {
            load_balancer: LoadBalancerSpec {
                name: format!("{}/{}", owner.namespace, owner.name),
                project: spec.project_id.clone(),
                subnet: spec.subnet_id.clone(),
                vip: spec.ip,
                provider: None,
                security_groups: Some(spec.security_groups_ids.clone()).filter(|groups| !groups.is_empty()),
                listeners,
                adopt: None,
            },
            public_ip: (spec.service_type == ServiceType::LoadBalancer)
                .then(|| spec.lb_ip.map_or(PublicAddress::Any, PublicAddress::Named)),
        }
    }

    /// Adds members to pools whose ports are being renamed. A service and its endpoints change one
    /// after the other, and the pool must not become empty meanwhile: a member of the `published`
    /// load balancer stays while the endpoints list it under a port name that the service does not
    /// have.
    pub(super) fn keep_members_of_renamed_ports(
        mut self,
        spec: &LbaasServiceSpec,
        endpoints: &[Arc<Vec<EndpointSet>>],
        published: Option<&LoadBalancer>,
    ) -> Self {
        let mut renamed = HashSet::new();
        for set in endpoints.iter().flat_map(|sets| sets.iter()) {
            for port in
                set.ports.iter().filter(|port| spec.ports.iter().all(|known| !has_name(port, &known.0)))
            {
                renamed.extend(set.addresses.iter().map(|address| (port.protocol, address.ip, port.port)));
            }
        }
        for ListenerSpec { at, pool: PoolSpec { members, .. }, .. } in &mut self.load_balancer.listeners {
            let pool = published.and_then(|published| published.listener(*at)?.pool.as_ref());
            let present = pool.into_iter().flat_map(|pool| &pool.members).map(|member| &member.spec);
            let kept = present.filter(|member| {
                renamed.contains(&(at.protocol, member.ip, member.port))
                    && members.iter().all(|other| (other.ip, other.port) != (member.ip, member.port))
            });
            let kept: Vec<_> = kept.cloned().collect();
            members.extend(kept);
            members.sort();
        }
        self
    }
}

/// Returns the networks that may connect to the listeners; an empty list allows all. Only services
/// of type `LoadBalancer` with source ranges are restricted. The configured networks of the cluster
/// are always allowed. If no network has the IP version of the cluster IP, the list contains only the
/// cluster IP itself, so that nobody may connect.
fn allowed_cidrs(
    spec: &LbaasServiceSpec,
    service: &ServiceSettings,
    options: &LoadBalancerOptions,
) -> Vec<IpNet> {
    if spec.service_type != ServiceType::LoadBalancer || service.source_ranges.is_empty() {
        return Vec::new();
    }
    let internal = options.internal_cidrs.iter().map(IpNet::trunc);
    let mut cidrs: Vec<_> = service.source_ranges.iter().copied().chain(internal).collect();
    cidrs.retain(|cidr| cidr.addr().is_ipv4() == spec.ip.is_ipv4());
    if cidrs.is_empty() {
        // Ranges of the other family only admit nobody, but an empty list would admit everybody.
        cidrs.push(IpNet::from(spec.ip));
    }
    cidrs.sort_unstable();
    cidrs.dedup();
    cidrs
}

/// Returns `true` if the port of an endpoint has the same name as the port of the service.
fn has_name(port: &EndpointPort, of_service: &LbaasPortSpec) -> bool {
    port.name == of_service.name.as_deref().unwrap_or_default()
}

/// Returns the members of a port: the ready addresses or, if there are none, the terminating ones.
fn members(
    spec: &LbaasServiceSpec,
    port: &LbaasPortSpec,
    endpoints: &[Arc<Vec<EndpointSet>>],
) -> Vec<MemberSpec> {
    let ready = members_at(spec, port, endpoints, |set| &set.addresses);
    if ready.is_empty() { members_at(spec, port, endpoints, |set| &set.terminating) } else { ready }
}

/// Returns the members of a port of the service, without duplicates. `addresses` selects the ready or the terminating
/// addresses of a set of endpoints.
fn members_at(
    spec: &LbaasServiceSpec,
    of_service: &LbaasPortSpec,
    endpoints: &[Arc<Vec<EndpointSet>>],
    addresses: impl Fn(&EndpointSet) -> &[EndpointAddress],
) -> Vec<MemberSpec> {
    let matches = |port: &&EndpointPort| has_name(port, of_service) && port.protocol == of_service.protocol;
    let mut members = BTreeMap::new();
    for set in endpoints.iter().flat_map(|sets| sets.iter()) {
        for port in set.ports.iter().filter(matches) {
            for address in addresses(set).iter().filter(|address| address.ip.is_ipv4() == spec.ip.is_ipv4()) {
                let name = format!("{}:{}", address.target, port.port);
                let member =
                    MemberSpec { ip: address.ip, port: port.port, name, subnet: spec.subnet_id.clone() };
                // Slices may overlap for a moment. Of two names for one member the lesser is used,
                // in any order of the slices.
                let least = members.entry((address.ip, port.port)).or_insert_with(|| member.clone());
                if member < *least {
                    *least = member;
                }
            }
        }
    }
    members.into_values().collect()
}

#[cfg(test)]
mod tests {
    use staffetta_driver::{Protocol, SessionPersistence};

    use super::*;
    use crate::lb::testing::{listener, load_balancer};
    use crate::versioned_object::Versioned;

    fn owner() -> Owner {
        Owner { namespace: "default".into(), name: "web".into(), uid: "u".into() }
    }

    fn spec(ip: &str, ports: &[(Option<&str>, Protocol, u16)]) -> LbaasServiceSpec {
        let port = |(name, protocol, port): &(Option<&str>, Protocol, u16)| {
            Versioned(LbaasPortSpec { name: name.map(str::to_owned), port: *port, protocol: *protocol })
        };
        LbaasServiceSpec {
            ip: ip.parse().unwrap(),
            lb_ip: None,
            ports: ports.iter().map(port).collect(),
            project_id: "p".into(),
            security_groups_ids: Vec::new(),
            subnet_id: "s".into(),
            service_type: ServiceType::ClusterIP,
        }
    }

    fn endpoints(name: &str, protocol: Protocol, port: u16, ips: &[&str]) -> Arc<Vec<EndpointSet>> {
        let address =
            |ip: &&str| EndpointAddress { ip: ip.parse().unwrap(), target: format!("default/pod-{ip}") };
        Arc::new(vec![EndpointSet {
            ports: vec![EndpointPort { name: name.into(), protocol, port }],
            addresses: ips.iter().map(address).collect(),
            terminating: Vec::new(),
        }])
    }

    /// Returns the same endpoints, all terminating and still serving.
    fn terminating(name: &str, protocol: Protocol, port: u16, ips: &[&str]) -> Arc<Vec<EndpointSet>> {
        let mut sets = (*endpoints(name, protocol, port, ips)).clone();
        sets[0].terminating = std::mem::take(&mut sets[0].addresses);
        Arc::new(sets)
    }

    fn desired(spec: &LbaasServiceSpec, endpoints: &[Arc<Vec<EndpointSet>>]) -> DesiredState {
        DesiredState::of(
            &owner(),
            spec,
            (&ServiceSettings::default(), &LoadBalancerOptions::default()),
            endpoints,
        )
    }

    fn members(spec: &LbaasServiceSpec, endpoints: &[Arc<Vec<EndpointSet>>]) -> Vec<String> {
        let desired = desired(spec, endpoints);
        let names = desired.load_balancer.listeners.iter().flat_map(|ListenerSpec { at, pool, .. }| {
            let members = pool.members.iter();
            members.map(move |member| format!("{at} {}:{} {}", member.ip, member.port, member.name))
        });
        names.collect()
    }

    #[test]
    fn ports_are_matched_by_name_so_that_renamed_ones_follow() {
        let backends = [endpoints("http", Protocol::Tcp, 8080, &["10.1.0.1"])];
        let matched = ["TCP:80 10.1.0.1:8080 default/pod-10.1.0.1:8080"];
        assert_eq!(members(&spec("10.0.0.1", &[(Some("http"), Protocol::Tcp, 80)]), &backends), matched);
        let renamed = spec("10.0.0.1", &[(Some("web"), Protocol::Tcp, 80)]);
        assert_eq!(members(&renamed, &backends), [""; 0]);
        assert_eq!(members(&renamed, &[endpoints("web", Protocol::Tcp, 8080, &["10.1.0.1"])]), matched);
        assert_eq!(members(&spec("10.0.0.1", &[(Some("http"), Protocol::Udp, 80)]), &backends), [""; 0]);
    }

    #[test]
    fn while_a_port_is_renamed_its_pool_keeps_the_members_that_the_endpoints_still_list() {
        let published = LoadBalancer {
            listeners: vec![listener(Protocol::Tcp, 80, &["10.1.0.1", "10.1.0.2", "10.1.0.3"])],
            ..load_balancer("default/web", "10.0.0.1")
        };
        let other = (Some("other"), Protocol::Tcp, 8000);
        let kept = |port: (Option<&str>, Protocol, u16), endpoints: &[Arc<Vec<EndpointSet>>]| {
            let spec = spec("10.0.0.1", &[port, other]);
            let desired =
                desired(&spec, endpoints).keep_members_of_renamed_ports(&spec, endpoints, Some(&published));
            let listeners = desired.load_balancer.listeners.into_iter();
            let listeners = listeners.filter(|listener| listener.at.port == port.2);
            let members = listeners.flat_map(|listener| listener.pool.members);
            members.map(|member| member.ip.to_string()).collect::<Vec<_>>()
        };
        let old = endpoints("http", Protocol::Tcp, 8080, &["10.1.0.1", "10.1.0.2", "10.1.0.9"]);
        let new = endpoints("web", Protocol::Tcp, 8080, &["10.1.0.2", "10.1.0.9"]);
        let web = (Some("web"), Protocol::Tcp, 80);
        assert_eq!(
            kept(web, &[Arc::clone(&old)]),
            ["10.1.0.1", "10.1.0.2"],
            "nothing is added under an unknown name"
        );
        assert_eq!(kept(web, &[Arc::clone(&old), Arc::clone(&new)]), ["10.1.0.1", "10.1.0.2", "10.1.0.9"]);
        assert_eq!(kept(web, &[new]), ["10.1.0.2", "10.1.0.9"]);
        assert_eq!(kept((Some("http"), Protocol::Udp, 80), &[Arc::clone(&old)]), [""; 0]);
        assert_eq!(kept((Some("web"), Protocol::Tcp, 81), &[old]), [""; 0], "it is another port");
        let others = endpoints("other", Protocol::Tcp, 8080, &["10.1.0.1"]);
        assert_eq!(kept(web, &[others]), [""; 0], "they belong to a port that the service has");
        let moved = endpoints("http", Protocol::Tcp, 9090, &["10.1.0.1"]);
        assert_eq!(kept(web, &[moved]), [""; 0]);
    }

    #[test]
    fn terminating_endpoints_serve_a_port_as_long_as_no_slice_has_a_ready_one_of_its_family() {
        let spec = spec("10.0.0.1", &[(Some("http"), Protocol::Tcp, 80)]);
        let (last, next) = ("10.1.0.1", "10.1.0.2");
        let ends = || terminating("http", Protocol::Tcp, 8080, &[last]);
        let only_last = ["TCP:80 10.1.0.1:8080 default/pod-10.1.0.1:8080"];
        assert_eq!(members(&spec, &[ends()]), only_last);
        let of_others = [
            endpoints("other", Protocol::Tcp, 8080, &[next]),
            endpoints("http", Protocol::Udp, 8080, &[next]),
            endpoints("http", Protocol::Tcp, 8080, &["fd00::7"]),
        ];
        for other in of_others {
            assert_eq!(members(&spec, &[ends(), other]), only_last);
        }
        let ready = || endpoints("http", Protocol::Tcp, 8080, &[next]);
        let only_next = ["TCP:80 10.1.0.2:8080 default/pod-10.1.0.2:8080"];
        assert_eq!(members(&spec, &[ends(), ready()]), only_next);
        assert_eq!(members(&spec, &[ready(), ends()]), only_next);
    }

    #[test]
    fn a_port_without_a_name_matches_the_endpoints_without_a_name() {
        let backends = [endpoints("", Protocol::Tcp, 8080, &["10.1.0.1"])];
        assert_eq!(members(&spec("10.0.0.1", &[(None, Protocol::Tcp, 80)]), &backends).len(), 1);
    }

    #[test]
    fn members_have_the_family_of_the_cluster_ip() {
        let backends = [
            endpoints("http", Protocol::Tcp, 8080, &["10.1.0.1"]),
            endpoints("http", Protocol::Tcp, 8080, &["fd00::7"]),
        ];
        let port = [(Some("http"), Protocol::Tcp, 80)];
        assert_eq!(
            members(&spec("10.0.0.1", &port), &backends),
            ["TCP:80 10.1.0.1:8080 default/pod-10.1.0.1:8080"]
        );
        assert_eq!(
            members(&spec("fd00::1", &port), &backends),
            ["TCP:80 fd00::7:8080 default/pod-fd00::7:8080"]
        );
    }

    #[test]
    fn the_order_of_slices_and_duplicates_do_not_matter() {
        let one = endpoints("http", Protocol::Tcp, 8080, &["10.1.0.2", "10.1.0.1"]);
        let other = endpoints("http", Protocol::Tcp, 8080, &["10.1.0.2", "10.1.0.3"]);
        let spec = spec("10.0.0.1", &[(Some("http"), Protocol::Tcp, 80), (Some("other"), Protocol::Tcp, 81)]);
        let forth = desired(&spec, &[Arc::clone(&one), Arc::clone(&other)]);
        assert_eq!(forth, desired(&spec, &[other, one]));
        let listeners = forth.load_balancer.listeners.iter();
        let sizes: Vec<_> = listeners.map(|listener| listener.pool.members.len()).collect();
        assert_eq!(sizes, [3, 0], "a port without endpoints has an empty pool");
    }

    #[test]
    fn the_name_of_a_member_does_not_depend_on_the_order_of_slices() {
        let named = |target: &str| {
            let mut sets = (*endpoints("http", Protocol::Tcp, 8080, &["10.1.0.1"])).clone();
            sets[0].addresses[0].target = target.into();
            Arc::new(sets)
        };
        let spec = spec("10.0.0.1", &[(Some("http"), Protocol::Tcp, 80)]);
        let expected = ["TCP:80 10.1.0.1:8080 default/new:8080"];
        assert_eq!(members(&spec, &[named("default/new"), named("default/old")]), expected);
        assert_eq!(members(&spec, &[named("default/old"), named("default/new")]), expected);
    }

    #[test]
    fn only_a_load_balancer_has_a_public_address() {
        let public_ip = |service_type, lb_ip| {
            let spec = LbaasServiceSpec { lb_ip, service_type, ..spec("10.0.0.1", &[]) };
            desired(&spec, &[]).public_ip
        };
        let named = [192, 0, 2, 1].into();
        assert_eq!(public_ip(ServiceType::ClusterIP, None), None);
        assert_eq!(public_ip(ServiceType::NodePort, Some(named)), None);
        assert_eq!(public_ip(ServiceType::LoadBalancer, None), Some(PublicAddress::Any));
        assert_eq!(public_ip(ServiceType::LoadBalancer, Some(named)), Some(PublicAddress::Named(named)));
    }

    #[test]
    fn every_listener_has_the_settings_of_the_service_and_of_the_options() {
        let service = ServiceSettings {
            client_timeout_ms: Some(1000),
            persistence: Some(SessionPersistence { timeout_s: Some(60) }),
            ..ServiceSettings::default()
        };
        let options = LoadBalancerOptions { health_monitor: true, ..LoadBalancerOptions::default() };
        let spec = spec("10.0.0.1", &[(Some("a"), Protocol::Udp, 81), (Some("b"), Protocol::Tcp, 80)]);
        let desired = DesiredState::of(&owner(), &spec, (&service, &options), &[]);
        let listeners = &desired.load_balancer.listeners;
        assert_eq!(listeners.iter().map(|listener| listener.at.port).collect::<Vec<_>>(), [80, 81]);
        for ListenerSpec { settings, pool, .. } in listeners {
            assert_eq!((settings.client_timeout_ms, settings.member_timeout_ms), (Some(1000), None));
            assert_eq!(pool.settings.persistence, service.persistence);
            assert_eq!(pool.settings.monitor.unwrap().delay_s, 5);
        }
    }

    #[test]
    fn source_ranges_restrict_public_addresses_only_and_never_the_cluster() {
        let cidrs = |service_type, ip: &str, ranges: &[&str], internal: &[&str]| {
            let parsed = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
            let service = ServiceSettings { source_ranges: parsed(ranges), ..ServiceSettings::default() };
            let options =
                LoadBalancerOptions { internal_cidrs: parsed(internal), ..LoadBalancerOptions::default() };
            let spec = LbaasServiceSpec { service_type, ..spec(ip, &[(None, Protocol::Tcp, 80)]) };
            let desired = DesiredState::of(&owner(), &spec, (&service, &options), &[]);
            let allowed = desired.load_balancer.listeners[0].settings.allowed_cidrs.clone();
            allowed.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (public, inside) = (ServiceType::LoadBalancer, ["10.10.0.0/16"]);
        assert_eq!(cidrs(public, "10.0.0.1", &[], &inside), [""; 0], "nothing is restricted");
        assert_eq!(cidrs(ServiceType::ClusterIP, "10.0.0.1", &["192.0.2.0/24"], &inside), [""; 0]);
        let both = ["10.10.0.0/16", "192.0.2.0/24"];
        assert_eq!(cidrs(public, "10.0.0.1", &["192.0.2.0/24", "2001:db8::/64"], &inside), both);
        let restricted = cidrs(public, "10.0.0.1", &["2001:db8::/64"], &[]);
        assert_eq!(restricted, ["10.0.0.1/32"], "ranges of the other family do not open it to all");
    }
}
