//! Takes one step in the lifecycle of one application: decides which one, then sends its request to the
//! device.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use staffetta_driver::virtual_node::PodProgress;
use staffetta_driver::{DriverError, MacAddress, Reason};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::absence::{looks_again, not_listed, waits};
use super::copies::is_not_there;
use super::reading::fetch;
use super::{DriverState, IosXeDriver, STEP_MAX_AGE};
use crate::app::{WantedApp, copy_of, free_address, is_of};
use crate::machine::{
    AppRecord, AppState, AppStep, AppView, Attempt, Busy, Configured, Decision, Goal, Package, RefusalKind,
    StepLimits, UNCERTAIN, decide,
};
use crate::model::arp::ArpData;
use crate::model::config::body;
use crate::model::operation::DeviceOperation;
use crate::model::resource;
use crate::observe::Observed;
use crate::restconf::RequestFailure;

/// The delay before the device is read again after a step that is still in progress when the device responds, such as an
/// install.
const POLL_AFTER_ACCEPTED_STEP: Duration = Duration::from_millis(300);

/// The delay before the device is read again after a step that is complete when it responds.
const POLL_AFTER_DONE_STEP: Duration = Duration::from_millis(5);

/// The time for which an IP address is not assigned again after its assignment or release.
const COOL_DOWN: Duration = Duration::from_secs(30);

/// One application of the device: its goal, its wanted configuration, and how these compare with the device.
#[derive(Clone, Copy)]
pub(super) struct AppTask<'a> {
    /// The name of the application on the device.
    pub(super) id: &'a str,
    /// The name of the container, for messages.
    pub(super) name: &'a str,
    /// The goal for the application: to run, or to be removed.
    pub(super) goal: Goal,
    /// The wanted configuration; `None` if the application is to be removed.
    pub(super) wanted: Option<&'a WantedApp>,
    /// The result of comparing the configuration of the application on the device with the wanted one.
    pub(super) configured: Configured,
}

/// The decided next step of an application. It is recorded as an attempt before its request is prepared, so
/// that no other application is installed meanwhile.
struct NextStep {
    act: AppStep,
    package: Package,
    limits: StepLimits,
    /// The previous attempt of the same step; `None` if there was none.
    before: Option<Attempt>,
    /// `true` if the device certainly has only the application's configuration, which this process wrote, and no package.
    only_configured: bool,
    /// `true` if this process has configured the application, or begun to install it: it certainly was absent then.
    is_known: bool,
}

impl IosXeDriver {
    /// Takes at most one step towards the goal of the application. Returns an error if the device cannot be reached, or if the step cannot
    /// be prepared, for example without a free IP address; a step that the device refuses is recorded, and reported by a later call.
    pub(super) async fn step(
        &self,
        observed: &Arc<Observed>,
        case: AppTask<'_>,
    ) -> Result<PodProgress, DriverError> {
        let AppTask { id, name, .. } = case;
        let plan = match self.plan(observed, case) {
            Ok(plan) => plan,
            Err(progress) => return Ok(progress),
        };
        let act = plan.act;
        if act != AppStep::Copy {
            let prepared = self.prepare(observed, case, &plan).await;
            let observed = {
                let mut state = self.state.lock();
                let record = state.record(id);
                record.restore(act, plan.before);
                match prepared? {
                    Ok(observed) => {
                        record.attempted(act, Instant::now(), plan.limits.limit(act));
                        // The caller may be cancelled before the response arrives.
                        record.uncertain(act);
                        observed
                    }
                    Err(progress) => return Ok(progress),
                }
            };
            if !self.act(&observed, case, act, plan.package).await? {
                let limit = self.options.request_timeout_ms.get().div_ceil(1000);
                return Ok(PodProgress::Failing {
                    reason: act.failed().into(),
                    message: format!("{name}: {}; the device did not answer within {limit} s", act.doing()),
                    poll_after: UNCERTAIN,
                });
            }
        }
        let poll_after =
            if act.is_done_when_accepted() { POLL_AFTER_DONE_STEP } else { POLL_AFTER_ACCEPTED_STEP };
        Ok(PodProgress::Working { state: format!("{name}: {}", act.doing()), poll_after })
    }

    /// Decides the next step of the application, and records it as an attempt. Begins the step itself if it is a copy to the flash. Returns
    /// the progress as the error if no step is to be taken now.
    fn plan(&self, observed: &Observed, case: AppTask<'_>) -> Result<NextStep, PodProgress> {
        let AppTask { id, name, goal, wanted, configured } = case;
        let now = Instant::now();
        let there = observed.state_of(id);
        let mut state = self.state.lock();
        let busy = state.busy(id, now).map(|(app, since)| (observed.display_name_of(&app), since));
        let copying = state.copies.under_way().map(|app| observed.display_name_of(app));
        let DriverState { records, copies, starts_apps, .. } = &mut *state;
        let record = records.entry(id.to_owned()).or_insert_with(|| AppRecord::new(there, now));
        if record.observe(there, now) {
            *starts_apps = Some(true);
        }
        record.record_failures(&observed.notifications, id, now);
        let app = observed.apps.get(id);
        if let Some(wait) = app.and_then(|app| waits(observed, app, name, self.absence_patience())) {
            return Err(wait);
        }
        let only_configured = record.is_only_configured();
        let is_known = only_configured || record.attempt(AppStep::Install).is_some();
        let package = package(observed, record, case);
        let limits = StepLimits::of(&self.options, package);
        let view = AppView {
            configured,
            state: there,
            device_text: observed.apps.get(id).map_or("nothing", |app| app.device_text.as_str()),
            package,
            busy: busy.as_ref().map(|(app, since)| Busy { app, since: *since }),
            copying: copying.as_deref(),
            starts_by_itself: starts_apps.unwrap_or(true),
        };
        let act = match decide(view, goal, record, limits, now) {
            Decision::Done => {
                if goal == Goal::Removed {
                    records.remove(id);
                }
                return Err(PodProgress::Done);
            }
            Decision::Wait { state, poll_after } => {
                return Err(PodProgress::Working { state: format!("{name}: {state}"), poll_after });
            }
            Decision::Fail { reason, message, poll_after } => {
                let message = format!("{name}: {message}");
                return Err(PodProgress::Failing { reason: reason.into(), message, poll_after });
            }
            Decision::Do(act) => act,
        };
        if matches!(act, AppStep::Activate | AppStep::Start) {
            // The first one did not start within the time that is left to it for that.
            starts_apps.get_or_insert(false);
        }
        let before = record.attempt(act).cloned();
        record.attempted(act, now, limits.limit(act));
        if let (AppStep::Copy, Some(wanted)) = (act, wanted) {
            info!(app = id, "the device copies a package to its flash");
            let way = (wanted.package.clone(), copy_of(id));
            copies.begin(Arc::clone(&self.client), id, way, limits.limit(act));
        } else {
            record.uncertain(act);
        }
        Ok(NextStep { act, package, limits, before, only_configured, is_known })
    }

    /// Reads the device again if the step depends on its latest state. Returns the state of the device on which the step is based, or, as
    /// the inner error, the progress to report instead of the step.
    async fn prepare(
        &self,
        observed: &Arc<Observed>,
        AppTask { id, .. }: AppTask<'_>,
        plan: &NextStep,
    ) -> Result<Result<Arc<Observed>, PodProgress>, DriverError> {
        let act = plan.act;
        let must_be_absent = match act {
            AppStep::Install => true,
            AppStep::Discard | AppStep::Remove => !plan.only_configured,
            _ => false,
        };
        if must_be_absent && let Some(wait) = self.confirm_absent(id, plan).await? {
            return Ok(Err(wait));
        }
        match act {
            AppStep::Install | AppStep::Activate | AppStep::Start => {
                // Failures that the device has reported until now do not belong to this step.
                let observed = self.read(STEP_MAX_AGE, true).await?;
                self.state.lock().record(id).record_earlier_failures(&observed.notifications, id);
            }
            AppStep::Configure if self.translator.network.subnet.is_some() => {
                // Others may have got addresses since the configuration was read.
                self.changes.fetch_add(1, Ordering::AcqRel);
                let observed = self.read(Duration::ZERO, false).await?;
                if observed.configuration_uncertain {
                    let state = "reading which addresses are in use on the device";
                    return Ok(Err(looks_again(state, self.absence_patience())));
                }
                return Ok(Ok(observed));
            }
            _ => {}
        }
        Ok(Ok(Arc::clone(observed)))
    }

    /// Reads the device again and checks that the application is absent. Returns `None` if it is, and otherwise the
    /// progress to report.
    ///
    /// After a restart, a device does not report its applications until app hosting is enabled. So an application does not
    /// count as absent while app hosting is disabled. An application that this process neither made nor uninstalled counts as absent only if
    /// this process has read the list of applications often enough, and, before a step other than an install, if the device serves it.
    async fn confirm_absent(&self, id: &str, plan: &NextStep) -> Result<Option<PodProgress>, DriverError> {
        let observed = self.read(Duration::ZERO, true).await?;
        let mut state = self.state.lock();
        let installs = plan.act == AppStep::Install;
        let is_doubtful = !(installs && plan.is_known || state.record(id).uninstalled);
        if observed.enabled == Some(false) || (is_doubtful && !installs && !observed.served) {
            return Ok(Some(not_listed(&observed)));
        }
        if is_doubtful && observed.apps_uncertain {
            let state = "reading which apps the device has";
            return Ok(Some(looks_again(state, self.absence_patience())));
        }
        state.observe(&observed);
        Ok((observed.state_of(id) != AppState::Absent).then(|| PodProgress::Working {
            state: "the device has continued by itself".to_owned(),
            poll_after: POLL_AFTER_ACCEPTED_STEP,
        }))
    }

    /// Sends the request of a step. Returns `true` if the device accepted or refused it, and `false` if it did not answer in time. A
    /// refusal is recorded, and affects the next decision. Returns an error if the device cannot be reached or refuses the log-in, if this
    /// process is not the leader, or if the request cannot be built, for example without a free IP address.
    async fn act(
        &self,
        observed: &Observed,
        AppTask { id, wanted, .. }: AppTask<'_>,
        mut act: AppStep,
        package: Package,
    ) -> Result<bool, DriverError> {
        let limits = StepLimits::of(&self.options, package);
        let limit = limits.limit(act);
        let _change = DeviceChange::of(&self.changes);
        let outcome = match (act, wanted) {
            (AppStep::Configure, Some(wanted)) => match self.address(observed, id).await {
                Ok(address) => {
                    self.state.lock().unconfigured.remove(id);
                    let config = wanted.config(address, package == Package::Copied);
                    self.client.configure(&body(&config)).await
                }
                Err(error) => Err(error.into()),
            },
            (AppStep::Divert, Some(wanted)) => self.client.amend(id, &wanted.diversion(id)).await,
            (AppStep::Remove, _) => self.remove_configuration(id).await,
            (AppStep::Discard, _) => {
                let may_come = self.state.lock().record(id).copy_may_come(limits, Instant::now());
                match self.discard(id, may_come).await {
                    Ok(()) => {
                        act = AppStep::Remove;
                        let now = Instant::now();
                        self.record(id, |record| {
                            // The configuration is removed at once: a later process would not know that the copy is deleted.
                            record.discarded();
                            record.attempted(act, now, limit);
                            record.uncertain(act);
                        });
                        self.remove_configuration(id).await
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
            info!(app = id, step = act.doing(), "the device accepted a step");
            if act == AppStep::Remove {
                self.cool_down(observed, id);
                self.state.lock().records.remove(id);
            } else {
                self.record(id, |record| record.answered(act, limit));
            }
            return Ok(true);
        };
        if let Some(device_text) = fault.device_text {
            debug!(app = id, step = act.doing(), device_text, "the device refused a step");
            self.state.lock().unconfigured.remove(id);
            let leaves_copy = self.record(id, |record| {
                record.answered(act, limit);
                record.refused(act, device_text, refusal_kind(&fault.error), Instant::now());
                record.leaves_copy(limits)
            });
            if leaves_copy {
                warn!(
                    app = id,
                    file = copy_of(id),
                    "the device does not delete the copy of a package; it stays there"
                );
            }
            return Ok(true);
        }
        if !fault.error.ambiguous() {
            self.record(id, |record| record.unsent(act));
            return Err(*fault.error);
        }
        self.record(id, |record| record.lost(act, Instant::now()));
        if fault.timed_out { Ok(false) } else { Err(*fault.error) }
    }

    /// Applies `change` to the record of the steps that were tried for the application `id`, and returns its result.
    fn record<T>(&self, id: &str, change: impl FnOnce(&mut AppRecord) -> T) -> T {
        change(self.state.lock().record(id))
    }

    /// Removes the configuration of the application, which is then expected to disappear.
    async fn remove_configuration(&self, id: &str) -> Result<(), RequestFailure> {
        self.state.lock().unconfigured.insert(id.to_owned());
        self.client.remove(id).await
    }

    /// Deletes the copy of a package on the flash. A missing file counts as success; with `may_come` it is an error, because the device may
    /// still be copying the file.
    async fn discard(&self, id: &str, may_come: bool) -> Result<(), RequestFailure> {
        let operation = DeviceOperation::Delete { file: copy_of(id) };
        match self.client.operate(&operation, None).await {
            Err(fault) if is_not_there(&fault) && may_come => {
                let device_text = fault
                    .device_text
                    .map(|device_text| format!("a copy may still be in progress: {device_text}"));
                Err(RequestFailure { device_text, ..fault })
            }
            Err(fault) if is_not_there(&fault) => Ok(()),
            outcome => outcome,
        }
    }

    /// Assigns a free IP address to a new application; `None` if applications get addresses by DHCP. An address is not free if it is
    /// configured or reported, if the status of another pod shows it, if the ARP table of the device contains it (except for the old entry of a removed application), or if it was
    /// assigned or released less than [`COOL_DOWN`] ago. Returns an error with [`Reason::NoAddress`] if the subnet has no free address.
    async fn address(&self, observed: &Observed, id: &str) -> Result<Option<Ipv4Addr>, DriverError> {
        let Some(subnet) = self.translator.network.subnet else { return Ok(None) };
        let table = fetch::<ArpData>(&*self.client, resource::ARP, "read the ARP table of the device").await;
        let table = match table {
            Err(error) if error.transient() => return Err(error),
            // Not every device serves it.
            table => table.unwrap_or_default(),
        };
        let (now, mut state) = (Instant::now(), self.state.lock());
        state.cooling.retain(|(_, until)| *until > now);
        let is_stale = |mac: Option<MacAddress>, ip: &IpAddr| {
            state.macs.get(ip).is_some_and(|macs| mac.is_some_and(|mac| macs.contains(&mac)))
        };
        let in_use = |address: Ipv4Addr| {
            let ip = IpAddr::V4(address);
            let in_table = |(mac, of)| of == Some(ip) && !is_stale(mac, &ip);
            let is_claimed = state.claimed.get(&ip).is_some_and(|uid| !is_of(id, uid.as_str()));
            observed.uses(ip) || is_claimed || table.entries().any(in_table)
        };
        let cools = |address| state.cooling.iter().any(|(cooling, _)| *cooling == address);
        let free = free_address(subnet, |address| cools(address) || in_use(address));
        let Some(free) = free else {
            let full = DriverError::new(Reason::NoAddress, "configure an app");
            let full = full.detail(format!("the subnet {subnet} of the device is full"));
            let rested = state.cooling.iter().filter(|(address, _)| !in_use(*address));
            return Err(rested
                .map(|(_, until)| *until - now)
                .min()
                .map_or(full.clone(), |rest| full.after(rest)));
        };
        // Another application is configured by the same read of the device.
        state.cooling.push((free, now + COOL_DOWN));
        Ok(Some(free))
    }

    /// Keeps the IP address of a removed application from being assigned again for [`COOL_DOWN`].
    fn cool_down(&self, observed: &Observed, id: &str) {
        let mut state = self.state.lock();
        let address = observed.apps.get(id).and_then(|app| app.address);
        if let (Some(IpAddr::V4(address)), Some(_)) = (address, self.translator.network.subnet) {
            state.cooling.retain(|(cooling, _)| *cooling != address);
            state.cooling.push((address, Instant::now() + COOL_DOWN));
        }
    }
}

/// Returns the RPC operation that executes a step. Returns an error for a step that is not executed by an RPC operation, and for an
/// install without a known package.
fn operation(
    act: AppStep,
    id: &str,
    wanted: Option<&WantedApp>,
    package: Package,
) -> Result<DeviceOperation, DriverError> {
    let appid = id.to_owned();
    let package =
        if package == Package::Copied { Some(copy_of(id)) } else { wanted.map(|it| it.package.clone()) };
    Ok(match (act, package) {
        (AppStep::Install, Some(package)) => DeviceOperation::Install { appid, package },
        (AppStep::Activate, _) => DeviceOperation::Activate { appid },
        (AppStep::Start, _) => DeviceOperation::Start { appid },
        (AppStep::Stop, _) => DeviceOperation::Stop { appid },
        (AppStep::Deactivate, _) => DeviceOperation::Deactivate { appid },
        (AppStep::Uninstall, _) => DeviceOperation::Uninstall { appid },
        (act, _) => {
            let error = DriverError::new(Reason::Refused, "operate an app");
            return Err(error.detail(format!("the package of the application is unknown: {}", act.doing())));
        }
    })
}

/// Classifies the error with which the device refused a step.
fn refusal_kind(error: &DriverError) -> RefusalKind {
    match error.reason() {
        Reason::Conflict => RefusalKind::Busy,
        _ if error.transient() => RefusalKind::Temporary,
        _ => RefusalKind::Lasting,
    }
}

/// Returns the source of an application's package: as the configuration says, or, without a configuration, as the
/// record of its steps says.
fn package(observed: &Observed, record: &AppRecord, AppTask { id, wanted, .. }: AppTask<'_>) -> Package {
    let mark = observed.apps.get(id).and_then(|app| app.mark.as_ref());
    if mark.map_or_else(|| record.may_have_copy(), |mark| mark.copied) {
        return Package::Copied;
    }
    // The configuration of an earlier agent is not changed.
    let ours = mark.is_none_or(|mark| mark.form.is_some());
    if ours && wanted.is_some_and(|wanted| wanted.remote) { Package::AtUrl } else { Package::OnDevice }
}

/// A running request that changes the device. Its counter is incremented when the request begins, and again when this value is dropped,
/// even if the caller was cancelled.
struct DeviceChange<'a>(&'a AtomicU64);

impl<'a> DeviceChange<'a> {
    /// Increments the counter `changes` for the start of a request.
    fn of(changes: &'a AtomicU64) -> Self {
        changes.fetch_add(1, Ordering::AcqRel);
        Self(changes)
    }
}

impl Drop for DeviceChange<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_installed_without_a_package() {
        let copied = operation(AppStep::Install, "app", None, Package::Copied).unwrap();
        assert_eq!(copied, DeviceOperation::Install { appid: "app".into(), package: copy_of("app") });
        for package in [Package::OnDevice, Package::AtUrl] {
            let refused = operation(AppStep::Install, "app", None, package).unwrap_err();
            assert_eq!(refused.reason(), Reason::Refused);
        }
        assert!(operation(AppStep::Configure, "app", None, Package::OnDevice).is_err());
        assert!(operation(AppStep::Stop, "app", None, Package::OnDevice).is_ok());
    }
}
