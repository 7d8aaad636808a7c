//! The in-memory state that a driver keeps between its calls. Its loss only causes repeated reads and steps.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{MacAddress, Owner, Uid};
use tokio::time::Instant;
use tracing::{debug, info};

use super::copies::Copies;
use crate::machine::{AppRecord, AppState, AppStep, RefusalKind};
use crate::observe::{Observed, ObservedApp};

/// The time for which the record of the steps for an application is kept after the application has disappeared.
const RECORD_MAX_AGE: Duration = Duration::from_secs(30 * 60);

/// The in-memory state of a driver between its calls, protected by one lock.
#[derive(Default)]
pub(super) struct DriverState {
    /// The record of the steps that were tried for each application, by its name.
    pub(super) records: HashMap<String, AppRecord>,
    /// The copy of a package to the flash that is in progress, if there is one.
    pub(super) copies: Copies,
    /// The applications of all users that the device reports as being installed, with the time at which this was first
    /// read.
    installing: BTreeMap<String, Instant>,
    /// IP addresses that were assigned or released less than 30 s ago, with the time until which they are not assigned
    /// again.
    pub(super) cooling: Vec<(Ipv4Addr, Instant)>,
    /// The MAC addresses of the last application with each IP address. The ARP table keeps them for hours after its
    /// removal.
    pub(super) macs: HashMap<IpAddr, Vec<MacAddress>>,
    /// The applications whose configuration this process removes, so that it is to disappear.
    pub(super) unconfigured: HashSet<String>,
    /// The pods that the cluster has bound to the device.
    pods: HashSet<Uid>,
    /// The applications that the status of such a pod shows, of pods that are new to this driver, until the next read of the device.
    pub(super) expected: Vec<ObservedApp>,
    /// The addresses that the status of such a pod shows. No other pod gets them, whatever the device reports.
    pub(super) claimed: HashMap<IpAddr, Uid>,
    /// `true` if the device starts installed applications by itself, `false` if it does not; `None` if that is not
    /// known yet.
    pub(super) starts_apps: Option<bool>,
}

impl DriverState {
    /// Returns the record of the steps for an application, and creates it if necessary.
    pub(super) fn record(&mut self, id: &str) -> &mut AppRecord {
        let now = Instant::now();
        self.records.entry(id.to_owned()).or_insert_with(|| AppRecord::new(AppState::Absent, now))
    }

    /// Records the pods that the cluster has bound to the device: the addresses in their status and, of pods that are new to this driver,
    /// the applications.
    pub(super) fn expect(&mut self, pods: &[Arc<Pod>], cluster: &str) {
        let is_finished = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        let known = std::mem::take(&mut self.pods);
        self.claimed.clear();
        for pod in pods.iter().filter(|pod| !is_finished(pod)) {
            let uid = Owner::of(&pod.metadata).uid;
            let addresses = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
            let addresses = addresses.filter_map(|address| address.ip.parse().ok());
            self.claimed.extend(addresses.map(|address| (address, uid.clone())));
            if !known.contains(&uid) {
                self.expected.extend(ObservedApp::shown_by(pod, cluster));
            }
            self.pods.insert(uid);
        }
    }

    /// Updates the step records, known MAC addresses and running installs from a read of the device, and records ended copies.
    pub(super) fn observe(&mut self, observed: &Observed) {
        self.record_ended_copies();
        let now = Instant::now();
        self.unconfigured.retain(|id| observed.apps.get(id).is_some_and(|app| app.configured));
        self.records.retain(|id, record| {
            observed.apps.contains_key(id) || record.recent(now, RECORD_MAX_AGE) || record.may_have_copy()
        });
        for (id, record) in &mut self.records {
            if record.observe(observed.state_of(id), now) {
                self.starts_apps = Some(true);
            }
        }
        let with_macs = observed.apps.values().filter(|app| !app.macs.is_empty());
        self.macs.extend(with_macs.filter_map(|app| Some((app.address?, app.macs.clone()))));
        let installing = observed.apps.values().filter(|app| app.state == AppState::Installing);
        let since = |id: &String| self.installing.get(id).copied().unwrap_or(now);
        self.installing = installing.map(|app| (app.id.clone(), since(&app.id))).collect();
    }

    /// Records the result of a copy to the flash that has ended.
    fn record_ended_copies(&mut self) {
        while let Some((id, outcome)) = self.copies.ended() {
            let record = self.record(&id);
            match outcome {
                Ok(()) => {
                    info!(app = id, "the device has copied a package to its flash");
                    record.copied();
                }
                Err(fault) => {
                    if fault.error.ambiguous() {
                        record.lost_copy();
                    }
                    let device_text = fault.device_text.unwrap_or_else(|| fault.error.to_string());
                    debug!(app = id, device_text, "the device did not copy a package to its flash");
                    record.refused(AppStep::Copy, device_text, RefusalKind::Temporary, Instant::now());
                }
            }
        }
    }

    /// Returns an application other than `id` that is being installed, and the time since which the device reports the
    /// install, which is `now` if the install was requested and is not reported yet; `None` if no other application is being installed.
    pub(super) fn busy(&self, id: &str, now: Instant) -> Option<(String, Instant)> {
        let installing = self.installing.iter().map(|(other, since)| (other, *since));
        let accepted =
            self.records.iter().filter(|(_, record)| record.installs(now)).map(|(other, _)| (other, now));
        let mut others = installing.chain(accepted).filter(|(other, _)| *other != id);
        others.next().map(|(other, since)| (other.clone(), since))
    }
}
