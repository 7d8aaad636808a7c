//! The device and the validator agree on what may be sent.

use serde_json::{Value, json};

use crate::client::{CFG, app, ask, device};
use crate::yanglint::{Kind, Yanglint};

const APP: &str = "Cisco-IOS-XE-app-hosting-cfg:app";

/// An app with one member more, or another one.
fn with(path: &[&str], value: Value) -> Value {
    let mut body = app("web");
    let mut here = &mut body[APP][0];
    for name in path {
        here = &mut here[*name];
    }
    *here = value;
    body
}

/// Each leaf of the table at, and beyond, the ends of what its type allows.
fn bodies() -> Vec<(String, Value)> {
    let text = |length: usize| Value::from("x".repeat(length));
    let leaves: &[(&[&str], &[Value])] = &[
        (
            &["application-name"],
            &[text(0), text(1), text(40), text(41), "a_B9".into(), "a-b".into(), "a.b".into(), 1.into()],
        ),
        (&["start"], &[true.into(), "true".into(), Value::Null]),
        (&["docker-resource"], &[false.into(), 0.into()]),
        (&["prepend-pkg-opts"], &[true.into()]),
        (&["autostart"], &[true.into()]),
        (
            &["application-resource-profile", "profile-name"],
            &[text(0), text(64), text(65), "a-b_c".into(), "a b".into()],
        ),
        (
            &["application-resource-profile", "cpu-units"],
            &[0.into(), 20000.into(), 20001.into(), 32000.into(), (-1).into(), "1".into(), 1.5.into()],
        ),
        (
            &["application-resource-profile", "memory-capacity-mb"],
            &[16384.into(), 16385.into(), 65536.into()],
        ),
        (&["application-resource-profile", "disk-size-mb"], &[65535.into(), 65536.into()]),
        (&["application-resource-profile", "vcpu"], &[0.into(), 65535.into(), 65536.into()]),
        (&["application-resource-profile", "cpu-percent"], &[100.into(), 101.into()]),
        (&["run-optss", "run-opts", "0", "line-run-opts"], &[text(235), text(236)]),
        (
            &["application-network-resource", "vnic-gateway-0"],
            &["7".into(), "31".into(), "100".into(), "".into(), "x".into(), 0.into()],
        ),
        (
            &["application-network-resource", "virtualportgroup-guest-interface-name-1"],
            &["3".into(), "4".into(), "00".into()],
        ),
        (
            &["application-network-resource", "virtualportgroup-guest-ip-address-1"],
            &["10.0.0.10".into(), "fd00::1".into(), "10.0.0".into(), "10.0.0.256".into()],
        ),
        (
            &["application-network-resource", "virtualportgroup-guest-interface-default-gateway-1"],
            &[3.into(), 4.into(), 256.into()],
        ),
        (
            &["application-network-resource", "virtualportgroup-guest-interface-default-gateway-2"],
            &[1.into(), 2.into()],
        ),
        (&["application-network-resource", "virtualportgroup-application-gateway-1"], &["10.0.0.1".into()]),
        (
            &["application-network-resource", "virtualportgroup-application-default-gateway-1"],
            &["10.0.0.1".into()],
        ),
        (&["application-network-resource", "nameserver2"], &["8.8.8.8".into(), "dns".into()]),
        (&["application-network-resource", "nameserver-2"], &["8.8.8.8".into()]),
        (&["application-network-resource", "nameseerver4"], &["8.8.8.8".into()]),
        (&["application-network-resource", "appintf-vlan-mode"], &["appintf-trunk".into(), "trunk".into()]),
        (&["application-network-resource", "appintf-access-interface-number"], &[63.into(), 64.into()]),
        (&["application-network-resource", "management-interface-name"], &["0".into(), "9".into()]),
        (
            &["application-network-resource", "management-guest-interface-default-gateway"],
            &[1.into(), 2.into()],
        ),
        (&["application-network-resource", "vpg-guest-ipv6-addr-1"], &["fd00::5".into(), "10.0.0.1".into()]),
        (&["application-network-resource", "ipv6-prefix-len-1"], &[128.into(), 129.into()]),
        (&["application-network-resource", "vpg-guest-if-ipv6-def-gw"], &[31.into(), 32.into()]),
        (
            &["application-network-resource", "application-mac-address"],
            &[json!({ "mac-address": "52:54:dd:00:00:01" }), json!({ "mac-address": "5254.dd00.0001" })],
        ),
        (
            &["application-attached-device"],
            &[json!({ "device-name": "ttyS0" }), json!({ "device-name": "tty-0" })],
        ),
        (
            &["appintf-mgmt"],
            &[json!({ "access-if-num": 63 }), json!({ "access-if-num": 64 }), json!({ "vlan-mode": "none" })],
        ),
        (
            &["appintf-mgmt-vlans"],
            &[
                json!({ "appintf-mgmt-vlan": [{ "vlan-id": 4094, "mgmt-vlan-param": { "guest-if": 1 } }] }),
                json!({ "appintf-mgmt-vlan": [{ "vlan-id": 0 }] }),
            ],
        ),
        (
            &["appintf-ports"],
            &[
                json!({ "appintf-port": [{ "port-number": 15 }] }),
                json!({ "appintf-port": [{ "port-number": 16 }] }),
            ],
        ),
        (
            &["app-cam-gintfs"],
            &[
                json!({ "app-cam-gintf": [{ "guest-if": 0, "guest-netmask": "255.255.255.0" }] }),
                json!({ "app-cam-gintf": [{ "guest-if": 64 }] }),
            ],
        ),
        (
            &["dev-usbs"],
            &[
                json!({ "dev-usb": [{ "usb-port-num": 1, "usb-port-label": "a_b" }] }),
                json!({ "dev-usb": [{ "usb-port-label": "a" }] }),
            ],
        ),
    ];
    let mut bodies = Vec::new();
    for (path, values) in leaves {
        for value in *values {
            let body = match path {
                ["run-optss", "run-opts", "0", leaf] => {
                    let mut body = app("web");
                    body[APP][0]["run-optss"]["run-opts"][0][*leaf] = value.clone();
                    body
                }
                path => with(path, value.clone()),
            };
            bodies.push((format!("{} = {value}", path.join("/")), body));
        }
    }
    let lines = |indices: &[u32]| {
        let lines: Vec<_> =
            indices.iter().map(|index| json!({ "line-index": index, "line-run-opts": "a" })).collect();
        with(&["run-optss"], json!({ "run-opts": lines }))
    };
    let rules = |rules: Value| with(&["appintf-vlan-rules"], json!({ "appintf-vlan-rule": rules }));
    let all: Vec<_> = (1..=30).collect();
    for (what, body) in [
        ("30 lines", lines(&all)),
        ("line 0", lines(&[0])),
        ("line 31", lines(&[31])),
        ("one line twice", lines(&[1, 1])),
        (
            "VLAN 1",
            rules(
                json!([{ "vlan-id": 1, "guest-interface": 63, "guest-ip": "10.0.0.5", "mcast-enable": true }]),
            ),
        ),
        ("VLAN 0", rules(json!([{ "vlan-id": 0 }]))),
        ("VLAN 4095", rules(json!([{ "vlan-id": 4095 }]))),
        ("guest interface 64", rules(json!([{ "vlan-id": 5, "guest-interface": 64 }]))),
        ("a rule without its key", rules(json!([{ "guest-interface": 0 }]))),
        ("a rule that is no list", rules(json!({ "vlan-id": 5 }))),
    ] {
        bodies.push((what.to_owned(), body));
    }
    bodies
}

#[tokio::test]
async fn the_device_takes_what_is_valid_and_nothing_else() {
    let Some(yanglint) = Yanglint::find() else { return };
    let (_site, device) = device(|_| ());
    let (mut taken, mut refused) = (0, 0);
    let mut differences = Vec::new();
    for (what, body) in bodies() {
        let answer = ask(&device, "POST", &format!("{CFG}/apps"), &body).await;
        match (answer.code, yanglint.complaint(Kind::Config, &body)) {
            (201, None) => taken += 1,
            (400 | 412, Some(_)) => refused += 1,
            (code, complaint) => differences.push(format!("{what}: {code} {}, {complaint:?}", answer.body)),
        }
        for app in device.apps() {
            ask(&device, "DELETE", &format!("{CFG}/apps/app={}", app.name), &Value::Null).await;
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    assert!(taken > 35 && refused > 40, "{taken} were taken and {refused} refused");
}
