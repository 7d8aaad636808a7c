//! The in-memory state that a driver keeps between its calls. Its loss only causes repeated reads and steps.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use staffetta_driver::MacAddress;
use tokio::time::Instant;
use tracing::{debug, info};

use super::copies::Copies;
use crate::machine::{AppRecord, AppState, AppStep, RefusalKind};
use crate::observe::Observed;

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

    /// Updates the step records, known MAC addresses and running installs from a read of the device, and records ended copies.
    pub(super) fn observe(&mut self, observed: &Observed) {
        self.record_ended_copies();
        let now = Instant::now();
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
