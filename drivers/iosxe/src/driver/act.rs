//! One step of one application: the decision, and the request that it takes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use staffetta_driver::virtual_node::PodProgress;
use staffetta_driver::{DriverError, Reason};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::copies::is_not_there;
use super::{IosXeDriver, STEP_MAX_AGE, State, state_of};
use crate::app::{WantedApp, copy_of, free_address};
use crate::machine::{
    AppRecord, AppState, AppStep, AppView, Busy, Configured, Decision, Goal, Package, RefusalKind,
    StepLimits, decide,
};
use crate::model::config::body;
use crate::model::operation::Operation;
use crate::observe::Observed;
use crate::restconf::Fault;

/// The delay before the next read after a step that takes time on the device.
const AFTER_A_STEP: Duration = Duration::from_millis(300);

/// The delay before the next read after a step that is complete when accepted.
const AT_ONCE: Duration = Duration::from_millis(5);

/// The delay before the next read while app hosting is disabled on the device.
const DISABLED: Duration = Duration::from_secs(30);

/// The cool-down of an address after its release.
const COOL_DOWN: Duration = Duration::from_secs(30);

/// One application, and where it is to get.
#[derive(Clone, Copy)]
pub(super) struct AppCase<'a> {
    pub(super) id: &'a str,
    /// The name of the pod, for messages.
    pub(super) name: &'a str,
    pub(super) goal: Goal,
    pub(super) wanted: Option<&'a WantedApp>,
    pub(super) configured: Configured,
}

impl IosXeDriver {
    /// Takes at most one step towards the goal.
    pub(super) async fn step(
        &self,
        state: &mut State,
        observed: &Observed,
        case: AppCase<'_>,
    ) -> Result<PodProgress, DriverError> {
        let AppCase { id, name, goal, wanted, configured } = case;
        let now = Instant::now();
        let there = state_of(observed, id);
        let busy = busy(state, id, now);
        let track = state.tracks.entry(id.to_owned()).or_insert_with(|| AppRecord::new(there, now));
        track.observe(there, now);
        track.record_failures(&observed.notifications, id, now);
        let only_configured = track.is_only_configured();
        let package = package(observed, track, case);
        let limits = StepLimits::of(&self.options, package);
        let said = observed.apps.get(id).map_or("nothing", |app| app.said.as_str());
        let copying = state.copies.under_way();
        let busy = busy.as_ref().map(|(app, since)| Busy { app, since: *since });
        let view = AppView { configured, state: there, said, package, busy, copying };
        let act = match decide(view, goal, track, limits, now) {
            Decision::Done => {
                if goal == Goal::Gone {
                    state.tracks.remove(id);
                }
                return Ok(PodProgress::Done);
            }
            Decision::Wait { state, poll_after } => {
                return Ok(PodProgress::Working { state: format!("{name}: {state}"), poll_after });
            }
            Decision::Fail { reason, message, poll_after } => {
                let message = format!("{name}: {message}");
                return Ok(PodProgress::Failing { reason: reason.into(), message, poll_after });
            }
            Decision::Do(act) => act,
        };
        let must_be_absent = match act {
            AppStep::Install => true,
            AppStep::Discard | AppStep::Remove => !only_configured,
            _ => false,
        };
        if must_be_absent && let Some(wait) = self.is_hidden(state, id).await? {
            return Ok(wait);
        }
        if matches!(act, AppStep::Install | AppStep::Activate | AppStep::Start) {
            self.read_earlier_failures(state, id).await?;
        }
        let current;
        let observed = if act == AppStep::Configure && self.translator.network.subnet.is_some() {
            // Others may have got addresses since the configuration was read.
            state.reading.invalidate();
            current = state.reading.read(&*self.client, false).await?;
            &*current
        } else {
            observed
        };
        track_of(state, id).attempted(act, now, limits.limit(act));
        if let (AppStep::Copy, Some(wanted)) = (act, wanted) {
            info!(app = id, "the device copies a package to its flash");
            let way = (wanted.package.clone(), copy_of(id));
            state.copies.begin(Arc::clone(&self.client), id, way, limits.limit(act));
        } else {
            self.act(state, observed, case, act, package).await?;
        }
        let poll_after = if act.is_done_when_accepted() { AT_ONCE } else { AFTER_A_STEP };
        Ok(PodProgress::Working { state: format!("{name}: {}", act.doing()), poll_after })
    }

    /// Records the result of a copy to the flash.
    pub(super) fn record_ended_copies(state: &mut State) {
        while let Some((id, outcome)) = state.copies.ended() {
            let track = track_of(state, &id);
            match outcome {
                Ok(()) => {
                    info!(app = id, "the device has copied a package to its flash");
                    track.copied();
                }
                Err(fault) => {
                    if fault.error.ambiguous() {
                        track.lost_copy();
                    }
                    let said = fault.said.unwrap_or_else(|| fault.error.to_string());
                    debug!(app = id, said, "the device did not copy a package to its flash");
                    track.refused(AppStep::Copy, said, RefusalKind::Now, Instant::now());
                }
            }
        }
    }

    /// Reads the device, to find out whether the application is certainly absent; returns `None` if so. For a while after its
    /// start a device does not host applications yet, and does not show those that it has.
    async fn is_hidden(&self, state: &mut State, id: &str) -> Result<Option<PodProgress>, DriverError> {
        let observed = state.reading.read(&*self.client, true).await?;
        if observed.enabled == Some(false) {
            return Ok(Some(PodProgress::Failing {
                reason: "AppHostingDisabled".into(),
                message: "IOx is not enabled on the device".into(),
                poll_after: DISABLED,
            }));
        }
        track_of(state, id).observe(state_of(&observed, id), Instant::now());
        Ok((state_of(&observed, id) != AppState::Absent).then(|| PodProgress::Working {
            state: "the device has continued by itself".to_owned(),
            poll_after: AFTER_A_STEP,
        }))
    }

    /// Reads the reports of the device, unless they are fresh, so that its reports on the next step can be distinguished.
    async fn read_earlier_failures(&self, state: &mut State, id: &str) -> Result<(), DriverError> {
        let observed = state.reading.observed(&*self.client, STEP_MAX_AGE, true).await?;
        track_of(state, id).record_earlier_failures(&observed.notifications, id);
        Ok(())
    }

    /// Takes the step. A refusal of the device is recorded and affects the next decision; a request that did not reach it,
    /// or has no answer, is an error.
    async fn act(
        &self,
        state: &mut State,
        observed: &Observed,
        AppCase { id, wanted, .. }: AppCase<'_>,
        mut act: AppStep,
        package: Package,
    ) -> Result<(), DriverError> {
        let limits = StepLimits::of(&self.options, package);
        let limit = limits.limit(act);
        // Whoever waits for this may not do so to the end.
        state.reading.invalidate();
        track_of(state, id).uncertain(act);
        let outcome = match (act, wanted) {
            (AppStep::Configure, Some(wanted)) => match self.address(state, observed) {
                Ok(address) => {
                    // Another container of the pod is decided by the same read of the device.
                    state.cooling.extend(address.map(|address| (address, Instant::now() + COOL_DOWN)));
                    let config = wanted.config(address, package == Package::Copied);
                    self.client.configure(&body(&config)).await
                }
                Err(error) => Err(error.into()),
            },
            (AppStep::Divert, Some(wanted)) => self.client.amend(id, &wanted.diversion(id)).await,
            (AppStep::Remove, _) => self.client.remove(id).await,
            (AppStep::Discard, _) => {
                let may_come = track_of(state, id).copy_may_come(limits, Instant::now());
                match self.discard(id, may_come).await {
                    Ok(()) => {
                        // Who comes after this process would not know that the copy is gone.
                        let track = track_of(state, id);
                        track.discarded();
                        act = AppStep::Remove;
                        track.attempted(act, Instant::now(), limit);
                        track.uncertain(act);
                        self.client.remove(id).await
                    }
                    refused => refused,
                }
            }
            (act, wanted) => match operation(act, id, wanted, package) {
                Ok(operation) => self.client.operate(&operation, None).await,
                Err(error) => Err(error.into()),
            },
        };
        let Err(fault) = outcome else {
            track_of(state, id).answered(act, limit);
            info!(app = id, step = act.doing(), "the device accepted a step");
            if act == AppStep::Remove {
                self.cool_down(state, observed, id);
                state.tracks.remove(id);
            }
            return Ok(());
        };
        let track = track_of(state, id);
        if let Some(said) = fault.said {
            debug!(app = id, step = act.doing(), said, "the device refused a step");
            track.answered(act, limit);
            track.refused(act, said, refusal_kind(&fault.error), Instant::now());
            if track.leaves_copy(limits) {
                warn!(
                    app = id,
                    file = copy_of(id),
                    "the device does not delete the copy of a package; it stays there"
                );
            }
            return Ok(());
        }
        if fault.error.ambiguous() {
            track.lost(act, Instant::now());
        } else {
            track.unsent(act);
        }
        Err(*fault.error)
    }

    /// Deletes the copy of a package. One that is not there is deleted, unless it may still come.
    async fn discard(&self, id: &str, may_come: bool) -> Result<(), Fault> {
        let operation = Operation::Delete { file: copy_of(id) };
        match self.client.operate(&operation, None).await {
            Err(fault) if is_not_there(&fault) && may_come => {
                let said = fault.said.map(|said| format!("a copy may still be in progress: {said}"));
                Err(Fault { said, ..fault })
            }
            Err(fault) if is_not_there(&fault) => Ok(()),
            outcome => outcome,
        }
    }

    /// An address for a new application; `None` if it gets one from a DHCP server.
    fn address(&self, state: &mut State, observed: &Observed) -> Result<Option<Ipv4Addr>, DriverError> {
        let Some(subnet) = self.translator.network.subnet else { return Ok(None) };
        let now = Instant::now();
        state.cooling.retain(|(_, until)| *until > now);
        let in_use = |address: Ipv4Addr| observed.addresses.contains(&IpAddr::V4(address));
        let cools = |address| state.cooling.iter().any(|(cooling, _)| *cooling == address);
        free_address(subnet, |address| cools(address) || in_use(address)).map(Some).ok_or_else(|| {
            let full = DriverError::new(Reason::NoAddress, "configure an app");
            let full = full.detail(format!("the subnet {subnet} of the device is full"));
            let rested = state.cooling.iter().filter(|(address, _)| !in_use(*address));
            rested.map(|(_, until)| *until - now).min().map_or(full.clone(), |rest| full.after(rest))
        })
    }

    /// Starts the cool-down of an application's addresses.
    fn cool_down(&self, state: &mut State, observed: &Observed, id: &str) {
        let address = observed.apps.get(id).and_then(|app| app.address);
        if let (Some(IpAddr::V4(address)), Some(_)) = (address, self.translator.network.subnet) {
            state.cooling.retain(|(cooling, _)| *cooling != address);
            state.cooling.push((address, Instant::now() + COOL_DOWN));
        }
    }
}

/// Returns the operation of a step on the device. A step that is not an operation, or an install without a known package, is
/// refused.
fn operation(
    act: AppStep,
    id: &str,
    wanted: Option<&WantedApp>,
    package: Package,
) -> Result<Operation, DriverError> {
    let appid = id.to_owned();
    let package =
        if package == Package::Copied { Some(copy_of(id)) } else { wanted.map(|it| it.package.clone()) };
    Ok(match (act, package) {
        (AppStep::Install, Some(package)) => Operation::Install { appid, package },
        (AppStep::Activate, _) => Operation::Activate { appid },
        (AppStep::Start, _) => Operation::Start { appid },
        (AppStep::Stop, _) => Operation::Stop { appid },
        (AppStep::Deactivate, _) => Operation::Deactivate { appid },
        (AppStep::Uninstall, _) => Operation::Uninstall { appid },
        (act, _) => {
            let error = DriverError::new(Reason::Refused, "operate an app");
            return Err(error.detail(format!("the package of {id} is unknown: {}", act.doing())));
        }
    })
}

fn refusal_kind(error: &DriverError) -> RefusalKind {
    match error.reason() {
        Reason::Conflict => RefusalKind::Busy,
        _ if error.transient() => RefusalKind::Now,
        _ => RefusalKind::Lasting,
    }
}

/// The record of the steps tried for an application.
fn track_of<'a>(state: &'a mut State, id: &str) -> &'a mut AppRecord {
    let now = Instant::now();
    state.tracks.entry(id.to_owned()).or_insert_with(|| AppRecord::new(AppState::Absent, now))
}

/// The source of an application's package: as configured, or, without a configuration, as recorded.
fn package(observed: &Observed, track: &AppRecord, AppCase { id, wanted, .. }: AppCase<'_>) -> Package {
    let mark = observed.apps.get(id).and_then(|app| app.mark.as_ref());
    if mark.map_or_else(|| track.may_have_copy(), |mark| mark.copied) {
        return Package::Copied;
    }
    // The configuration of an earlier agent is not changed.
    let ours = mark.is_none_or(|mark| mark.form.is_some());
    if ours && wanted.is_some_and(|wanted| wanted.remote) { Package::AtUrl } else { Package::OnDevice }
}

/// Returns the other application that is being installed, and since when: as the device reports, or as it has just accepted.
fn busy(state: &State, id: &str, now: Instant) -> Option<(String, Instant)> {
    let installing = state.installing.iter().map(|(other, since)| (other, *since));
    let accepted =
        state.tracks.iter().filter(|(_, track)| track.installs(now)).map(|(other, _)| (other, now));
    let mut others = installing.chain(accepted).filter(|(other, _)| *other != id);
    others.next().map(|(other, since)| (other.clone(), since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_installed_without_a_package() {
        let copied = operation(AppStep::Install, "app", None, Package::Copied).unwrap();
        assert_eq!(copied, Operation::Install { appid: "app".into(), package: copy_of("app") });
        for package in [Package::OnDevice, Package::AtUrl] {
            let refused = operation(AppStep::Install, "app", None, package).unwrap_err();
            assert_eq!(refused.reason(), Reason::Refused);
        }
        assert!(operation(AppStep::Configure, "app", None, Package::OnDevice).is_err());
        assert!(operation(AppStep::Stop, "app", None, Package::OnDevice).is_ok());
    }
}
