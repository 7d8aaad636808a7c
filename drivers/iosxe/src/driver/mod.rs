//! The driver of one device. Each call reads the device, decides for each application, and does at most one step each.

mod act;
mod copies;
mod listing;
mod reading;
mod resources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use staffetta_driver::app_hosting::{AppHostingDriver, DeviceInfo, DeviceResources, HostedPods};
use staffetta_driver::virtual_node::{PodProgress, PodRequest, PodUsage};
use staffetta_driver::{DriverError, Owner, Reason};
use tokio::sync::Mutex;
use tokio::time::Instant;

use self::act::AppCase;
use self::copies::Copies;
use self::listing::PodListing;
use self::reading::{DeviceReading, fetch};
use crate::app::{Translator, WantedApp, is_of};
use crate::machine::{AppRecord, AppState, Configured, Goal};
use crate::model::hardware::HardwareData;
use crate::model::resource;
use crate::observe::{Observed, ObservedApp};
use crate::options::IosXeOptions;
use crate::restconf::NetworkClient;

/// The maximum age of an observation on which a step is decided; pods that start together share observations.
const STEP_MAX_AGE: Duration = Duration::from_millis(150);

/// The maximum age of an observation that proves that the device is reachable.
const REACHABLE_MAX_AGE: Duration = Duration::from_secs(10);

/// The time for which device information is cached.
const INFO_MAX_AGE: Duration = Duration::from_secs(300);

/// The time for which the steps tried for a missing application are remembered.
const RECORD_MAX_AGE: Duration = Duration::from_secs(30 * 60);

/// Runs pods on one device.
pub(crate) struct IosXeDriver {
    client: Arc<dyn NetworkClient>,
    translator: Translator,
    options: IosXeOptions,
    /// One request at a time is on its way to a device.
    state: Mutex<State>,
}

/// The state kept between calls. Losing it costs only time.
#[derive(Default)]
struct State {
    reading: DeviceReading,
    tracks: HashMap<String, AppRecord>,
    copies: Copies,
    /// The applications that the device says it is installing, anybody's, and since when they are seen to be.
    installing: BTreeMap<String, Instant>,
    /// Addresses that were given out or given back a moment ago, and the time until which they are not given out again.
    cooling: Vec<(Ipv4Addr, Instant)>,
    listing: PodListing,
    /// The device information and the time at which it was read.
    info: Option<(Instant, DeviceInfo)>,
}

impl IosXeDriver {
    pub(crate) fn new(client: Arc<dyn NetworkClient>, translator: Translator, options: IosXeOptions) -> Self {
        Self { client, translator, options, state: Mutex::default() }
    }

    /// The device, as it was a moment ago at most.
    async fn observe(&self, state: &mut State, age: Duration) -> Result<Arc<Observed>, DriverError> {
        let full = state.tracks.values().any(AppRecord::awaits_report);
        let observed = state.reading.observed(&*self.client, age, full).await?;
        Self::record_ended_copies(state);
        let now = Instant::now();
        state.tracks.retain(|id, track| {
            observed.apps.contains_key(id) || track.recent(now, RECORD_MAX_AGE) || track.may_have_copy()
        });
        for (id, track) in &mut state.tracks {
            track.observe(state_of(&observed, id), now);
        }
        let installing = observed.apps.values().filter(|app| app.state == AppState::Installing);
        let since = |app: &ObservedApp| state.installing.get(&app.id).copied().unwrap_or(now);
        state.installing = installing.map(|app| (app.id.clone(), since(app))).collect();
        Ok(observed)
    }

    /// Takes one step towards the requested pod.
    async fn advance(&self, request: &PodRequest, unformed: LegacyMark) -> Result<PodProgress, DriverError> {
        let pod = self.translator.translate(request)?;
        let (uid, cluster) = (pod.owner.uid.as_str(), self.translator.cluster.as_str());
        let mut state = self.state.lock().await;
        let observed = self.observe(&mut state, STEP_MAX_AGE).await?;
        let of_pod = || observed.apps.values().filter(|app| app.belongs_to(uid, cluster));
        let mut kept = Vec::new();
        let mut whole = PodProgress::Done;
        for wanted in &pod.apps {
            let of_container =
                |app: &&ObservedApp| app.mark.as_ref().is_some_and(|mark| mark.container == wanted.container);
            let by_name = observed.apps.get(&wanted.id);
            if by_name.is_some_and(|app| !app.belongs_to(uid, cluster)) {
                let error = DriverError::new(Reason::Refused, "configure an app");
                return Err(error
                    .detail(format!("{} already exists and belongs to another pod or cluster", wanted.id)));
            }
            let there = by_name.or_else(|| of_pod().find(of_container));
            let id = there.map_or(wanted.id.as_str(), |app| app.id.as_str());
            kept.push(id);
            let as_wanted = there.map_or(Configured::No, |app| configured(app, Some((wanted, unformed))));
            let goal = Goal::Running { ended: pod.restarts_ended, failed: pod.restarts_failed };
            let name = &wanted.container;
            let case = AppCase { id, name, goal, wanted: Some(wanted), configured: as_wanted };
            whole = whole.and(self.step(&mut state, &observed, case).await?);
        }
        // What an earlier form of the pod left.
        let rest = of_pod().map(|app| app.id.as_str()).filter(|id| !kept.contains(id));
        Ok(whole.and(self.remove(&mut state, &observed, rest).await?))
    }

    /// Takes one step towards removing the applications.
    async fn remove(
        &self,
        state: &mut State,
        observed: &Observed,
        ids: impl Iterator<Item = &str>,
    ) -> Result<PodProgress, DriverError> {
        let mut whole = PodProgress::Done;
        let mut failed = None;
        for id in ids {
            let configured = observed.apps.get(id).map_or(Configured::No, |app| configured(app, None));
            let case = AppCase { id, name: id, goal: Goal::Gone, wanted: None, configured };
            match self.step(state, observed, case).await {
                Ok(progress) => whole = whole.and(progress),
                // The other applications are not to stay because of this one.
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(whole), Err)
    }
}

/// The state of an application; one that is not there is absent.
fn state_of(observed: &Observed, id: &str) -> AppState {
    observed.apps.get(id).map_or(AppState::Absent, |app| app.state)
}

/// The treatment of an application whose mark, written by an older agent, has no configuration digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LegacyMark {
    /// It is as its pod wants it: nothing says otherwise.
    AsWanted,
    /// Its pod has changed since.
    Otherwise,
}

/// Compares the configuration of an application with the wanted one.
fn configured(app: &ObservedApp, wanted: Option<(&WantedApp, LegacyMark)>) -> Configured {
    let form = app.mark.as_ref().and_then(|mark| mark.form.as_ref());
    let other = match (wanted, form) {
        (Some((wanted, _)), Some(form)) => *form != wanted.form,
        (Some((_, unformed)), None) => unformed == LegacyMark::Otherwise,
        (None, _) => false,
    };
    match (app.configured, other) {
        (false, _) => Configured::No,
        (true, true) => Configured::Otherwise,
        (true, false) => Configured::Yes,
    }
}

#[async_trait]
impl AppHostingDriver for IosXeDriver {
    async fn check_connection(&self) -> Result<(), DriverError> {
        let mut state = self.state.lock().await;
        self.observe(&mut state, REACHABLE_MAX_AGE).await.map(drop)
    }

    async fn get_device_info(&self) -> Result<DeviceInfo, DriverError> {
        const STEP: &str = "read the device information";
        let mut state = self.state.lock().await;
        if let Some((_, info)) = state.info.as_ref().filter(|(at, _)| at.elapsed() < INFO_MAX_AGE) {
            return Ok(info.clone());
        }
        let data: HardwareData = fetch(&*self.client, resource::HARDWARE, STEP).await?;
        let info = data.info();
        state.info = Some((Instant::now(), info.clone()));
        Ok(info)
    }

    async fn get_device_resources(&self) -> Result<DeviceResources, DriverError> {
        let mut state = self.state.lock().await;
        let observed = self.observe(&mut state, STEP_MAX_AGE).await?;
        resources::read_resources(&*self.client, &observed, &self.translator.cluster).await
    }

    async fn deploy_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.advance(request, LegacyMark::AsWanted).await
    }

    async fn update_pod(&self, request: &PodRequest) -> Result<PodProgress, DriverError> {
        self.advance(request, LegacyMark::Otherwise).await
    }

    async fn delete_pod(&self, owner: &Owner) -> Result<PodProgress, DriverError> {
        let mut state = self.state.lock().await;
        let observed = self.observe(&mut state, STEP_MAX_AGE).await?;
        let (uid, cluster) = (owner.uid.as_str(), self.translator.cluster.as_str());
        let apps = observed.apps.values().filter(|app| app.belongs_to(uid, cluster));
        let mut ids: BTreeSet<String> = apps.map(|app| app.id.clone()).collect();
        // A device may have forgotten all but its files.
        let left = state.tracks.iter().filter(|(id, track)| track.may_have_copy() && is_of(id, uid));
        ids.extend(left.map(|(id, _)| id.clone()));
        self.remove(&mut state, &observed, ids.iter().map(String::as_str)).await
    }

    async fn list_pods(&self) -> Result<HostedPods, DriverError> {
        let mut state = self.state.lock().await;
        let observed = self.observe(&mut state, STEP_MAX_AGE).await?;
        let State { listing, tracks, .. } = &mut *state;
        Ok(listing.pods(&*self.client, &observed, tracks, &self.translator.cluster).await)
    }

    fn last_answer(&self) -> Option<Instant> {
        self.client.last_answer()
    }

    async fn get_usage(&self) -> Result<Vec<PodUsage>, DriverError> {
        let mut state = self.state.lock().await;
        let observed = self.observe(&mut state, REACHABLE_MAX_AGE).await?;
        resources::read_usage(&*self.client, &observed, &self.translator.cluster).await
    }
}
