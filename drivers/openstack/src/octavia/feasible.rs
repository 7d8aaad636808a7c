//! What of a load balancer this cloud can serve: pure.

use std::net::IpAddr;

use ipnet::IpNet;
use staffetta_driver::{
    Algorithm, Feasible, HealthMonitor, ListenerPort, ListenerSpec, LoadBalancerSpec, Protocol,
    SessionPersistence,
};

use super::features::Features;

/// The provider without load balancers of its own, which lacks some things.
const OVN: &str = "ovn";
/// The longest time-out that Octavia takes, in milliseconds: 24 days.
const LONGEST: u32 = 24 * 24 * 60 * 60 * 1000;
/// The shortest time between two questions over UDP, in seconds.
const UDP_DELAY: u32 = 3;
/// What Kubernetes takes for the time-out of session affinity when nobody names one, in seconds. Nobody misses it.
const UNNAMED_AFFINITY: u32 = 10_800;

/// What the driver chooses where a spec leaves it open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choices {
    pub(super) provider: Option<String>,
    pub(super) algorithm: Algorithm,
    /// Of clients and of members, in milliseconds.
    pub(super) timeouts: (u32, u32),
    pub(super) groups: Groups,
}

/// Where the security groups of a load balancer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Groups {
    /// Nowhere: they are not to guard it.
    Nowhere,
    /// On the port of its address, which is ours.
    OnOurPort,
    /// Octavia puts them on its own port.
    WithOctavia,
}

/// The spec as it can be carried out, but for the subnets of members.
pub(super) fn feasible(mut spec: LoadBalancerSpec, choices: &Choices, features: Features) -> Feasible {
    let mut without = Vec::new();
    spec.provider = spec.provider.or_else(|| choices.provider.clone());
    let has_ranges = spec.listeners.iter().any(|listener| !listener.settings.allowed_cidrs.is_empty());
    let lacks_groups = match choices.groups {
        Groups::Nowhere => true,
        Groups::OnOurPort => false,
        Groups::WithOctavia => {
            let lacks = !features.vip_groups || has_ranges;
            if lacks && !spec.security_groups.is_empty() {
                let beside = if has_ranges { " beside loadBalancerSourceRanges" } else { "" };
                without.push(format!("security groups{beside}"));
            }
            lacks
        }
    };
    if lacks_groups {
        spec.security_groups.clear();
    }
    spec.listeners.retain(|listener| {
        let served = features.serves(listener.at.protocol);
        if !served {
            without.push(listener.at.to_string());
        }
        served
    });
    let on_ovn = spec.provider.as_deref() == Some(OVN);
    for listener in &mut spec.listeners {
        let at = listener.at;
        let mut lacks = |what: &str| without.push(format!("{what} of {at}"));
        let ListenerSpec { settings, pool, .. } = listener;
        settings.client_timeout_ms = Some(timeout(settings.client_timeout_ms, choices.timeouts.0));
        settings.member_timeout_ms = Some(timeout(settings.member_timeout_ms, choices.timeouts.1));
        if !settings.allowed_cidrs.is_empty() && (on_ovn || !features.allowed_cidrs) {
            settings.allowed_cidrs.clear();
            lacks("loadBalancerSourceRanges");
        }
        settings.allowed_cidrs = of_family(&settings.allowed_cidrs, spec.vip);
        let pool = &mut pool.settings;
        let chosen =
            if on_ovn { Algorithm::SourceIpPort } else { pool.algorithm.unwrap_or(choices.algorithm) };
        pool.algorithm = Some(chosen);
        pool.persistence = match pool.persistence {
            Some(_) if on_ovn => {
                lacks("session affinity");
                None
            }
            Some(SessionPersistence { timeout_s: Some(timeout) }) if at.protocol == Protocol::Tcp => {
                if timeout != UNNAMED_AFFINITY {
                    lacks("the time-out of session affinity");
                }
                Some(SessionPersistence { timeout_s: None })
            }
            kept => kept,
        };
        let lacks_monitor = on_ovn && at.protocol == Protocol::Sctp;
        pool.monitor = pool.monitor.filter(|_| !lacks_monitor).map(|asked| slowed(at, asked));
    }
    Feasible { spec, without }
}

fn timeout(asked: Option<u32>, chosen: u32) -> u32 {
    asked.unwrap_or(chosen).min(LONGEST)
}

fn slowed(at: ListenerPort, monitor: HealthMonitor) -> HealthMonitor {
    let least = if at.protocol == Protocol::Udp { UDP_DELAY } else { 1 };
    HealthMonitor { delay_s: monitor.delay_s.max(least), ..monitor }
}

/// The ranges of the address's own family, which are all that Octavia takes, in one form. Where there are ranges and none is
/// of that family, nobody may connect: that is said by the one address from which nobody does.
fn of_family(ranges: &[IpNet], vip: IpAddr) -> Vec<IpNet> {
    let same = |range: &&IpNet| range.addr().is_ipv4() == vip.is_ipv4();
    let mut kept: Vec<IpNet> = ranges.iter().filter(same).map(IpNet::trunc).collect();
    if kept.is_empty() && !ranges.is_empty() {
        let nobody: IpAddr = if vip.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        kept.push(nobody.into());
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

#[cfg(test)]
mod tests {
    use staffetta_driver::{ListenerSettings, PoolSettings, PoolSpec};

    use super::*;

    const NEWEST: Features = Features { tags: true, allowed_cidrs: true, sctp: true, vip_groups: true };

    fn choices() -> Choices {
        Choices {
            provider: None,
            algorithm: Algorithm::RoundRobin,
            timeouts: (50_000, 60_000),
            groups: Groups::WithOctavia,
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
            security_groups: vec!["g".into()],
            listeners,
            adopt: None,
        }
    }

    #[test]
    fn what_is_left_open_gets_the_drivers_choice() {
        let Feasible { spec, without } =
            feasible(spec(vec![listener(Protocol::Udp, &[])]), &choices(), NEWEST);
        let ListenerSpec { settings, pool, .. } = &spec.listeners[0];
        assert_eq!((settings.client_timeout_ms, settings.member_timeout_ms), (Some(50_000), Some(7)));
        assert_eq!(pool.settings.algorithm, Some(Algorithm::RoundRobin));
        assert_eq!(pool.settings.persistence, Some(SessionPersistence { timeout_s: Some(60) }));
        assert_eq!(pool.settings.monitor, Some(HealthMonitor { delay_s: 3, timeout_s: 1, max_retries: 2 }));
        assert_eq!((spec.security_groups.len(), without), (1, vec![]));
    }

    #[test]
    fn what_an_old_release_lacks_is_left_out_and_told() {
        let wanted = spec(vec![listener(Protocol::Sctp, &[]), listener(Protocol::Tcp, &["192.0.2.0/24"])]);
        let Feasible { spec, without } = feasible(wanted, &choices(), Features::of((2, 0)));
        assert_eq!(spec.listeners.len(), 1);
        assert!(spec.security_groups.is_empty() && spec.listeners[0].settings.allowed_cidrs.is_empty());
        let told = [
            "security groups beside loadBalancerSourceRanges",
            "SCTP:80",
            "loadBalancerSourceRanges of TCP:80",
            "the time-out of session affinity of TCP:80",
        ];
        assert_eq!(without, told);
    }

    #[test]
    fn what_ovn_lacks_is_left_out_and_told() {
        let wanted = spec(vec![listener(Protocol::Sctp, &["192.0.2.0/24"])]);
        let choices = Choices { provider: Some("ovn".into()), groups: Groups::OnOurPort, ..choices() };
        let Feasible { spec, without } = feasible(wanted, &choices, NEWEST);
        let pool = &spec.listeners[0].pool.settings;
        assert_eq!(pool.algorithm, Some(Algorithm::SourceIpPort));
        assert_eq!((pool.persistence, pool.monitor), (None, None));
        assert_eq!(without, ["loadBalancerSourceRanges of SCTP:80", "session affinity of SCTP:80"]);
        assert_eq!(spec.security_groups.len(), 1, "they are on our own port");
    }

    #[test]
    fn ranges_have_the_family_of_the_address_and_none_of_it_means_nobody() {
        let v4: IpAddr = [10, 0, 0, 1].into();
        let of = |ranges: &[&str], vip| {
            let ranges: Vec<IpNet> = ranges.iter().map(|range| range.parse().unwrap()).collect();
            of_family(&ranges, vip).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            of(&["192.0.2.7/24", "192.0.2.0/24", "2001:db8::/32", "10.0.0.0/8"], v4),
            ["10.0.0.0/8", "192.0.2.0/24"]
        );
        assert_eq!(of(&["2001:db8::/32"], v4), ["0.0.0.0/32"]);
        assert_eq!(of(&["192.0.2.0/24"], "fd00::1".parse().unwrap()), ["::/128"]);
        assert_eq!(of(&[], v4), [""; 0]);
    }

    #[test]
    fn what_is_feasible_stays_as_it_is() {
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Sctp] {
            for provider in [None, Some(OVN.to_owned())] {
                let wanted = spec(vec![listener(protocol, &["192.0.2.0/24", "fd00::/8"])]);
                let choices = Choices { provider, ..choices() };
                let once = feasible(wanted, &choices, NEWEST).spec;
                assert_eq!(
                    feasible(once.clone(), &choices, NEWEST),
                    Feasible { spec: once, without: Vec::new() }
                );
            }
        }
    }
}
