//! The ARP table: the neighbours of the device, including its apps.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::date_and_time;
use crate::iox::{AppConfig, Iox, State};
use crate::options::ArpLists;

/// Generates the data below `arp-data`.
pub(crate) fn arp(iox: &Iox, config: AppConfig<'_>, now: Instant) -> Value {
    let time = date_and_time(iox.event_log.clock(now));
    let gateway = iox.options.dhcp_pool.hosts().next();
    let own = gateway.map(|address| {
        entry(&address.to_string(), "VirtualPortGroup0", "interface", "00:1e:14:c4:a3:bd", &time)
    });
    let running = iox.apps.iter().filter(|app| app.state == State::Running);
    let heard = running.filter_map(|app| {
        let address = app.address_at(now)?.to_string();
        Some(entry(&address, &config.interface(&app.name), "dynamic", &app.mac(), &time))
    });
    let entries: Vec<_> = own.into_iter().chain(heard).collect();
    let mut vrf = Map::from_iter([("vrf".to_owned(), Value::from("Default"))]);
    if iox.options.arp_lists != ArpLists::Entry {
        // This list has one entry for an address, however many interfaces know it.
        let mut known = std::collections::BTreeSet::new();
        let first = entries.iter().filter(|entry| known.insert(entry["address"].to_string()));
        let first: Vec<_> = first.cloned().collect();
        vrf.insert("arp-oper".into(), first.into());
    }
    if iox.options.arp_lists != ArpLists::Oper {
        vrf.insert("arp-entry".into(), entries.into());
    }
    json!({ "arp-vrf": [vrf] })
}

fn entry(address: &str, interface: &str, mode: &str, mac: &str, time: &str) -> Value {
    json!({
        "address": address,
        "interface": interface,
        "enctype": "ios-encaps-type-arpa",
        "type": "ios-linktype-ip",
        "mode": format!("ios-arp-mode-{mode}"),
        "hwtype": "ios-snpa-type-ieee48",
        "hardware": mac,
        "time": time,
    })
}
