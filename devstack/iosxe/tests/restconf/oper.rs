//! Operational data, and how `fields` makes them shorter.

use serde_json::{Value, json};
use staffetta_iosxe_device::{ArpLists, Narrowed, Style};

use crate::client::{ARP, HARDWARE, OPER, configure, device, get, operate, until_state};

const DATA: &str = "Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data";

#[tokio::test]
async fn a_running_app_tells_what_it_is_and_what_it_uses() {
    let (_site, device) = device(|_| ());
    configure(&device, "web").await;
    operate(&device, "install", "web").await;
    until_state(&device, "web", Some("RUNNING")).await;
    let all = get(&device, OPER).await.json()[DATA].clone();
    let app = &all["app"][0];
    assert_eq!(app["details"]["package-information"]["path"], "flash:/hello.tar");
    assert_eq!(app["details"]["resource-reservation"]["memory"], "512", "64 bits are a string");
    assert!(
        app["details"]["docker-run-opts"]
            .as_str()
            .unwrap()
            .starts_with("--label cisco.vk/pod-name=web --label")
    );
    assert_eq!(app["network-interfaces"]["network-interface"][0]["ipv4-address"], "192.0.2.2");
    assert!(app["utilization"]["memory-util"]["memory-used"].is_string());
    let resources = &all["app-resources"][0];
    assert_eq!(
        (&resources["memory"][0]["quota"], &resources["memory"][0]["available"]),
        (&json!(16384), &json!(15872))
    );
    assert_eq!(resources["cpu"][0]["available-unit"], "36500");
    assert_eq!(all["app-globals"]["iox-enabled"], true);
    assert_eq!(device.apps()[0].label("cisco.vk/pod-name"), Some("web"));
}

#[tokio::test]
async fn fields_leave_what_was_asked_for_under_either_top() {
    for (narrowed, top) in [(Narrowed::Whole, DATA), (Narrowed::Member, "Cisco-IOS-XE-app-hosting-oper:app")]
    {
        let (_site, device) = device(|options| options.style = Style { narrowed, ..Style::default() });
        assert_eq!(get(&device, &format!("{OPER}?fields=app")).await.code, 204);
        configure(&device, "web").await;
        operate(&device, "install", "web").await;
        let answer = get(&device, &format!("{OPER}?fields=app(name;details/state)")).await.json();
        let members: Vec<_> = answer.as_object().unwrap().keys().collect();
        assert_eq!(members, [top]);
        let apps = if narrowed == Narrowed::Whole { &answer[top]["app"] } else { &answer[top] };
        assert_eq!(apps[0]["name"], "web");
        assert!(apps[0]["details"].as_object().unwrap().len() == 1 && apps[0].get("pkg-policy").is_none());
    }
}

#[tokio::test]
async fn where_the_device_does_not_tell_an_address_the_arp_table_does() {
    for lists in [ArpLists::Both, ArpLists::Oper, ArpLists::Entry] {
        let (_site, device) =
            device(|options| (options.reports_addresses, options.arp_lists) = (false, lists));
        configure(&device, "web").await;
        operate(&device, "install", "web").await;
        until_state(&device, "web", Some("RUNNING")).await;
        let app = get(&device, &format!("{OPER}/app=web")).await.json();
        let interface =
            &app["Cisco-IOS-XE-app-hosting-oper:app"][0]["network-interfaces"]["network-interface"][0];
        assert_eq!(interface["ipv4-address"], "0.0.0.0");
        let arp = get(&device, ARP).await.json();
        let vrf = &arp["Cisco-IOS-XE-arp-oper:arp-data"]["arp-vrf"][0];
        let known = |list: &str| vrf.get(list).is_some();
        assert_eq!(
            (known("arp-oper"), known("arp-entry")),
            (lists != ArpLists::Entry, lists != ArpLists::Oper)
        );
        let list = if known("arp-entry") { &vrf["arp-entry"] } else { &vrf["arp-oper"] };
        let entries = list.as_array().unwrap();
        let own = entries.iter().find(|entry| entry["hardware"] == interface["mac-address"]).unwrap();
        assert_eq!((&own["address"], &own["interface"]), (&json!("192.0.2.2"), &json!("VirtualPortGroup0")));
    }
}

#[tokio::test]
async fn the_hardware_tells_the_chassis_and_the_software() {
    let (_site, device) = device(|_| ());
    let hardware = get(&device, HARDWARE).await.json();
    let hardware = &hardware["Cisco-IOS-XE-device-hardware-oper:device-hardware-data"]["device-hardware"];
    assert_eq!(hardware["device-inventory"][0]["serial-number"], "9ESQK0SIM01");
    assert!(
        hardware["device-system-data"]["software-version"].as_str().unwrap().contains("Version 17.15.1a,")
    );
    let library = get(&device, "/restconf/data/ietf-yang-library:modules-state").await.json();
    let modules = library["ietf-yang-library:modules-state"]["module"].as_array().unwrap();
    assert!(modules.iter().any(|module| module["name"] == "Cisco-IOS-XE-app-hosting-oper"));
    assert_eq!(get(&device, "/restconf").await.json()["ietf-restconf:restconf"]["data"], json!({}));
}

#[tokio::test]
async fn states_and_numbers_can_be_reported_wrong() {
    let (_site, device) = device(|_| ());
    configure(&device, "web").await;
    operate(&device, "install", "web").await;
    until_state(&device, "web", Some("RUNNING")).await;
    device.show_state("web", Some("HIBERNATING"));
    until_state(&device, "web", Some("HIBERNATING")).await;
    assert!(device.apps()[0].runs(), "it is not true");
    device.show_state("web", None);
    until_state(&device, "web", Some("RUNNING")).await;
    let pointer = format!("/{DATA}/app-resources/0/memory/0/quota");
    let requests = staffetta_iosxe_device::Requests::any().path("app-hosting-oper-data");
    let value = Value::from(-5);
    device.inject(requests, 1, staffetta_iosxe_device::Fault::Replace { pointer: pointer.clone(), value });
    assert_eq!(get(&device, OPER).await.json().pointer(&pointer), Some(&json!(-5)));
    assert_eq!(get(&device, OPER).await.json().pointer(&pointer), Some(&json!(16384)));
}
