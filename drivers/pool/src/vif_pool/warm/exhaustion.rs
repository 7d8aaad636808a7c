//! Exhausted resources that the pools of several keys share: the quota of a project, and the addresses of subnets.

use std::collections::HashMap;
use std::time::Duration;

use staffetta_driver::{DriverError, ProjectId, Reason, SubnetId, VifPoolKey};

use crate::pool::{AttemptBackoff, Shortfall};

/// The delay before a pool checks again, while another pool is trying to create VIFs from the same exhausted resource.
const CHECK_AGAIN: Duration = Duration::from_secs(1);

/// The quotas and subnets that are exhausted at this time. Of all pools that need the same exhausted resource, only one at a time
/// tries to create VIFs: as many as its waiting requests need, or one at first and twice as many after each success. So the cloud gets no
/// more requests for many nodes than for one. After a pool succeeded, all other pools may try again.
#[derive(Default)]
pub(super) struct Exhaustion(HashMap<Scope, Exhausted>);

/// A resource of the cloud that the pools of several [`VifPoolKey`]s share, and that can be exhausted for all of them at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scope {
    /// The quota of a project.
    Project(ProjectId),
    /// The addresses of subnets.
    Subnets(Vec<SubnetId>),
}

/// The state of one exhausted resource.
struct Exhausted {
    /// The back-off of attempts to create VIFs, after the failures so far.
    backoff: AttemptBackoff,
    /// The last error that reported the resource as exhausted.
    failure: DriverError,
    /// The pool that is trying to create VIFs at this time, and the number of VIFs that it needs; `None` if no pool is trying.
    attempt: Option<(VifPoolKey, usize)>,
    /// The maximum number of VIFs that a pool may try to create, unless it has more waiting requests.
    room: usize,
}

impl Scope {
    /// Returns the shared resources that the pool of `key` needs.
    pub(crate) fn of(key: &VifPoolKey) -> [Self; 2] {
        [Self::Project(key.project.clone()), Self::Subnets(key.subnets.clone())]
    }

    /// Returns the shared resource that `failure` reports as exhausted; `None` if it reports none, or contains a retry delay, which then
    /// applies to the pool of `key` alone.
    pub(crate) fn exhausted(key: &VifPoolKey, failure: &DriverError) -> Option<Self> {
        let [project, subnets] = Self::of(key);
        match failure.reason() {
            _ if failure.retry_after().is_some() => None,
            Reason::Quota => Some(project),
            Reason::NoAddress => Some(subnets),
            _ => None,
        }
    }
}

impl Exhaustion {
    /// Returns the time before which the pool `key` must not create VIFs, and the last error of the exhausted resource; `None` if it may
    /// create them now. Times are counted from the creation of the VIF pool.
    pub(super) fn blocked(&self, key: &VifPoolKey, now: Duration) -> Option<(Duration, &DriverError)> {
        let exhausted = Scope::of(key).into_iter().filter_map(|scope| self.0.get(&scope));
        let blocked = exhausted.filter_map(|exhausted| {
            let others = exhausted.attempt.as_ref().is_some_and(|(other, _)| other != key);
            let wait = exhausted.backoff.remaining(now).max(others.then_some(CHECK_AGAIN))?;
            Some((now + wait, &exhausted.failure))
        });
        blocked.max_by_key(|(until, _)| *until)
    }

    /// Records that the pool `key` starts to create `count` VIFs, `waiting` of them for waiting requests. Returns the number that
    /// it may create.
    pub(super) fn begin(&mut self, key: &VifPoolKey, count: usize, waiting: usize) -> usize {
        let mut allowed = count;
        for scope in Scope::of(key) {
            if let Some(exhausted) = self.0.get_mut(&scope) {
                exhausted.attempt = Some((key.clone(), count));
                allowed = allowed.min(waiting.max(exhausted.room));
            }
        }
        allowed
    }

    /// Records that the pool `key` has finished creating VIFs: the number `created`, and the `failure` if there was one. Returns
    /// `true` if an exhausted resource is available again, so that other pools may create VIFs too.
    pub(super) fn end(
        &mut self,
        key: &VifPoolKey,
        created: usize,
        failure: Option<&DriverError>,
        now: Duration,
    ) -> bool {
        let mut relieved = false;
        for scope in Scope::of(key) {
            let Some(exhausted) = self.0.get_mut(&scope) else { continue };
            let Some((_, wanted)) = exhausted.attempt.take_if(|(other, _)| other == key) else { continue };
            if failure.is_some() {
                continue;
            }
            relieved = true;
            if created < wanted {
                exhausted.backoff = AttemptBackoff::default();
                exhausted.room = created.saturating_mul(2).max(1);
            } else {
                self.0.remove(&scope);
            }
        }
        if let Some(failure) = failure
            && let Some(scope) = Scope::exhausted(key, failure)
        {
            let failure = failure.clone().unambiguous();
            let exhausted = self.0.entry(scope).or_insert_with(|| Exhausted {
                backoff: AttemptBackoff::default(),
                failure: failure.clone(),
                attempt: None,
                room: 1,
            });
            (exhausted.failure, exhausted.room) = (failure, 1);
            exhausted.backoff.record(Some(Shortfall::Exhausted), now);
        }
        relieved
    }
}

/// Returns `true` if the pools of two keys need the same quota or the same subnets.
pub(super) fn is_shared(one: &VifPoolKey, other: &VifPoolKey) -> bool {
    one.project == other.project || one.subnets == other.subnets
}

/// Returns `true` if `failure` means that the quota or the subnets of the pool `key`, which other pools share, are exhausted.
pub(super) fn is_exhaustion(key: &VifPoolKey, failure: &DriverError) -> bool {
    Scope::exhausted(key, failure).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(host: &str, project: &str, subnet: &str) -> VifPoolKey {
        let subnets = vec![subnet.into()];
        VifPoolKey { host: host.into(), project: project.into(), network: "net".into(), subnets }
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_quota_is_scarce_for_a_project_and_addresses_are_for_their_subnets() {
        let (one, same_project) = (key("n1", "p1", "s1"), key("n2", "p1", "s2"));
        let same_subnet = key("n3", "p2", "s1");
        for (reason, expected) in
            [(Reason::Quota, [true, true, false]), (Reason::NoAddress, [true, false, true])]
        {
            let mut exhaustion = Exhaustion::default();
            assert_eq!(exhaustion.begin(&one, 10, 0), 10);
            exhaustion.end(&one, 0, Some(&DriverError::new(reason, "make")), at(0));
            let got = [&one, &same_project, &same_subnet].map(|key| exhaustion.blocked(key, at(0)).is_some());
            assert_eq!(got, expected);
        }
        let mut exhaustion = Exhaustion::default();
        for failure in [
            DriverError::new(Reason::Unavailable, "make"),
            DriverError::new(Reason::Quota, "make").after(at(9)),
        ] {
            exhaustion.end(&one, 0, Some(&failure), at(0));
            assert!(exhaustion.blocked(&one, at(0)).is_none(), "that is its own affair");
        }
    }

    #[test]
    fn one_asks_at_a_time_for_few_and_for_more_as_long_as_there_is_more() {
        let (mut exhaustion, [one, other]) =
            (Exhaustion::default(), ["n1", "n2"].map(|host| key(host, "p", "s")));
        let used_up = DriverError::new(Reason::Quota, "make");
        exhaustion.end(&one, 3, Some(&used_up), at(0));
        let (until, why) = exhaustion.blocked(&other, at(0)).unwrap();
        assert_eq!((until, why.reason()), (at(1), Reason::Quota));
        assert_eq!((exhaustion.blocked(&other, at(1)).is_none(), exhaustion.begin(&other, 10, 0)), (true, 1));
        assert_eq!(exhaustion.blocked(&one, at(1)).unwrap().0, at(2), "the other one asks");
        exhaustion.end(&other, 0, Some(&used_up), at(1));
        assert_eq!(exhaustion.blocked(&one, at(1)).unwrap().0, at(3), "twice as late each time");
        assert_eq!(exhaustion.begin(&one, 10, 4), 4, "so many wait");
        assert!(exhaustion.end(&one, 4, None, at(3)) && exhaustion.blocked(&other, at(3)).is_none());
        assert_eq!(exhaustion.begin(&other, 10, 0), 8);
        assert!(exhaustion.end(&other, 8, None, at(3)));
        assert_eq!(exhaustion.begin(&other, 10, 0), 10);
        assert!(exhaustion.end(&other, 10, None, at(3)) && exhaustion.0.is_empty());
    }
}
