//! The options of a simulated base.

use std::net::Ipv4Addr;
use std::time::Duration;

/// Options of a [`SimulatedBase`](crate::SimulatedBase).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulatedBaseOptions {
    /// The id of the base.
    pub identity: String,
    /// The name of the base, which bases of the same kind share.
    pub name: String,
    /// The version of the base.
    pub version: String,
    /// The cluster of bases to which the base belongs; empty if it names none.
    pub cluster_name: String,
    /// The address of the base, from which it reports and at which it serves commands over HTTP. Bases that share an address share
    /// the limits that a controller has for each address.
    pub ip: Ipv4Addr,
    /// The port at which it serves commands over HTTP; 0 chooses a free port.
    pub port: u16,
    /// The period of heartbeats. Default: 12 s, that of Arklet over HTTP.
    pub heartbeat: Duration,
    /// The delay of the first heartbeat after the start.
    pub first_heartbeat: Duration,
    /// `true` if the base asks for its baseline before its first heartbeat, and loads what it gets.
    pub asks_baseline: bool,
    /// The time before a module that is being loaded is listed, in which Arklet downloads its JAR file.
    pub download_time: Duration,
    /// The duration of loading a module, once its JAR file is there.
    pub install_time: Duration,
    /// The duration of unloading a module.
    pub uninstall_time: Duration,
    /// The modules, each as name and version, that the base has at each start without having been asked to load them.
    pub built_in: Vec<(String, String)>,
    /// The JAR files, by URL, whose manifest has another name and version than the request to load them. Arklet goes by the manifest.
    pub manifests: Vec<(String, (String, String))>,
    /// The size of the metaspace, in bytes.
    pub max_metaspace: u64,
    /// The part of the metaspace that each module takes, in bytes. A module for which there is no room is not loaded.
    pub module_metaspace: u64,
}

impl Default for SimulatedBaseOptions {
    fn default() -> Self {
        Self {
            identity: "base-1".to_owned(),
            name: "shop".to_owned(),
            version: "1.1".to_owned(),
            cluster_name: "east".to_owned(),
            ip: Ipv4Addr::LOCALHOST,
            port: 0,
            heartbeat: Duration::from_secs(12),
            first_heartbeat: Duration::ZERO,
            asks_baseline: false,
            download_time: Duration::ZERO,
            install_time: Duration::ZERO,
            uninstall_time: Duration::ZERO,
            built_in: Vec::new(),
            manifests: Vec::new(),
            max_metaspace: 256 << 20,
            module_metaspace: 1 << 20,
        }
    }
}

impl SimulatedBaseOptions {
    /// Returns the options of base number `number` of `count`: with the id `base-NUMBER`, an address of its own in 127.0.0.0/8, and
    /// a first heartbeat such that those of all bases are spread evenly over the period.
    #[must_use]
    pub fn numbered(number: u16, count: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        let defaults = Self::default();
        Self {
            identity: format!("base-{number}"),
            ip: Ipv4Addr::new(127, 88, high, low),
            first_heartbeat: defaults.heartbeat * u32::from(number % count.max(1)) / u32::from(count.max(1)),
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbered_bases_share_neither_an_id_nor_an_address_and_spread_their_heartbeats() {
        let all: Vec<_> = (1..=1000).map(|number| SimulatedBaseOptions::numbered(number, 1000)).collect();
        let ids: BTreeSet<_> = all.iter().map(|base| &base.identity).collect();
        let addresses: BTreeSet<_> = all.iter().map(|base| base.ip).collect();
        let times: BTreeSet<_> = all.iter().map(|base| base.first_heartbeat).collect();
        assert_eq!((ids.len(), addresses.len(), times.len()), (1000, 1000, 1000));
        assert!(all.iter().all(|base| base.ip.is_loopback() && base.first_heartbeat < base.heartbeat));
    }
}
