//! Property tests of the decisions, on a simulated device with its own clock.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::super::decide::POLL;
use super::super::*;
use super::{PATIENCE, RUN, view};

/// A simulated device, which executes steps with a delay, and may fail.
struct Device {
    configured: Configured,
    state: AppState,
    /// The pending state change and its time.
    next: Option<(Instant, AppState)>,
    /// `true` if the device starts installed applications by itself.
    advances: bool,
    package: Package,
    /// The outcome of an install from a URL.
    url: Url,
    /// `true` if a copy of the package is on the flash. The times at which running copies are complete follow: of one
    /// whose response the controller awaits, and of one that it does not know.
    file: bool,
    copy: Option<Instant>,
    untracked_copy: Option<Instant>,
}

/// The outcome of an install from a URL.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Url {
    Works,
    /// The device refuses the install.
    Refused,
    /// The device accepts the install, but the application never appears.
    Silent,
    /// The install never ends.
    Hangs,
}

impl Device {
    fn at(&mut self, now: Instant, delay: Duration) {
        while let Some((at, state)) = self.next.filter(|(at, _)| *at <= now) {
            self.state = state;
            self.next = match state {
                AppState::Installing => Some((at + delay, AppState::Deployed)),
                AppState::Deployed if self.advances => Some((at + delay, AppState::Activated)),
                AppState::Activated if self.advances => Some((at + delay, AppState::Running)),
                _ => None,
            };
        }
    }

    /// Applies a step; returns `true` if the device accepts it.
    fn take(&mut self, act: AppStep, now: Instant, delay: Duration) -> bool {
        use AppState::{Absent, Activated, Deployed, Failed, Installing, Running, Stopped};
        let becomes = match (act, self.state) {
            (AppStep::Configure, _) if self.configured == Configured::No => {
                self.configured = Configured::Yes;
                return true;
            }
            (AppStep::Remove, Absent) => {
                self.configured = Configured::No;
                return true;
            }
            (AppStep::Divert, _) => {
                self.package = Package::Copied;
                return self.configured == Configured::Yes;
            }
            (AppStep::Copy, Absent) => {
                self.copy = Some(now + delay);
                return true;
            }
            (AppStep::Discard, Absent) => return std::mem::take(&mut self.file),
            (AppStep::Install, Absent) if self.package == Package::AtUrl => match self.url {
                Url::Works => Installing,
                Url::Refused => return false,
                Url::Silent => return true,
                Url::Hangs => {
                    self.state = Installing;
                    return true;
                }
            },
            (AppStep::Install, Absent) if self.package == Package::Copied && !self.file => return false,
            (AppStep::Install, Absent) => Installing,
            (AppStep::Activate, Deployed) => Activated,
            (AppStep::Start, Activated | Stopped) => Running,
            (AppStep::Stop, Running) => Stopped,
            (AppStep::Deactivate, Activated | Stopped) => Deployed,
            (AppStep::Deactivate, Failed) if !self.advances => Deployed,
            (AppStep::Uninstall, Deployed | Installing) => Absent,
            (AppStep::Uninstall, Failed) if self.advances => Absent,
            _ => return false,
        };
        // Only an install is followed by what the device does by itself.
        self.advances &= act != AppStep::Deactivate;
        self.next = Some((now + delay, becomes));
        true
    }
}

#[derive(Clone, Debug)]
enum Mood {
    /// The device accepts the next step without any effect.
    Forgets,
    /// The device refuses the next step.
    Refuses,
    /// The application changes to this state by itself.
    Falls(AppState),
    /// The controller restarts, and loses its in-memory records.
    Restart,
}

fn states() -> impl Strategy<Value = AppState> {
    use AppState::{Absent, Activated, Deployed, Failed, Installing, Running, Stopped, Unknown};
    prop::sample::select(vec![Absent, Installing, Deployed, Activated, Running, Stopped, Failed, Unknown])
}

fn moods() -> impl Strategy<Value = Vec<(u64, Mood)>> {
    let mood = prop_oneof![
        Just(Mood::Forgets),
        Just(Mood::Refuses),
        states().prop_map(Mood::Falls),
        Just(Mood::Restart),
    ];
    prop::collection::vec((0..60_u64, mood), 0..6)
}

proptest! {
    #[test]
    fn from_every_state_the_goal_is_reached_and_no_step_is_taken_twice_within_its_limit(
        configured in prop::sample::select(vec![Configured::No, Configured::Yes, Configured::Outdated]),
        state in states(), run in any::<bool>(), advances in any::<bool>(),
        delay in prop::sample::select(vec![100_u64, 900, 5000]), moods in moods(),
        url in prop::sample::select(vec![None, Some(Url::Works), Some(Url::Refused), Some(Url::Silent), Some(Url::Hangs)]),
        // When a copy is there that a controller before this one began.
        begun_before in prop::sample::select(vec![None, Some(0_u64), Some(60), Some(500)]),
    ) {
        let package = if url.is_some() { Package::AtUrl } else { Package::OnDevice };
        let url = url.unwrap_or(Url::Works);
        let goal = if run { RUN } else { Goal::Removed };
        let delay = Duration::from_millis(delay);
        let begun = Instant::now();
        let mut now = begun;
        let mut device = Device {
            configured, state, next: None, advances, package, url, file: false, copy: None, untracked_copy: None,
        };
        if let Some(seconds) = begun_before {
            // What is installed was copied before.
            let wait = if state == AppState::Absent { seconds } else { 0 };
            (device.package, device.untracked_copy) = (Package::Copied, Some(now + Duration::from_secs(wait)));
        }
        device.next = match state {
            AppState::Installing => Some((now + delay, AppState::Deployed)),
            AppState::Unknown => Some((now + delay, AppState::Stopped)),
            _ => None,
        };
        let mut record = AppRecord::new(state, now);
        let mut moods: Vec<_> = moods.into_iter().collect();
        moods.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut deaf: Option<bool> = None;
        let (mut seen, mut steps, mut left) = (state, 0, false);
        let mut taken: HashMap<AppStep, (Instant, bool)> = HashMap::new();
        loop {
            prop_assert!(now - begun < Duration::from_secs(3600), "it is still {:?}", device.state);
            device.at(now, delay);
            if device.copy.take_if(|at| *at <= now).is_some() {
                device.file = true;
                record.copied();
                taken.remove(&AppStep::Install);
                taken.remove(&AppStep::Copy);
            }
            device.file |= device.untracked_copy.take_if(|at| *at <= now).is_some();
            while let Some((_, mood)) = moods.pop_if(|(at, _)| begun + Duration::from_secs(*at) <= now) {
                match mood {
                    Mood::Forgets => deaf = Some(true),
                    Mood::Refuses => deaf = Some(false),
                    Mood::Falls(AppState::Unknown) if device.state == AppState::Unknown => {}
                    Mood::Falls(AppState::Unknown) => {
                        device.next = Some((now + delay, device.state));
                        device.state = AppState::Unknown;
                    }
                    Mood::Falls(state) => {
                        device.file |= state != AppState::Absent && device.untracked_copy.take().is_some();
                        let installs = state == AppState::Installing;
                        device.next = installs.then(|| (now + delay, AppState::Deployed));
                        device.state = state;
                    }
                    Mood::Restart => {
                        record = AppRecord::new(device.state, now);
                        taken.clear();
                        device.untracked_copy = device.copy.take().or(device.untracked_copy);
                    }
                }
            }
            if device.state != seen {
                (seen, steps) = (device.state, steps + 1);
                let past = |act: &AppStep| seen == AppState::Absent || act.is_fulfilled_by(seen);
                taken.retain(|act, (_, refused)| !*refused && !past(act));
            }
            record.observe(device.state, now);
            left |= record.leaves_copy(PATIENCE);
            let view = AppView {
                package: device.package,
                copying: device.copy.map(|_| "X"),
                ..view(device.configured, device.state)
            };
            match decide(view, goal, &record, PATIENCE, now) {
                Decision::Done if moods.is_empty() => break,
                Decision::Done => now += Duration::from_secs(1),
                Decision::Wait { poll_after, .. } | Decision::Fail { poll_after, .. } => {
                    prop_assert!(poll_after > Duration::ZERO);
                    now += poll_after;
                }
                Decision::Do(act) => {
                    if let Some((at, refused)) = taken.get(&act) {
                        let limit = if *refused { StepLimits::pause(1) } else { PATIENCE.limit(act) };
                        prop_assert!(now >= *at + limit, "{:?} again after {:?}", act, now - *at);
                    }
                    steps += 1;
                    prop_assert!(steps < 200, "it goes round and round");
                    record.attempted(act, now, PATIENCE.limit(act));
                    let accepted = match deaf.take() {
                        // Whoever is told of a file that it is there or gone is not told so in vain.
                        Some(accepted) => accepted && !matches!(act, AppStep::Copy | AppStep::Discard),
                        None => device.take(act, now, delay),
                    };
                    // One that is not there is deleted, unless it may still come.
                    let there = device.file || record.copy_may_come(PATIENCE, now);
                    let gone = act == AppStep::Discard && !there;
                    let accepted = accepted || gone;
                    if accepted && act == AppStep::Discard {
                        record.discarded();
                    }
                    taken.insert(act, (now, !accepted));
                    if !accepted {
                        let lasts = device.package == Package::AtUrl && device.url == Url::Refused;
                        let kind = if lasts { RefusalKind::Lasting } else { RefusalKind::Temporary };
                        record.refused(act, "no".into(), kind, now);
                    }
                    if act == AppStep::Remove && device.configured == Configured::No {
                        record = AppRecord::new(device.state, now);
                        taken.clear();
                        device.package = package;
                    }
                    now += POLL;
                }
            }
        }
        let reached = match goal {
            Goal::Removed => (Configured::No, AppState::Absent),
            Goal::Running { .. } => (Configured::Yes, AppState::Running),
        };
        prop_assert_eq!((device.configured, device.state), reached);
        let copied = device.file || device.untracked_copy.is_some();
        prop_assert!(run || left || !copied, "a copy is left on the flash");
    }
}
