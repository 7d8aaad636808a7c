//! The driver of one device. Each call reads the device, decides for each application, and takes at most one step per
//! application. Calls overlap: no lock is held while a step is sent, and only one read is sent at a time.

mod absence;
mod act;
mod copies;
mod listing;
mod reading;
mod resources;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use staffetta_driver::app_hosting::{AppHostingDriver, DeviceInfo, DeviceResources, HostedPods};
use staffetta_driver::virtual_node::{PodProgress, PodRequest, PodUsage};
use staffetta_driver::{DriverError, Owner, Reason};
use tokio::time::Instant;

use self::absence::{Absences, Explained};
use self::act::AppTask;
use self::listing::PodListing;
use self::reading::{DeviceReading, fetch};
use self::state::DriverState;
use crate::app::{Translator, WantedApp, is_of};
use crate::machine::{AppRecord, AppState, AppStep, Configured, Goal, POLL};
use crate::model::hardware::HardwareData;
use crate::model::resource;
use crate::observe::{Observed, ObservedApp};
use crate::options::{IosXeOptions, milliseconds};
use crate::restconf::NetworkClient;

/// The maximum age of the read of the device on which a step is decided. Pods that are deployed at the same time share
/// reads.
const STEP_MAX_AGE: Duration = Duration::from_millis(150);

/// The maximum age of a read that proves that the device is reachable.
const REACHABLE_MAX_AGE: Duration = Duration::from_secs(10);

/// The delay before the next attempt of a step that the device or the driver has refused permanently.
const REFUSED_POLL: Duration = Duration::from_secs(60);

/// The time for which device information is cached.
const INFO_MAX_AGE: Duration = Duration::from_secs(300);

/// The driver of one device: runs pods as applications on it.
pub(crate) struct IosXeDriver {
    client: Arc<dyn NetworkClient>,
    translator: Translator,
    options: IosXeOptions,
    /// The last read of the device, locked during a read, so that calls share it.
    reading: tokio::sync::Mutex<(DeviceReading, Absences)>,
    /// A counter that each request that may change the device increments when it begins, and again when it ends.
    changes: AtomicU64,
    state: Mutex<DriverState>,
    listing: tokio::sync::Mutex<PodListing>,
    /// The device information and the time at which it was read; `None` before the first read.
    info: Mutex<Option<(Instant, DeviceInfo)>>,
}

impl IosXeDriver {
    /// Creates the driver of the device behind `client`. Nothing is read yet.
    pub(crate) fn new(client: Arc<dyn NetworkClient>, translator: Translator, options: IosXeOptions) -> Self {
        Self {
            client,
            translator,
            options,
            reading: tokio::sync::Mutex::default(),
            changes: AtomicU64::new(0),
            state: Mutex::default(),
            listing: tokio::sync::Mutex::default(),
            info: Mutex::default(),
        }
    }

    /// Returns the state of the device from a read that is at most `age` old, and updates the in-memory records of its applications.
    async fn observe(&self, age: Duration) -> Result<Arc<Observed>, DriverError> {
        let full = self.state.lock().records.values().any(AppRecord::awaits_report);
        let observed = self.read(age, full).await?;
        self.state.lock().observe(&observed);
        Ok(observed)
    }

    /// Returns the state of the device from a read that is at most `age` old, with notifications if `full`. It contains
    /// what has vanished, as long as its absence is not proven.
    async fn read(&self, age: Duration, full: bool) -> Result<Arc<Observed>, DriverError> {
        let mut reading = self.reading.lock().await;
        let (device, absences) = &mut *reading;
        let patience = self.absence_patience();
        let mut full = full || absences.need_complete_data(patience);
        let mut age = if self.state.lock().expected.is_empty() { age } else { Duration::ZERO };
        let with_dhcp = self.translator.network.subnet.is_none();
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            let recheck = absences.need_configuration(with_dhcp, patience);
            let observed = device.observed(&*self.client, (age, changes), (full, recheck)).await?;
            let observed = {
                let mut state = self.state.lock();
                let expected = std::mem::take(&mut state.expected);
                let explained = Explained {
                    state: |app: &ObservedApp| match state.records.get(&app.id) {
                        Some(record) => record.expects_absence(&observed.notifications, &app.id),
                        None => !app.is_of(&self.translator.cluster),
                    },
                    configuration: |app: &ObservedApp| state.unconfigured.contains(&app.id),
                };
                absences.complete(device.numbers(), &observed, &expected, &explained, patience)
            };
            if full || !absences.need_complete_data(patience) {
                return Ok(observed);
            }
            // Only the complete data show whether the device lists its applications at all.
            (full, age) = (true, Duration::ZERO);
        }
    }

    /// Returns the time over which the device must omit an application from its responses before the application counts as absent.
    fn absence_patience(&self) -> Duration {
        milliseconds(self.options.step_limit_ms) / 2
    }

    /// Takes at most one step for each application of the requested pod, also for those to be removed because the pod no longer has a
    /// container for them. If the step for one of them fails, the steps for the others are still taken. Then the first transient error is
    /// returned; a permanent one is part of the progress, so that the steps for the others go on. `unformed` is the treatment of
    /// applications without a configuration digest.
    async fn advance(&self, request: &PodRequest, unformed: LegacyMark) -> Result<PodProgress, DriverError> {
        let pod = self.translator.translate(request)?;
        let (uid, cluster) = (pod.owner.uid.as_str(), self.translator.cluster.as_str());
        let observed = self.observe(STEP_MAX_AGE).await?;
        let of_pod = || observed.apps.values().filter(|app| app.belongs_to(uid, cluster));
        let mut kept = Vec::new();
        let (mut whole, mut failed) = (PodProgress::Done, None);
        let mut earlier: Option<&str> = None;
        for wanted in &pod.apps {
            let of_container =
                |app: &&ObservedApp| app.mark.as_ref().is_some_and(|mark| mark.container == wanted.container);
            let by_name = observed.apps.get(&wanted.id);
            if by_name.is_some_and(|app| !app.belongs_to(uid, cluster)) {
                let error = DriverError::new(Reason::Refused, "configure an app")
                    .detail("its application already exists and belongs to another pod or cluster");
                whole = whole.and(refused(&wanted.container, &error));
                // One of this pod, under another name, is not removed meanwhile.
                kept.extend(of_pod().find(of_container).map(|app| app.id.as_str()));
                continue;
            }
            let there = by_name.or_else(|| of_pod().find(of_container));
            let id = there.map_or(wanted.id.as_str(), |app| app.id.as_str());
            let has_run = unformed == LegacyMark::AsWanted && wanted.has_run && !pod.restarts_failed;
            if has_run && observed.state_of(id) == AppState::Absent {
                // The device has lost it, and it is not to run twice.
                continue;
            }
            kept.push(id);
            let name = &wanted.container;
            if let Some(earlier) = earlier.filter(|_| there.is_none()) {
                let state = format!("{name}: waiting for the install of {earlier}");
                whole = whole.and(PodProgress::Working { state, poll_after: POLL });
                continue;
            }
            let as_wanted = there.map_or(Configured::No, |app| configured(app, Some((wanted, unformed))));
            let goal = Goal::Running { ended: pod.restarts_ended, failed: pod.restarts_failed };
            let case = AppTask { id, name, goal, wanted: Some(wanted), configured: as_wanted };
            let progress = match self.step(&observed, case).await {
                Ok(progress) => progress,
                Err(error) if !error.transient() => refused(name, &error),
                Err(error) => {
                    failed.get_or_insert(error);
                    continue;
                }
            };
            // An application that fails holds up no other.
            if matches!(progress, PodProgress::Working { .. })
                && !AppStep::Install.is_fulfilled_by(observed.state_of(id))
            {
                earlier = earlier.or(Some(name));
            }
            whole = whole.and(progress);
        }
        // Applications of containers that the pod no longer has.
        let rest = of_pod().map(|app| app.id.as_str()).filter(|id| !kept.contains(id));
        let removed = match self.remove(&observed, rest).await {
            Err(error) if !error.transient() => Ok(refused("an application of the pod", &error)),
            removed => removed,
        };
        failed.map_or(removed.map(|removed| whole.and(removed)), Err)
    }

    /// Takes at most one step towards the removal of each of the applications `ids`. If the step for one of them fails, the steps for the
    /// others are still taken, and then the last error is returned.
    async fn remove(
        &self,
        observed: &Arc<Observed>,
        ids: impl Iterator<Item = &str>,
    ) -> Result<PodProgress, DriverError> {
        let mut whole = PodProgress::Done;
        let mut failed = None;
        for id in ids {
            let app = observed.apps.get(id);
            let configured = app.map_or(Configured::No, |app| configured(app, None));
            let mark = app.and_then(|app| app.mark.as_ref());
            let name = mark.map_or("an application of the pod", |mark| mark.container.as_str());
            let case = AppTask { id, name, goal: Goal::Removed, wanted: None, configured };
            match self.step(observed, case).await {
                Ok(progress) => whole = whole.and(progress),
                // The other applications are not to stay because of this one.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(whole), Err)
    }
}

/// The treatment of an application without a configuration digest in its ownership mark, because another
/// controller wrote the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LegacyMark {
    /// The configuration counts as that of the pod.
    AsWanted,
    /// The configuration counts as outdated, because the pod has changed.
    Outdated,
}

/// Converts a permanent error of a step for the container `name` to the progress of its pod: a failure with a long delay.
fn refused(name: &str, error: &DriverError) -> PodProgress {
    PodProgress::Failing {
        reason: error.name().unwrap_or(error.reason().name()).into(),
        message: format!("{name}: {error}"),
        poll_after: REFUSED_POLL,
    }
}

/// Compares the configuration of an application with the wanted one. With `wanted` = `None`, every configuration counts
/// as the wanted one.
fn configured(app: &ObservedApp, wanted: Option<(&WantedApp, LegacyMark)>) -> Configured {
    let form = app.mark.as_ref().and_then(|mark| mark.form.as_ref());
    let other = match (wanted, form) {
        (Some((wanted, _)), Some(form)) => *form != wanted.form,
        (Some((_, unformed)), None) => unformed == LegacyMark::Outdated,
        (None, _) => false,
    };
    match (app.configured, other) {
        (false, _) => Configured::No,
        (true, true) => Configured::Outdated,
        (true, false) => Configured::Yes,
    }
}

#[async_trait]
impl AppHostingDriver for IosXeDriver {
    async fn check_connection(&self) -> Result<(), DriverError> {
        self.observe(REACHABLE_MAX_AGE).await.map(drop)
    }

    async fn get_device_info(&self) -> Result<DeviceInfo, DriverError> {
        const STEP: &str = "read the device information";
        let known = || self.info.lock();
        if let Some((_, info)) = known().as_ref().filter(|(at, _)| at.elapsed() < INFO_MAX_AGE) {
            return Ok(info.clone());
        }
        let data: HardwareData = fetch(&*self.client, resource::HARDWARE, STEP).await?;
        let info = data.info();
        *known() = Some((Instant::now(), info.clone()));
        Ok(info)
    }

    async fn get_device_resources(&self) -> Result<DeviceResources, DriverError> {
        let observed = self.observe(STEP_MAX_AGE).await?;
        resources::read_resources(&*self.client, &observed, &self.translator.cluster).await
    }

    async fn deploy_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.advance(request, LegacyMark::AsWanted).await
    }

    async fn update_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.advance(request, LegacyMark::Outdated).await
    }

    async fn delete_pod(&self, owner: &Owner) -> Result<PodProgress, DriverError> {
        let observed = self.observe(STEP_MAX_AGE).await?;
        let (uid, cluster) = (owner.uid.as_str(), self.translator.cluster.as_str());
        let apps = observed.apps.values().filter(|app| app.belongs_to(uid, cluster));
        let mut ids: BTreeSet<String> = apps.map(|app| app.id.clone()).collect();
        // A device may have forgotten all but its files.
        let has_left = |(id, record): &(&String, &AppRecord)| record.may_have_copy() && is_of(id, uid);
        ids.extend(self.state.lock().records.iter().filter(has_left).map(|(id, _)| id.clone()));
        self.remove(&observed, ids.iter().map(String::as_str)).await
    }

    async fn list_pods(&self) -> Result<HostedPods, DriverError> {
        let observed = self.observe(STEP_MAX_AGE).await?;
        let mut listing = self.listing.lock().await;
        listing.read_addresses(&*self.client, &observed, &self.translator.cluster).await;
        Ok(listing.pods(&observed, &self.state.lock().records, &self.translator.cluster))
    }

    fn expect_pods(&self, pods: &[Arc<Pod>]) {
        self.state.lock().expect(pods, &self.translator.cluster);
    }

    fn last_answer(&self) -> Option<Instant> {
        self.client.last_answer()
    }

    async fn get_usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        let observed = self.observe(REACHABLE_MAX_AGE).await?;
        resources::read_usage(&*self.client, &observed, &self.translator.cluster).await
    }
}
