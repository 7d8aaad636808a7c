//! Lists the pods on a device.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use staffetta_driver::app_hosting::{HostedContainer, HostedPod, HostedPods};
use staffetta_driver::{MacAddress, Uid};
use tokio::time::Instant;
use tracing::debug;

use super::reading::fetch;
use crate::machine::{AppRecord, AppState};
use crate::model::arp::ArpData;
use crate::model::resource;
use crate::observe::{ID_PREFIX, Observed, ObservedApp};
use crate::restconf::NetworkClient;

/// The minimum interval between two reads of the ARP table while the address of an application is unknown.
const UNKNOWN_ADDRESS_INTERVAL: Duration = Duration::from_secs(4);

/// The minimum interval between two reads of the ARP table while the addresses of all applications are known. DHCP
/// may change them.
const KNOWN_ADDRESS_INTERVAL: Duration = Duration::from_secs(60);

/// The state for listing the pods on a device: the IP addresses that its ARP table has for applications that report none.
#[derive(Default)]
pub(super) struct PodListing {
    addresses: HashMap<MacAddress, IpAddr>,
    /// The time at which the ARP table was last read.
    read_at: Option<Instant>,
}

impl PodListing {
    /// Lists the pods whose applications have an ownership mark that names `cluster` or no cluster.
    pub(super) fn pods(
        &self,
        observed: &Observed,
        records: &HashMap<String, AppRecord>,
        cluster: &str,
    ) -> HostedPods {
        let mut apps: Vec<_> = ours(observed, cluster).collect();
        apps.sort_by_key(|app| app.mark.as_ref().and_then(|mark| mark.position));
        let mut pods: BTreeMap<&Uid, HostedPod> = BTreeMap::new();
        for app in apps {
            let Some(mark) = &app.mark else { continue };
            let pod = pods.entry(&mark.owner.uid).or_insert_with(|| HostedPod {
                owner: mark.owner.clone(),
                marked: true,
                containers: Vec::new(),
                ip: None,
            });
            pod.marked &= mark.cluster.is_some();
            pod.ip = pod.ip.or_else(|| self.address(app));
            pod.containers.push(HostedContainer {
                name: mark.container.clone(),
                id: format!("{ID_PREFIX}{}", app.id),
                state: app.hosted(records.get(&app.id).and_then(AppRecord::problem)),
            });
        }
        pods.into_values().collect()
    }

    /// Returns the IP address that the application reports, or else the one that the ARP table has for one of its MAC addresses.
    fn address(&self, app: &ObservedApp) -> Option<IpAddr> {
        app.address.or_else(|| app.macs.iter().find_map(|mac| self.addresses.get(mac)).copied())
    }

    /// Reads the ARP table of the device if the IP address of a running application is neither reported nor configured, and the last read
    /// is not too recent. If the read fails, the pods are listed without that address, and the table is read again later.
    pub(super) async fn read_addresses(
        &mut self,
        client: &dyn NetworkClient,
        observed: &Observed,
        cluster: &str,
    ) {
        let silent =
            ours(observed, cluster).filter(|app| app.state == AppState::Running && app.address.is_none());
        let macs: Vec<MacAddress> = silent.flat_map(|app| app.macs.iter().copied()).collect();
        let known = macs.iter().all(|mac| self.addresses.contains_key(mac));
        let pause = if known { KNOWN_ADDRESS_INTERVAL } else { UNKNOWN_ADDRESS_INTERVAL };
        if macs.is_empty() || self.read_at.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        self.read_at = Some(Instant::now());
        let table = fetch::<ArpData>(client, resource::ARP, "read the ARP table of the device").await;
        match table {
            Ok(table) => {
                let addresses = macs.into_iter().filter_map(|mac| Some((mac, table.address(mac)?)));
                self.addresses = addresses.collect();
            }
            Err(error) => debug!(%error, "the ARP table of the device cannot be read"),
        }
    }
}

/// Returns the applications of this cluster, and those that can be adopted: their ownership mark names
/// `cluster` or no cluster.
fn ours<'a>(observed: &'a Observed, cluster: &'a str) -> impl Iterator<Item = &'a ObservedApp> {
    observed.apps.values().filter(move |app| app.is_of(cluster))
}
