//! Sample resources for tests.

use staffetta_driver::{
    Allocation, Listener, ListenerPort, ListenerSettings, LoadBalancer, Member, MemberSpec, Pool,
    PoolSettings, Protocol, ProvisioningStatus, PublicIp,
};

pub(super) fn load_balancer(name: &str, vip: &str) -> LoadBalancer {
    LoadBalancer {
        id: "lb".into(),
        project: "memory".into(),
        name: name.into(),
        vip: vip.parse().unwrap(),
        subnet: "services".into(),
        port: "port".into(),
        provider: Some("memory".into()),
        security_groups: vec!["default".into()],
        disabled: false,
        status: ProvisioningStatus::Active,
        listeners: Vec::new(),
    }
}

pub(super) fn listener(protocol: Protocol, port: u16, ips: &[&str]) -> Listener {
    let at = ListenerPort { protocol, port };
    let member = |ip: &&str| Member {
        id: format!("member-{at}-{ip}").into(),
        spec: MemberSpec {
            ip: ip.parse().unwrap(),
            port: 8080,
            name: format!("default/{ip}:8080"),
            subnet: "services".into(),
        },
    };
    let settings = PoolSettings::default();
    let pool = Pool { id: format!("pool-{at}").into(), settings, members: ips.iter().map(member).collect() };
    Listener {
        id: format!("listener-{at}").into(),
        at,
        settings: ListenerSettings::default(),
        pool: Some(pool),
    }
}

pub(super) fn public_ip(allocation: Allocation) -> PublicIp {
    PublicIp { id: "public".into(), ip: [203, 0, 113, 7].into(), allocation, port: Some("port".into()) }
}
