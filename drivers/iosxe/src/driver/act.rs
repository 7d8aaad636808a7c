//! One step of one application: the decision, and the request that it takes.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use staffetta_driver::app_hosting::Progress;
use staffetta_driver::{DriverError, Reason};
use tokio::time::Instant;
use tracing::{debug, info};

use super::{IosXeDriver, State, state_of};
use crate::app::{WantedApp, free_address};
use crate::machine::{Act, AppState, Configured, Decision, Goal, Patience, Track, View, decide};
use crate::model::operation::Operation;
use crate::observe::Observed;

/// When it is worth asking again after a step.
const AFTER_A_STEP: Duration = Duration::from_millis(300);

/// When it is worth asking again while the device hosts nothing.
const DISABLED: Duration = Duration::from_secs(30);

/// How long an address rests after it was given back.
const REST: Duration = Duration::from_secs(30);

impl IosXeDriver {
    /// At most one step nearer to the goal; `name` is told to people.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is looked at by the decision, and nobody else keeps them together"
    )]
    pub(super) async fn step(
        &self,
        state: &mut State,
        observed: &Observed,
        id: &str,
        name: &str,
        goal: Goal,
        wanted: Option<&WantedApp>,
        configured: Configured,
    ) -> Result<Progress, DriverError> {
        let now = Instant::now();
        let patience = Patience::of(&self.options, wanted.is_some_and(|wanted| wanted.remote));
        let there = state_of(observed, id);
        let busy = busy(state, observed, id);
        let track = state.tracks.entry(id.to_owned()).or_insert_with(|| Track::new(there, now));
        track.observe(there, now);
        track.heard(&observed.notifications, id, now);
        let said = observed.apps.get(id).map_or("nothing", |app| app.said.as_str());
        let view = View { configured, state: there, said, busy: busy.as_deref() };
        let act = match decide(view, goal, track, patience, now) {
            Decision::Done => {
                if goal == Goal::Gone {
                    state.tracks.remove(id);
                }
                return Ok(Progress::Done);
            }
            Decision::Wait { state, ask_again } => {
                return Ok(Progress::Working { state: format!("{name}: {state}"), ask_again });
            }
            Decision::Fail { reason, message, ask_again } => {
                let message = format!("{name}: {message}");
                return Ok(Progress::Failing { reason: reason.into(), message, ask_again });
            }
            Decision::Do(act) => act,
        };
        if act == Act::Install
            && let Some(wait) = self.before_install(state, id).await?
        {
            return Ok(wait);
        }
        self.act(state, observed, id, act, wanted).await?;
        Ok(Progress::Working { state: format!("{name}: {}", act.doing()), ask_again: AFTER_A_STEP })
    }

    /// A look at what the device told so far, so that what it tells of this install is known from that; and whether it
    /// hosts applications at all, which it does not for a while after it started.
    async fn before_install(&self, state: &mut State, id: &str) -> Result<Option<Progress>, DriverError> {
        let observed = state.reading.look(&*self.client, true).await?;
        if observed.enabled == Some(false) {
            return Ok(Some(Progress::Failing {
                reason: "AppHostingDisabled".into(),
                message: "IOx is not enabled on the device".into(),
                ask_again: DISABLED,
            }));
        }
        let now = Instant::now();
        let track = state.tracks.entry(id.to_owned()).or_insert_with(|| Track::new(AppState::Absent, now));
        track.observe(state_of(&observed, id), now);
        if state_of(&observed, id) != AppState::Absent {
            let state = "the device went on by itself".to_owned();
            return Ok(Some(Progress::Working { state, ask_again: AFTER_A_STEP }));
        }
        track.heard_before(&observed.notifications, id);
        Ok(None)
    }

    /// Does the step. What the device refused is taken down and decides the next one; what never reached it, or has no
    /// answer, is an error.
    async fn act(
        &self,
        state: &mut State,
        observed: &Observed,
        id: &str,
        act: Act,
        wanted: Option<&WantedApp>,
    ) -> Result<(), DriverError> {
        let appid = id.to_owned();
        let now = Instant::now();
        let limit = Patience::of(&self.options, wanted.is_some_and(|wanted| wanted.remote)).limit(act);
        let outcome = match (act, wanted) {
            (Act::Configure, Some(wanted)) => {
                let address = self.address(state, observed)?;
                // Another container of the pod is decided by the same look at the device.
                state.resting.extend(address.map(|address| (address, now + REST)));
                track(state, id).attempted(act, now, limit);
                self.client.configure(&wanted.config(address).body()).await
            }
            (Act::Install, Some(wanted)) => {
                track(state, id).attempted(act, now, limit);
                let package = wanted.package.clone();
                self.client.operate(&Operation::Install { appid, package }).await
            }
            (Act::Remove, _) => {
                track(state, id).attempted(act, now, limit);
                self.client.remove(id).await
            }
            (act, _) => {
                track(state, id).attempted(act, now, limit);
                let operation = match act {
                    Act::Activate => Operation::Activate { appid },
                    Act::Start => Operation::Start { appid },
                    Act::Stop => Operation::Stop { appid },
                    Act::Deactivate => Operation::Deactivate { appid },
                    Act::Uninstall => Operation::Uninstall { appid },
                    Act::Configure | Act::Install | Act::Remove => {
                        unreachable!("nothing is configured or installed that nobody wants")
                    }
                };
                self.client.operate(&operation).await
            }
        };
        state.reading.changed();
        let Err(fault) = outcome else {
            info!(app = id, step = act.doing(), "the device accepted a step");
            if act == Act::Remove {
                self.rest(state, observed, id);
                state.tracks.remove(id);
            }
            return Ok(());
        };
        if let Some(said) = fault.said {
            debug!(app = id, step = act.doing(), said, "the device refused a step");
            track(state, id).refused(act, said, Instant::now());
            return Ok(());
        }
        if fault.error.ambiguous() {
            track(state, id).uncertain(act);
        } else {
            track(state, id).unsent(act);
        }
        Err(*fault.error)
    }

    /// An address for a new application; none where it asks a DHCP server.
    fn address(&self, state: &mut State, observed: &Observed) -> Result<Option<Ipv4Addr>, DriverError> {
        let Some(subnet) = self.translator.network.subnet else { return Ok(None) };
        let now = Instant::now();
        state.resting.retain(|(_, until)| *until > now);
        let used = |address: Ipv4Addr| {
            let resting = state.resting.iter().any(|(resting, _)| *resting == address);
            resting || observed.addresses.contains(&IpAddr::V4(address))
        };
        free_address(subnet, used).map(Some).ok_or_else(|| {
            let full = DriverError::new(Reason::NoAddress, "configure an app");
            let full = full.detail(format!("the subnet {subnet} of the device is full"));
            let in_use = |address: &Ipv4Addr| observed.addresses.contains(&IpAddr::V4(*address));
            let rested =
                state.resting.iter().filter(|(address, _)| !in_use(address)).map(|(_, until)| *until - now);
            match rested.min() {
                Some(rest) => full.after(rest),
                None => full,
            }
        })
    }

    /// The addresses of an application rest before others get them.
    fn rest(&self, state: &mut State, observed: &Observed, id: &str) {
        let address = observed.apps.get(id).and_then(|app| app.address);
        if let (Some(IpAddr::V4(address)), Some(_)) = (address, self.translator.network.subnet) {
            state.resting.retain(|(resting, _)| *resting != address);
            state.resting.push((address, Instant::now() + REST));
        }
    }
}

/// What was tried with an application.
fn track<'a>(state: &'a mut State, id: &str) -> &'a mut Track {
    let now = Instant::now();
    state.tracks.entry(id.to_owned()).or_insert_with(|| Track::new(AppState::Absent, now))
}

/// Another application that is being installed: the device says so, or has accepted it a moment ago.
fn busy(state: &State, observed: &Observed, id: &str) -> Option<String> {
    let others = observed.apps.values().filter(|app| app.id != id);
    let mut installing = others.filter(|app| app.state == AppState::Installing).map(|app| app.id.clone());
    let now = Instant::now();
    let accepted = || {
        let mut tracks = state.tracks.iter().filter(|(other, _)| *other != id);
        tracks.find(|(_, track)| track.installs(now)).map(|(other, _)| other.clone())
    };
    installing.next().or_else(accepted)
}
