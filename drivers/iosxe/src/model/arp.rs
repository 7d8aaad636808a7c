//! The YANG module `Cisco-IOS-XE-arp-oper`: the ARP table, which maps IP addresses to MAC addresses.

use std::net::IpAddr;

use serde::Deserialize;
use staffetta_driver::MacAddress;

/// The YANG container `arp-data`: the ARP tables of a device.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct ArpData {
    /// The ARP tables of each VRF.
    pub(crate) arp_vrf: Vec<Vrf>,
}

/// The ARP tables of one VRF. Releases before 17.6 have the list `arp-oper` only.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Vrf {
    /// The entries in the format of releases since 17.6; empty in earlier ones.
    pub(crate) arp_entry: Vec<ArpEntry>,
    /// The entries in the format of releases before 17.6.
    pub(crate) arp_oper: Vec<ArpEntry>,
}

/// An entry of an ARP table.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ArpEntry {
    /// The IP address of the entry.
    pub(crate) address: String,
    /// The MAC address of the entry, in one of the notations of Cisco.
    pub(crate) hardware: String,
    /// The kind of the entry; `ios-arp-mode-incomplete` while the MAC address is not resolved.
    pub(crate) mode: String,
}

impl ArpData {
    /// Returns the IP address that the ARP table of any VRF has for a MAC address; `None` if there is no entry, it is not resolved, or its
    /// IP address is not valid.
    pub(crate) fn address(&self, wanted: MacAddress) -> Option<IpAddr> {
        let (_, address) = self.entries().find(|(mac, _)| *mac == Some(wanted))?;
        address.filter(|address| !address.is_unspecified())
    }

    /// Returns the MAC address and the IP address of each entry whose MAC address is resolved; each of the two is `None` if it is
    /// malformed.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Option<MacAddress>, Option<IpAddr>)> {
        let entries = self
            .arp_vrf
            .iter()
            .flat_map(|vrf| if vrf.arp_entry.is_empty() { &vrf.arp_oper } else { &vrf.arp_entry });
        let complete = entries.filter(|entry| entry.mode != "ios-arp-mode-incomplete");
        complete.map(|entry| (mac(&entry.hardware), entry.address.parse().ok()))
    }
}

/// Parses a MAC address: `52:54:dd:dc:f1:7c`, `52-54-DD-DC-F1-7C` and `5254.dddc.f17c` are the same one. `None` if the
/// text is malformed or the address is zero.
pub(crate) fn mac(text: &str) -> Option<MacAddress> {
    let mut digits = text.chars().filter(|c| !matches!(c, ':' | '-' | '.')).map(|c| c.to_digit(16));
    let mut bytes = [0; 6];
    for byte in &mut bytes {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    (digits.next().is_none() && bytes != [0; 6]).then_some(MacAddress(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_address_is_the_same_however_it_is_written() {
        let expected = mac("52:54:dd:dc:f1:7c");
        assert!(expected.is_some());
        for text in ["5254.dddc.f17c", "52-54-DD-DC-F1-7C", "5254DDDCF17C"] {
            assert_eq!(mac(text), expected);
        }
        for text in ["", "52:54", "52:54:dd:dc:f1:7c:00", "zz:54:dd:dc:f1:7c", "00:00:00:00:00:00", "é"] {
            assert_eq!(mac(text), None, "{text}");
        }
    }

    #[test]
    fn an_address_is_found_in_any_table_and_not_where_it_is_only_asked_for() {
        let mac = mac("0200.0000.0001").unwrap();
        let entry = |address: &str, mode: &str| ArpEntry {
            address: address.into(),
            hardware: "02:00:00:00:00:01".into(),
            mode: mode.into(),
        };
        let vrf = |arp_entry, arp_oper| Vrf { arp_entry, arp_oper };
        let dynamic = || entry("192.0.2.7", "ios-arp-mode-dynamic");
        let found = |data: ArpData| data.address(mac).map(|address| address.to_string());
        let second = ArpData { arp_vrf: vec![vrf(vec![], vec![]), vrf(vec![dynamic()], vec![])] };
        assert_eq!(found(second).as_deref(), Some("192.0.2.7"));
        let old = ArpData { arp_vrf: vec![vrf(vec![], vec![dynamic()])] };
        assert_eq!(found(old).as_deref(), Some("192.0.2.7"));
        let asked = entry("192.0.2.8", "ios-arp-mode-incomplete");
        assert_eq!(found(ArpData { arp_vrf: vec![vrf(vec![asked], vec![])] }), None);
        let odd = entry("0.0.0.0", "ios-arp-mode-dynamic");
        assert_eq!(found(ArpData { arp_vrf: vec![vrf(vec![odd], vec![])] }), None);
    }
}
