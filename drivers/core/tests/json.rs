//! The JSON form of the types of the contract.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Debug;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use staffetta_driver::{
    Activation, Allocation, Listener, ListenerPort, ListenerSettings, ListenerSpec, LoadBalancer,
    LoadBalancerProgress, LoadBalancerSpec, Member, MemberSpec, Network, NormalizedSpec, Owned, Owner, Pool,
    PoolSettings, PoolSpec, PortProfile, Protocol, ProvisioningStatus, PublicIp, Route, SessionPersistence,
    SubnetAddresses, Vif, VifClass,
};

fn travels<T: Serialize + DeserializeOwned + PartialEq + Debug>(thing: &T, as_json: &Value) {
    assert_eq!(serde_json::to_value(thing).unwrap(), *as_json);
    assert_eq!(serde_json::from_value::<T>(as_json.clone()).unwrap(), *thing);
}

fn vif(class: VifClass) -> Vif {
    Vif {
        id: "v1".into(),
        address: "fa:16:3e:00:00:01".parse().unwrap(),
        active: true,
        plugin: "ovs".into(),
        class,
        network: Network { mtu: Some(1450), ..Network::new("n1".into()) },
        subnets: vec![SubnetAddresses {
            cidr: "10.0.0.0/24".parse().unwrap(),
            gateway: Some([10, 0, 0, 1].into()),
            dns: vec![[10, 0, 0, 2].into()],
            routes: vec![Route { cidr: "0.0.0.0/0".parse().unwrap(), gateway: [10, 0, 0, 1].into() }],
            ips: vec![[10, 0, 0, 7].into()],
        }],
        has_traffic_filtering: false,
        preserve_on_delete: false,
        port_profile: Some(PortProfile::OpenVSwitch { interface_id: "v1".into() }),
    }
}

#[test]
fn a_vif_is_plain_data() {
    let class = VifClass::OpenVSwitch { vif_name: "tap1".into(), bridge_name: "br-int".into() };
    let plain = json!({
        "id": "v1", "address": "fa:16:3e:00:00:01", "active": true, "plugin": "ovs",
        "class": { "open_vswitch": { "vif_name": "tap1", "bridge_name": "br-int" } },
        "network": { "id": "n1", "label": null, "bridge": null, "mtu": 1450, "should_provide_bridge": false,
            "should_provide_vlan": false },
        "subnets": [{ "cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "dns": ["10.0.0.2"],
            "routes": [{ "cidr": "0.0.0.0/0", "gateway": "10.0.0.1" }], "ips": ["10.0.0.7"] }],
        "has_traffic_filtering": false, "preserve_on_delete": false,
        "port_profile": { "open_vswitch": { "interface_id": "v1" } },
    });
    travels(&vif(class), &plain);
}

#[test]
fn every_class_of_a_vif_has_its_name() {
    let name = || "eth0".to_owned();
    let mode = || "client".to_owned();
    let fields = || json!({ "a": 1 }).as_object().unwrap().clone();
    let classes = [
        (VifClass::Bridge { vif_name: name(), bridge_name: name() }, "bridge"),
        (VifClass::VHostUser { vif_name: name(), path: name(), mode: mode() }, "vhost_user"),
        (VifClass::VlanNested { vif_name: name(), vlan_id: 7 }, "vlan_nested"),
        (VifClass::MacvlanNested { vif_name: name() }, "macvlan_nested"),
        (VifClass::DpdkNested { vif_name: name(), pci_address: name(), dev_driver: name() }, "dpdk_nested"),
        (VifClass::Other { name: name(), version: name(), fields: fields() }, "other"),
    ];
    for (class, name) in classes {
        let json = serde_json::to_value(&class).unwrap();
        assert_eq!(json.as_object().unwrap().keys().collect::<Vec<_>>(), [name]);
        travels(&class, &json);
    }
}

#[test]
fn what_is_no_hardware_address_is_refused_by_name() {
    let refused = serde_json::from_value::<staffetta_driver::MacAddress>(json!("fa:16")).unwrap_err();
    assert_eq!(refused.to_string(), "`fa:16` is not a hardware address such as fa:16:3e:00:00:01");
}

#[test]
fn an_activation_says_when_to_ask_again() {
    let later = Activation::NotYet { poll_after: Duration::from_millis(500) };
    travels(&later, &json!({ "not_yet": { "poll_after_ms": 500 } }));
    let class = VifClass::MacvlanNested { vif_name: "eth0".into() };
    let now = Activation::Active(vif(class));
    assert_eq!(serde_json::to_value(&now).unwrap()["active"]["id"], "v1");
}

#[test]
fn a_load_balancer_is_plain_data() {
    let at = ListenerPort { protocol: Protocol::Tcp, port: 80 };
    let spec = MemberSpec { ip: [10, 0, 0, 9].into(), port: 8080, name: "a".into(), subnet: "s1".into() };
    let member = Member { id: "m1".into(), spec };
    let pool = Pool { id: "p1".into(), settings: PoolSettings::default(), members: vec![member] };
    let marked = Owned {
        owner: Some(Owner { namespace: "default".into(), name: "web".into(), uid: "u1".into() }),
        resource: LoadBalancer {
            id: "l1".into(),
            project: "p".into(),
            name: "default/web".into(),
            vip: [10, 0, 0, 1].into(),
            subnet: "s1".into(),
            port: "port".into(),
            provider: None,
            security_groups: vec!["g".into()],
            disabled: false,
            status: ProvisioningStatus::Pending,
            listeners: vec![Listener {
                id: "li1".into(),
                at,
                settings: ListenerSettings::default(),
                pool: Some(pool),
            }],
        },
    };
    let plain = json!({
        "owner": { "namespace": "default", "name": "web", "uid": "u1" },
        "resource": {
            "id": "l1", "project": "p", "name": "default/web", "vip": "10.0.0.1", "subnet": "s1", "port": "port",
            "provider": null, "security_groups": ["g"], "status": "pending",
            "listeners": [{ "id": "li1", "at": { "protocol": "TCP", "port": 80 }, "pool": { "id": "p1", "members": [
                { "id": "m1", "spec": { "ip": "10.0.0.9", "port": 8080, "name": "a", "subnet": "s1" } }] } }],
        },
    });
    travels(&marked, &plain);
}

#[test]
fn what_is_wanted_of_a_load_balancer_is_plain_data() {
    let at = ListenerPort { protocol: Protocol::Udp, port: 53 };
    let settings = ListenerSettings { client_timeout_ms: Some(1000), ..ListenerSettings::default() };
    let persistence = Some(SessionPersistence { timeout_s: Some(60) });
    let pool =
        PoolSpec { settings: PoolSettings { persistence, ..PoolSettings::default() }, members: Vec::new() };
    let spec = LoadBalancerSpec {
        name: "default/web".into(),
        project: "p".into(),
        subnet: "s1".into(),
        vip: [10, 0, 0, 1].into(),
        provider: Some("ovn".into()),
        security_groups: Some(Vec::new()),
        listeners: vec![ListenerSpec { at, settings, pool }],
        adopt: None,
    };
    let plain = json!({ "spec": {
        "name": "default/web", "project": "p", "subnet": "s1", "vip": "10.0.0.1", "provider": "ovn", "security_groups": [],
        "listeners": [{ "at": { "protocol": "UDP", "port": 53 }, "settings": { "client_timeout_ms": 1000 },
            "pool": { "settings": { "persistence": { "timeout_s": 60 } }, "members": [] } }],
        "adopt": null }, "without": ["SCTP:9"] });
    travels(&NormalizedSpec { spec, without: vec!["SCTP:9".into()] }, &plain);
    travels(
        &LoadBalancerProgress::Pending { poll_after: Duration::from_millis(50) },
        &json!({ "pending": { "poll_after_ms": 50 } }),
    );
    travels(&LoadBalancerProgress::Active, &json!("active"));
}

#[test]
fn a_public_address_is_plain_data() {
    let ip = PublicIp {
        id: "i1".into(),
        ip: [203, 0, 113, 7].into(),
        allocation: Allocation::User,
        port: Some("p".into()),
    };
    travels(&ip, &json!({ "id": "i1", "ip": "203.0.113.7", "allocation": "user", "port": "p" }));
}
