use std::error::Error;
use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::{Map, json};
use staffetta_driver::{MacAddress, Network, PortProfile, Route, SubnetAddresses, VifClass};

use super::*;
use crate::versioned_object::to_text;

const DATA: &str = "versioned_object.data";
const PORT: &str = "889e8fb0-8b1c-4ff2-8d6b-1f6d3b1f0c11";

/// Returns an annotation that Kuryr wrote.
fn golden() -> Value {
    serde_json::from_str(include_str!("kuryr-vif.json")).unwrap()
}

/// Returns the content of that annotation.
fn state() -> PodState {
    PodState::new(Vif {
        id: PORT.into(),
        address: MacAddress([0xfa, 0x16, 0x3e, 0, 0, 2]),
        active: false,
        plugin: "ovs".into(),
        class: VifClass::OpenVSwitch { vif_name: "tap889e8fb0-8b".into(), bridge_name: "br-int".into() },
        network: Network {
            label: Some("net".into()),
            bridge: Some("br-int".into()),
            mtu: Some(1450),
            ..Network::new("0f2a3f7e-6a0d-4b0b-9f5a-3c9f0e4a7d55".into())
        },
        subnets: vec![SubnetAddresses {
            cidr: "10.0.0.64/26".parse().unwrap(),
            gateway: Some(IpAddr::from([10, 0, 0, 65])),
            dns: vec![IpAddr::from([8, 8, 8, 8])],
            routes: Vec::new(),
            ips: vec![IpAddr::from([10, 0, 0, 70])],
        }],
        has_traffic_filtering: true,
        preserve_on_delete: false,
        port_profile: Some(PortProfile::OpenVSwitch { interface_id: PORT.into() }),
    })
}

fn vif_of(state: &mut Value) -> &mut Value {
    &mut state[DATA]["default_vif"]
}

/// Returns the text of the error and its cause.
fn refusal(text: &str) -> String {
    let error = PodState::read(text).unwrap_err();
    format!("{error}: {}", error.source().unwrap())
}

#[test]
fn a_state_with_too_many_vifs_is_refused() {
    let mut state = state();
    for number in 1..=MAX_ADDITIONAL_VIFS {
        state.additional_vifs.insert(format!("eth{number}"), state.default_vif.clone());
    }
    assert_eq!(PodState::read(&state.write()).unwrap(), state);
    state.additional_vifs.insert("one-more".into(), state.default_vif.clone());
    assert!(refusal(&state.write()).contains("17 VIFs beside the default one"));
}

#[test]
fn the_written_format_is_kuryrs() {
    assert_eq!(state().write(), to_text(&golden()));
}

#[test]
fn the_format_of_kuryr_is_read() {
    assert_eq!(PodState::read(&golden().to_string()).unwrap(), state());
}

#[test]
fn the_list_of_changes_is_ignored() {
    let mut annotation = golden();
    vif_of(&mut annotation)["versioned_object.changes"] = json!(["active", "address"]);
    assert_eq!(PodState::read(&annotation.to_string()).unwrap(), state());
}

#[test]
fn a_vif_without_a_state_is_read_and_written_with_one() {
    let queens = vif_of(&mut golden()).clone();
    let read = PodState::read(&queens.to_string()).unwrap();
    assert_eq!(read, state());
    assert_eq!(read.write_over(&queens.to_string()), to_text(&golden()));
}

#[test]
fn an_activated_vif_keeps_its_unknown_fields() {
    let mut annotation = golden();
    vif_of(&mut annotation)[DATA]["network"][DATA]["vlan"] = json!("17");
    let text = annotation.to_string();
    let mut active = PodState::read(&text).unwrap();
    active.vifs_mut().for_each(|vif| vif.active = true);
    vif_of(&mut annotation)[DATA]["active"] = json!(true);
    assert_eq!(active.write_over(&text), to_text(&annotation));
}

#[test]
fn an_unknown_class_survives() {
    let mut annotation = golden();
    let vif = vif_of(&mut annotation);
    vif["versioned_object.name"] = json!("VIFQuantumFoam");
    vif["versioned_object.version"] = json!("1.7");
    vif[DATA]["bubbles"] = json!({ "count": 3 });
    vif[DATA]["port_profile"]["versioned_object.name"] = json!("VIFPortProfileFoam");
    let read = PodState::read(&annotation.to_string()).unwrap();
    assert!(matches!(&read.default_vif.class, VifClass::Other { name, .. } if name == "VIFQuantumFoam"));
    assert_eq!(read.write(), to_text(&annotation));
}

#[test]
fn every_known_class_has_its_own_name_and_fields() {
    let classes = [
        ("VIFBridge", json!({ "vif_name": "tap0", "bridge_name": "qbr0" })),
        ("VIFVHostUser", json!({ "vif_name": "vhu0", "path": "/run/vhu0", "mode": "server" })),
        ("VIFVlanNested", json!({ "vif_name": "eth0.7", "vlan_id": 7 })),
        ("VIFMacvlanNested", json!({ "vif_name": "eth0" })),
        (
            "VIFDPDKNested",
            json!({ "vif_name": "eth1", "pci_address": "0000:00:04.0", "dev_driver": "virtio" }),
        ),
    ];
    for (name, fields) in classes {
        let mut annotation = golden();
        let vif = vif_of(&mut annotation);
        vif["versioned_object.name"] = json!(name);
        let data = vif[DATA].as_object_mut().unwrap();
        data.remove("bridge_name");
        data.extend(fields.as_object().unwrap().clone());
        let read = PodState::read(&annotation.to_string()).unwrap();
        assert!(!matches!(read.default_vif.class, VifClass::Other { .. }), "{name}");
        assert_eq!(read.write(), to_text(&annotation), "{name}");
    }
}

#[test]
fn fields_that_os_vif_omits_when_unset_are_optional() {
    let mut annotation = golden();
    let data = vif_of(&mut annotation)[DATA].as_object_mut().unwrap();
    data.remove("port_profile");
    let network = data["network"][DATA].as_object_mut().unwrap();
    network.remove("mtu");
    network.remove("label");
    network["subnets"][DATA]["objects"][0][DATA].as_object_mut().unwrap().remove("gateway");
    let vif = PodState::read(&annotation.to_string()).unwrap().default_vif;
    assert_eq!((vif.port_profile, vif.network.mtu, vif.subnets[0].gateway), (None, None, None));
}

#[test]
fn invalid_json_is_refused_with_the_annotation_the_text_and_the_remedy() {
    let error = refusal("eth0=10.0.0.7");
    assert!(error.contains("openstack.org/kuryr-vif") && error.contains("`eth0=10.0.0.7`"), "{error}");
    assert!(error.contains("remove it to have it written again"), "{error}");
}

#[test]
fn an_unknown_object_or_version_is_refused_by_name() {
    let mut other = golden();
    other["versioned_object.name"] = json!("PodStatus");
    assert!(
        refusal(&other.to_string()).contains("found the object PodStatus 1.0 of os_vif, expected PodState")
    );
    let mut newer = golden();
    newer["versioned_object.version"] = json!("2.0");
    assert!(
        refusal(&newer.to_string())
            .contains("found the object PodState 2.0 of os_vif, expected PodState 1.0")
    );
    let mut foreign = golden();
    vif_of(&mut foreign)["versioned_object.namespace"] = json!("nova");
    assert!(refusal(&foreign.to_string()).contains("found the object VIFOpenVSwitch 1.0 of nova"));
}

#[test]
fn a_missing_or_wrong_field_is_named_with_the_class_around_it() {
    let mut missing = golden();
    vif_of(&mut missing)[DATA].as_object_mut().unwrap().remove("id");
    assert!(refusal(&missing.to_string()).contains("PodState: VIFOpenVSwitch: missing field `id`"));
    let mut wrong = golden();
    vif_of(&mut wrong)[DATA]["address"] = json!("fa:16");
    assert!(refusal(&wrong.to_string()).contains("`fa:16` is not a hardware address"));
}

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9-]{0,12}"
}

fn version() -> impl Strategy<Value = String> {
    (0..20_u8).prop_map(|minor| format!("1.{minor}"))
}

fn fields() -> impl Strategy<Value = Map<String, Value>> {
    let value = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        name().prop_map(Value::from)
    ];
    prop::collection::btree_map("own_[a-z]{1,5}", value, 0..4).prop_map(|fields| fields.into_iter().collect())
}

fn class() -> impl Strategy<Value = VifClass> {
    let pair = || (name(), name());
    let triple = || (name(), name(), name());
    prop_oneof![
        pair().prop_map(|(vif_name, bridge_name)| VifClass::OpenVSwitch { vif_name, bridge_name }),
        pair().prop_map(|(vif_name, bridge_name)| VifClass::Bridge { vif_name, bridge_name }),
        triple().prop_map(|(vif_name, path, mode)| VifClass::VHostUser { vif_name, path, mode }),
        (name(), 1..4095_u16).prop_map(|(vif_name, vlan_id)| VifClass::VlanNested { vif_name, vlan_id }),
        name().prop_map(|vif_name| VifClass::MacvlanNested { vif_name }),
        triple().prop_map(|(vif_name, pci_address, dev_driver)| VifClass::DpdkNested {
            vif_name,
            pci_address,
            dev_driver
        }),
        ("VIF[A-Z]{2}X[a-z]{1,6}", version(), fields()).prop_map(|(name, version, fields)| VifClass::Other {
            name,
            version,
            fields
        }),
    ]
}

fn profile() -> impl Strategy<Value = PortProfile> {
    prop_oneof![
        name().prop_map(|interface_id| PortProfile::OpenVSwitch { interface_id }),
        ("VIFPortProfile[A-Z]x{1,3}", version(), fields())
            .prop_map(|(name, version, fields)| PortProfile::Other { name, version, fields }),
    ]
}

fn cidr() -> impl Strategy<Value = ipnet::IpNet> {
    (any::<IpAddr>(), 0..=32_u8).prop_map(|(address, prefix)| ipnet::IpNet::new(address, prefix).unwrap())
}

fn subnet() -> impl Strategy<Value = SubnetAddresses> {
    let addresses = || prop::collection::vec(any::<IpAddr>(), 0..3);
    let route = (cidr(), any::<IpAddr>()).prop_map(|(cidr, gateway)| Route { cidr, gateway });
    (cidr(), any::<Option<IpAddr>>(), addresses(), prop::collection::vec(route, 0..3), addresses())
        .prop_map(|(cidr, gateway, dns, routes, ips)| SubnetAddresses { cidr, gateway, dns, routes, ips })
}

fn network() -> impl Strategy<Value = Network> {
    let option = || prop::option::of(name());
    (name(), option(), option(), any::<Option<u32>>(), any::<bool>(), any::<bool>()).prop_map(
        |(id, label, bridge, mtu, should_provide_bridge, should_provide_vlan)| Network {
            id: id.into(),
            label,
            bridge,
            mtu,
            should_provide_bridge,
            should_provide_vlan,
        },
    )
}

fn any_vif() -> impl Strategy<Value = Vif> {
    let subnets = prop::collection::vec(subnet(), 0..3);
    let identity = (name(), any::<[u8; 6]>(), name());
    (identity, any::<[bool; 3]>(), class(), network(), subnets, prop::option::of(profile())).prop_map(
        |((id, address, plugin), flags, class, network, subnets, port_profile)| Vif {
            id: id.into(),
            address: MacAddress(address),
            active: flags[0],
            plugin,
            class,
            network,
            subnets,
            has_traffic_filtering: flags[1],
            preserve_on_delete: flags[2],
            port_profile,
        },
    )
}

fn any_state() -> impl Strategy<Value = PodState> {
    let additional_vifs = prop::collection::btree_map("eth[1-9]", any_vif(), 0..3);
    (any_vif(), additional_vifs)
        .prop_map(|(default_vif, additional_vifs)| PodState { default_vif, additional_vifs })
}

proptest! {
    #[test]
    fn reading_restores_the_written_state(state in any_state()) {
        prop_assert_eq!(PodState::read(&state.write()).unwrap(), state);
    }

    #[test]
    fn keys_are_sorted_at_every_level(state in any_state()) {
        let text = state.write();
        let mut sorted: Value = serde_json::from_str(&text).unwrap();
        sorted.sort_all_objects();
        prop_assert_eq!(sorted.to_string(), text);
    }

    #[test]
    fn writing_over_any_state_gives_the_new_one(old in any_state(), new in any_state()) {
        prop_assert_eq!(PodState::read(&new.write_over(&old.write())).unwrap(), new);
    }

    #[test]
    fn no_text_makes_reading_panic(text in ".{0,80}") {
        prop_assert!(PodState::read(&text).is_err());
    }
}
