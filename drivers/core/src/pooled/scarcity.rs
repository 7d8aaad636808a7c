//! What many keys have in common when there is no more to be had: the quota of a project, the addresses of subnets.

use std::collections::HashMap;
use std::time::Duration;

use crate::error::{DriverError, Reason};
use crate::id::{ProjectId, SubnetId};
use crate::stock::StockKey;
use crate::warm_pool::{Fault, Pressure};

/// For so long others wait for who asks just now, before they look again whether that one is done.
const TURN: Duration = Duration::from_secs(1);

/// What there is no more of. Of all keys that need it one asks at a time, for those who wait or for one at first, so that the
/// other world is asked no more often for many nodes than for one. When there is more again, all learn of it.
#[derive(Default)]
pub(super) struct Scarcity(HashMap<Scope, Scarce>);

/// Of what there is no more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Scope {
    /// The quota of a project.
    Project(ProjectId),
    /// The addresses of subnets.
    Subnets(Vec<SubnetId>),
}

struct Scarce {
    pressure: Pressure,
    /// What was said last.
    failure: DriverError,
    /// Who asks just now, and how many it wants in truth.
    asking: Option<(StockKey, usize)>,
    /// How many may be asked for ahead of demand.
    room: usize,
}

impl Scope {
    fn of(key: &StockKey) -> [Self; 2] {
        [Self::Project(key.project.clone()), Self::Subnets(key.subnets.clone())]
    }

    /// What that failure says is used up.
    fn exhausted(key: &StockKey, failure: &DriverError) -> Option<Self> {
        match failure.reason() {
            _ if failure.retry_after().is_some() => None,
            Reason::Quota => Some(Self::Project(key.project.clone())),
            Reason::NoAddress => Some(Self::Subnets(key.subnets.clone())),
            _ => None,
        }
    }
}

impl Scarcity {
    /// Until when this key must not ask for more, and why.
    pub(super) fn bars(&self, key: &StockKey, now: Duration) -> Option<(Duration, &DriverError)> {
        let scarce = Scope::of(key).into_iter().filter_map(|scope| self.0.get(&scope));
        let barred = scarce.filter_map(|scarce| {
            let others = scarce.asking.as_ref().is_some_and(|(asking, _)| asking != key);
            let wait = scarce.pressure.remaining(now).max(others.then_some(TURN))?;
            Some((now + wait, &scarce.failure))
        });
        barred.max_by_key(|(until, _)| *until)
    }

    /// The key asks for `count` now, and so many wait there. Answers how many it may ask for.
    pub(super) fn asks(&mut self, key: &StockKey, count: usize, waiting: usize) -> usize {
        let mut allowed = count;
        for scope in Scope::of(key) {
            if let Some(scarce) = self.0.get_mut(&scope) {
                scarce.asking = Some((key.clone(), count));
                allowed = allowed.min(waiting.max(scarce.room));
            }
        }
        allowed
    }

    /// So many came of what the key asked for. Answers whether others may ask now that could not.
    pub(super) fn ended(
        &mut self,
        key: &StockKey,
        made: usize,
        failure: Option<&DriverError>,
        now: Duration,
    ) -> bool {
        let mut relieved = false;
        for scope in Scope::of(key) {
            let Some(scarce) = self.0.get_mut(&scope) else { continue };
            let Some((_, wanted)) = scarce.asking.take_if(|(asking, _)| asking == key) else { continue };
            if failure.is_none() {
                relieved = true;
                (scarce.pressure, scarce.room) = (Pressure::default(), made.saturating_mul(2).max(1));
                if made >= wanted {
                    self.0.remove(&scope);
                }
            }
        }
        if let Some(failure) = failure
            && let Some(scope) = Scope::exhausted(key, failure)
        {
            let failure = failure.clone().settled();
            let scarce = self.0.entry(scope).or_insert_with(|| Scarce {
                pressure: Pressure::default(),
                failure: failure.clone(),
                asking: None,
                room: 1,
            });
            (scarce.failure, scarce.room) = (failure, 1);
            scarce.pressure.asked(Some(Fault::Exhausted), now);
        }
        relieved
    }

    /// Whether two keys need the same.
    pub(super) fn joins(one: &StockKey, other: &StockKey) -> bool {
        one.project == other.project || one.subnets == other.subnets
    }
}

/// Whether a failure says that something is used up of which others have a share.
pub(super) fn is_of_all(key: &StockKey, failure: &DriverError) -> bool {
    Scope::exhausted(key, failure).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(host: &str, project: &str, subnet: &str) -> StockKey {
        let subnets = vec![subnet.into()];
        StockKey { host: host.into(), project: project.into(), network: "net".into(), subnets }
    }

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_quota_is_scarce_for_a_project_and_addresses_are_for_their_subnets() {
        let (one, same_project) = (key("n1", "p1", "s1"), key("n2", "p1", "s2"));
        let same_subnet = key("n3", "p2", "s1");
        for (reason, barred) in
            [(Reason::Quota, [true, true, false]), (Reason::NoAddress, [true, false, true])]
        {
            let mut scarcity = Scarcity::default();
            assert_eq!(scarcity.asks(&one, 10, 0), 10);
            scarcity.ended(&one, 0, Some(&DriverError::new(reason, "make")), at(0));
            let bars = [&one, &same_project, &same_subnet].map(|key| scarcity.bars(key, at(0)).is_some());
            assert_eq!(bars, barred);
        }
        let mut scarcity = Scarcity::default();
        for failure in [
            DriverError::new(Reason::Unavailable, "make"),
            DriverError::new(Reason::Quota, "make").after(at(9)),
        ] {
            scarcity.ended(&one, 0, Some(&failure), at(0));
            assert!(scarcity.bars(&one, at(0)).is_none(), "that is its own affair");
        }
    }

    #[test]
    fn one_asks_at_a_time_for_few_and_for_more_as_long_as_there_is_more() {
        let (mut scarcity, [one, other]) =
            (Scarcity::default(), ["n1", "n2"].map(|host| key(host, "p", "s")));
        let used_up = DriverError::new(Reason::Quota, "make");
        scarcity.ended(&one, 3, Some(&used_up), at(0));
        let (until, why) = scarcity.bars(&other, at(0)).unwrap();
        assert_eq!((until, why.reason()), (at(1), Reason::Quota));
        assert_eq!((scarcity.bars(&other, at(1)).is_none(), scarcity.asks(&other, 10, 0)), (true, 1));
        assert_eq!(scarcity.bars(&one, at(1)).unwrap().0, at(2), "the other one asks");
        scarcity.ended(&other, 0, Some(&used_up), at(1));
        assert_eq!(scarcity.bars(&one, at(1)).unwrap().0, at(3), "twice as late each time");
        assert_eq!(scarcity.asks(&one, 10, 4), 4, "so many wait");
        assert!(scarcity.ended(&one, 4, None, at(3)) && scarcity.bars(&other, at(3)).is_none());
        assert_eq!(scarcity.asks(&other, 10, 0), 8);
        assert!(scarcity.ended(&other, 8, None, at(3)));
        assert_eq!(scarcity.asks(&other, 10, 0), 10);
        assert!(scarcity.ended(&other, 10, None, at(3)) && scarcity.0.is_empty());
    }
}
