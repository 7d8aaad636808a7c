//! Reduces the spec of a load balancer to the part that the cloud supports. Pure functions.

use std::collections::BTreeSet;

use staffetta_driver::{
    Algorithm, HealthMonitor, ListenerPort, ListenerSpec, LoadBalancerSpec, NormalizedSpec, Protocol,
    SessionPersistence,
};

use super::features::Features;

/// The name of the provider OVN, which lacks some features.
const OVN: &str = "ovn";
/// The longest timeout that Octavia accepts, in milliseconds: 24 days.
const MAX_TIMEOUT_MS: u32 = 24 * 24 * 60 * 60 * 1000;
/// The shortest interval of UDP health checks that Octavia accepts by default, in seconds.
const MIN_UDP_DELAY_S: u32 = 3;
/// The default timeout of session affinity in Kubernetes, in seconds. It is removed from TCP listeners without a report, since it may not
/// be the user's choice. A shorter or longer timeout is the user's choice, and its removal is reported.
const DEFAULT_AFFINITY_S: u32 = 10_800;

/// The options of the driver by which it completes the spec of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpecDefaults {
    /// The provider of load balancers whose spec names none. `None`: the default provider of the cloud.
    pub(super) provider: Option<String>,
    /// The algorithm of pools whose spec names none.
    pub(super) algorithm: Algorithm,
    /// The default timeouts of idle connections to clients and to members, in milliseconds.
    pub(super) timeouts: (u32, u32),
    /// `true` if the security groups of a spec are applied to its virtual address.
    pub(super) apply_groups: bool,
}

/// Completes the spec with `defaults`, and removes what the Octavia release and the provider do not support. The result names
/// the removed parts. The subnets of members are not changed.
pub(super) fn feasible(
    mut spec: LoadBalancerSpec,
    defaults: &SpecDefaults,
    features: Features,
) -> NormalizedSpec {
    let mut without = Vec::new();
    spec.provider = spec.provider.or_else(|| defaults.provider.clone());
    let on_ovn = spec.provider.as_deref() == Some(OVN);
    let serves_ranges = features.allowed_cidrs && !on_ovn;
    let has_ranges =
        serves_ranges && spec.listeners.iter().any(|listener| !listener.settings.allowed_cidrs.is_empty());
    if !defaults.apply_groups {
        spec.security_groups = None;
    } else if !features.vip_groups || has_ranges || on_ovn {
        if spec.security_groups.as_ref().is_some_and(|groups| !groups.is_empty()) {
            let beside = if has_ranges { " beside loadBalancerSourceRanges" } else { "" };
            without.push(format!("security groups{beside}"));
        }
        // Octavia rejects ranges while there are groups. OVN accepts groups without effect.
        spec.security_groups = (features.vip_groups && !on_ovn).then(Vec::new);
    }
    let mut ports = BTreeSet::new();
    spec.listeners.retain(|listener| {
        let ListenerPort { protocol, port } = listener.at;
        let served = features.serves(protocol) && (ports.insert(port) || features.same_port);
        if !served {
            without.push(listener.at.to_string());
        }
        served
    });
    for listener in &mut spec.listeners {
        let at = listener.at;
        let mut lacks = |what: &str| without.push(format!("{what} of {at}"));
        let ListenerSpec { settings, pool, .. } = listener;
        settings.client_timeout_ms = Some(timeout(settings.client_timeout_ms, defaults.timeouts.0));
        settings.member_timeout_ms = Some(timeout(settings.member_timeout_ms, defaults.timeouts.1));
        if !settings.allowed_cidrs.is_empty() && !serves_ranges {
            settings.allowed_cidrs.clear();
            lacks("loadBalancerSourceRanges");
        }
        let pool = &mut pool.settings;
        let chosen =
            if on_ovn { Algorithm::SourceIpPort } else { pool.algorithm.unwrap_or(defaults.algorithm) };
        pool.algorithm = Some(chosen);
        pool.persistence = match pool.persistence {
            Some(_) if on_ovn && !features.ovn_affinity => {
                lacks("session affinity");
                None
            }
            Some(SessionPersistence { timeout_s: Some(timeout) }) if at.protocol == Protocol::Tcp => {
                if timeout != DEFAULT_AFFINITY_S {
                    lacks("the timeout of session affinity");
                }
                Some(SessionPersistence { timeout_s: None })
            }
            kept => kept,
        };
        let lacks_monitor = on_ovn && at.protocol == Protocol::Sctp;
        pool.monitor = pool.monitor.filter(|_| !lacks_monitor).map(|asked| with_accepted_delay(at, asked));
    }
    NormalizedSpec { spec, without }
}

/// Returns the timeout of a spec, or the default of the driver if the spec names none, in milliseconds and at
/// most Octavia's maximum.
fn timeout(asked: Option<u32>, chosen: u32) -> u32 {
    asked.unwrap_or(chosen).min(MAX_TIMEOUT_MS)
}

/// Raises the interval of health checks to the shortest one that Octavia accepts.
fn with_accepted_delay(at: ListenerPort, monitor: HealthMonitor) -> HealthMonitor {
    let least = if at.protocol == Protocol::Udp { MIN_UDP_DELAY_S } else { 1 };
    HealthMonitor { delay_s: monitor.delay_s.max(least), ..monitor }
}

#[cfg(test)]
mod tests {
    use staffetta_driver::{ListenerSettings, PoolSettings, PoolSpec};

    use super::*;

    const NEWEST: Features = Features {
        additive_members: true,
        tags: true,
        allowed_cidrs: true,
        same_port: true,
        sctp: true,
        ovn_affinity: true,
        vip_groups: true,
    };

    fn defaults() -> SpecDefaults {
        SpecDefaults {
            provider: None,
            algorithm: Algorithm::RoundRobin,
            timeouts: (50_000, 60_000),
            apply_groups: true,
        }
    }

    fn listener(protocol: Protocol, ranges: &[&str]) -> ListenerSpec {
        let allowed_cidrs = ranges.iter().map(|range| range.parse().unwrap()).collect();
        let persistence = Some(SessionPersistence { timeout_s: Some(60) });
        let monitor = Some(HealthMonitor { delay_s: 1, timeout_s: 1, max_retries: 2 });
        ListenerSpec {
            at: ListenerPort { protocol, port: 80 },
            settings: ListenerSettings {
                allowed_cidrs,
                member_timeout_ms: Some(7),
                ..ListenerSettings::default()
            },
            pool: PoolSpec {
                settings: PoolSettings { persistence, monitor, ..PoolSettings::default() },
                members: Vec::new(),
            },
        }
    }

    fn spec(listeners: Vec<ListenerSpec>) -> LoadBalancerSpec {
        LoadBalancerSpec {
            name: "default/web".into(),
            project: "p".into(),
            subnet: "s".into(),
            vip: [10, 0, 0, 1].into(),
            provider: None,
            security_groups: Some(vec!["g".into()]),
            listeners,
            adopt: None,
        }
    }

    #[test]
    fn what_is_left_open_gets_the_drivers_choice() {
        let NormalizedSpec { spec, without } =
            feasible(spec(vec![listener(Protocol::Udp, &[])]), &defaults(), NEWEST);
        let ListenerSpec { settings, pool, .. } = &spec.listeners[0];
        assert_eq!((settings.client_timeout_ms, settings.member_timeout_ms), (Some(50_000), Some(7)));
        assert_eq!(pool.settings.algorithm, Some(Algorithm::RoundRobin));
        assert_eq!(pool.settings.persistence, Some(SessionPersistence { timeout_s: Some(60) }));
        assert_eq!(pool.settings.monitor, Some(HealthMonitor { delay_s: 3, timeout_s: 1, max_retries: 2 }));
        assert_eq!((spec.security_groups, without), (Some(vec!["g".into()]), vec![]));
    }

    #[test]
    fn what_an_old_release_lacks_is_left_out_and_reported() {
        let wanted = spec(vec![listener(Protocol::Sctp, &[]), listener(Protocol::Tcp, &["192.0.2.0/24"])]);
        let NormalizedSpec { spec, without } = feasible(wanted, &defaults(), Features::of((2, 0)));
        assert_eq!(spec.listeners.len(), 1);
        assert!(spec.security_groups.is_none() && spec.listeners[0].settings.allowed_cidrs.is_empty());
        let reported = [
            "security groups",
            "SCTP:80",
            "loadBalancerSourceRanges of TCP:80",
            "the timeout of session affinity of TCP:80",
        ];
        assert_eq!(without, reported);
    }

    #[test]
    fn what_ovn_lacks_is_left_out_and_reported() {
        let wanted = spec(vec![listener(Protocol::Sctp, &["192.0.2.0/24"])]);
        let defaults = SpecDefaults { provider: Some("ovn".into()), ..defaults() };
        let NormalizedSpec { spec, without } = feasible(wanted, &defaults, NEWEST);
        let pool = &spec.listeners[0].pool.settings;
        assert_eq!(pool.algorithm, Some(Algorithm::SourceIpPort));
        assert_eq!(pool.monitor, None);
        assert_eq!(without, ["security groups", "loadBalancerSourceRanges of SCTP:80"]);
        assert_eq!(spec.security_groups, None, "they guard nothing there");
    }

    #[test]
    fn ovn_keeps_session_affinity_since_it_can() {
        let defaults = SpecDefaults { provider: Some(OVN.into()), apply_groups: false, ..defaults() };
        let kept = |protocol, features| {
            let NormalizedSpec { spec, without } =
                feasible(spec(vec![listener(protocol, &[])]), &defaults, features);
            (spec.listeners[0].pool.settings.persistence, without)
        };
        let (old, lasts) = (Features::of((2, 25)), |timeout_s| Some(SessionPersistence { timeout_s }));
        assert_eq!(kept(Protocol::Udp, NEWEST), (lasts(Some(60)), vec![]));
        let untimed = vec!["the timeout of session affinity of TCP:80".to_owned()];
        assert_eq!(kept(Protocol::Tcp, NEWEST), (lasts(None), untimed));
        for (protocol, lacks) in [(Protocol::Udp, "UDP:80"), (Protocol::Tcp, "TCP:80")] {
            assert_eq!(kept(protocol, old), (None, vec![format!("session affinity of {lacks}")]));
        }
    }

    #[test]
    fn groups_stay_as_they_are_or_make_room_for_ranges_that_are_served() {
        let groups = |listener, provider: Option<&str>, apply_groups| {
            let defaults = SpecDefaults { provider: provider.map(str::to_owned), apply_groups, ..defaults() };
            feasible(spec(vec![listener]), &defaults, NEWEST).spec.security_groups
        };
        let (plain, ranged) = (listener(Protocol::Tcp, &[]), listener(Protocol::Tcp, &["192.0.2.0/24"]));
        let named = Some(vec!["g".into()]);
        assert_eq!(groups(plain.clone(), None, true), named);
        assert_eq!(groups(plain, None, false), None, "whatever it has stays");
        assert_eq!(groups(ranged.clone(), None, true), Some(vec![]), "what it has goes");
        assert_eq!(groups(ranged, Some(OVN), true), None, "neither guards anything there");
    }

    #[test]
    fn of_two_protocols_at_one_port_an_old_release_serves_the_first() {
        let wanted = || spec(vec![listener(Protocol::Tcp, &[]), listener(Protocol::Udp, &[])]);
        let reported = |version| feasible(wanted(), &defaults(), Features::of(version));
        let old = reported((2, 12));
        assert_eq!(old.spec.listeners.len(), 1);
        assert!(old.without.contains(&"UDP:80".to_owned()), "{:?}", old.without);
        assert_eq!(reported((2, 13)).spec.listeners.len(), 2);
    }

    #[test]
    fn what_is_feasible_stays_as_it_is() {
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
            for provider in [None, Some(OVN.to_owned())] {
                let wanted = spec(vec![listener(protocol, &["192.0.2.0/24", "198.51.100.0/24"])]);
                let defaults = SpecDefaults { provider, ..defaults() };
                let once = feasible(wanted, &defaults, NEWEST).spec;
                assert_eq!(
                    feasible(once.clone(), &defaults, NEWEST),
                    NormalizedSpec { spec: once, without: Vec::new() }
                );
            }
        }
    }
}
