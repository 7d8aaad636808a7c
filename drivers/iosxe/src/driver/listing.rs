//! The pods of a device, as they are told.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::Uid;
use staffetta_driver::app_hosting::{HostedContainer, HostedPod, HostedPods};
use tokio::time::Instant;
use tracing::debug;

use super::fetch::fetch;
use crate::machine::{AppState, Track};
use crate::model::arp::{ArpData, Mac};
use crate::model::resource;
use crate::observe::{Observed, ObservedApp};
use crate::restconf::NetworkClient;

/// How long the address table is not read again while somebody's address is missing.
const MISSING: Duration = Duration::from_secs(4);

/// How long the address table is not read again while all are known: a server may give another one.
const KNOWN: Duration = Duration::from_secs(60);

/// The last list, and what is needed to tell it again.
#[derive(Default)]
pub(super) struct Listing {
    last: Option<(Arc<Observed>, HostedPods)>,
    /// The addresses from the table of the device.
    addresses: HashMap<Mac, IpAddr>,
    asked: Option<Instant>,
}

impl Listing {
    /// The pods. When nothing changed, it is the list of the time before.
    pub(super) async fn pods(
        &mut self,
        client: &dyn NetworkClient,
        observed: &Arc<Observed>,
        tracks: &HashMap<String, Track>,
        cluster: &str,
    ) -> HostedPods {
        let table_changed = self.ask(client, observed, cluster).await;
        let troubled = tracks.values().any(|track| track.trouble().is_some());
        if let Some((seen, pods)) = &self.last
            && Arc::ptr_eq(seen, observed)
            && !table_changed
            && !troubled
        {
            return Arc::clone(pods);
        }
        let pods = self.list(observed, tracks, cluster);
        // A list with troubles is never the list of a time without.
        self.last = (!troubled).then(|| (Arc::clone(observed), Arc::clone(&pods)));
        pods
    }

    fn list(&self, observed: &Observed, tracks: &HashMap<String, Track>, cluster: &str) -> HostedPods {
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
                id: format!("cisco://{}", app.id),
                state: app.hosted(tracks.get(&app.id).and_then(Track::trouble)),
            });
        }
        pods.into_values().collect()
    }

    fn address(&self, app: &ObservedApp) -> Option<IpAddr> {
        app.address.or_else(|| app.macs.iter().find_map(|mac| self.addresses.get(mac)).copied())
    }

    /// Reads the address table of the device where an application does not tell its address itself; says whether it
    /// changed. A list without an address is better than none: a table that cannot be read is asked for later.
    async fn ask(&mut self, client: &dyn NetworkClient, observed: &Observed, cluster: &str) -> bool {
        let silent =
            ours(observed, cluster).filter(|app| app.state == AppState::Running && app.address.is_none());
        let macs: Vec<Mac> = silent.flat_map(|app| app.macs.iter().copied()).collect();
        let known = macs.iter().all(|mac| self.addresses.contains_key(mac));
        let pause = if known { KNOWN } else { MISSING };
        if macs.is_empty() || self.asked.is_some_and(|asked| asked.elapsed() < pause) {
            return false;
        }
        self.asked = Some(Instant::now());
        let table: ArpData = match fetch(client, resource::ARP, "read the address table of the device").await
        {
            Ok(table) => table,
            Err(error) => {
                debug!(%error, "the address table of the device cannot be read");
                return false;
            }
        };
        let found: HashMap<_, _> =
            macs.into_iter().filter_map(|mac| Some((mac, table.address(mac)?))).collect();
        let changed = found != self.addresses;
        self.addresses = found;
        changed
    }
}

/// The applications of this cluster, and those of no cluster that have an owner.
fn ours<'a>(observed: &'a Observed, cluster: &'a str) -> impl Iterator<Item = &'a ObservedApp> {
    observed.apps.values().filter(move |app| app.is_of(cluster))
}
