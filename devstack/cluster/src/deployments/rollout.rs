//! The next sizes of the replica sets of a Deployment.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DeploymentSpec, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::replicasets::wanted;

/// The replica sets that are to change, with their new number of pods.
///
/// Together they never want more than the Deployment and its surge, and while a rolling update goes on, no more pods are
/// taken away than may be unavailable.
pub(super) fn scale<'a>(
    spec: &DeploymentSpec,
    new: &'a ReplicaSet,
    old: &'a [Arc<ReplicaSet>],
) -> Vec<(&'a ReplicaSet, usize)> {
    let goal = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let (target, cuts) = match bounds(spec, goal) {
        None => recreate(goal, new, old),
        Some((surge, unavailable)) => {
            let old_pods: usize = old.iter().map(|set| wanted(set)).sum();
            let room = (goal + surge).saturating_sub(wanted(new) + old_pods);
            let target = goal.min(wanted(new) + room);
            (target, roll(goal.saturating_sub(unavailable), new, old))
        }
    };
    let grown = (target != wanted(new)).then_some((new, target));
    let cut = old.iter().zip(cuts).filter(|(_, cut)| *cut > 0).map(|(set, cut)| (&**set, wanted(set) - cut));
    grown.into_iter().chain(cut).collect()
}

/// First all old pods go, then the new ones come.
fn recreate(goal: usize, new: &ReplicaSet, old: &[Arc<ReplicaSet>]) -> (usize, Vec<usize>) {
    let left = old.iter().any(|set| set.status.as_ref().is_some_and(|status| status.replicas > 0));
    (if left { wanted(new) } else { goal }, old.iter().map(|set| wanted(set)).collect())
}

/// The number of pods by which each old set shrinks if `least` pods must stay available: unavailable pods go first.
fn roll(least: usize, new: &ReplicaSet, old: &[Arc<ReplicaSet>]) -> Vec<usize> {
    let all: usize = wanted(new) + old.iter().map(|set| wanted(set)).sum::<usize>();
    let starting = wanted(new).saturating_sub(available(new));
    let mut may_go = all.saturating_sub(least + starting);
    let mut cuts: Vec<_> = old
        .iter()
        .map(|set| {
            let cut = wanted(set).saturating_sub(available(set)).min(may_go);
            may_go -= cut;
            cut
        })
        .collect();
    let live = available(new) + old.iter().map(|set| available(set)).sum::<usize>();
    may_go = may_go.min(live.saturating_sub(least));
    for (set, cut) in old.iter().zip(&mut cuts) {
        let more = (wanted(set) - *cut).min(may_go);
        may_go -= more;
        *cut += more;
    }
    cuts
}

/// The number of available pods of the set.
fn available(set: &ReplicaSet) -> usize {
    let available = set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0);
    usize::try_from(available).unwrap_or(0).min(wanted(set))
}

/// The surge and unavailability that a rolling update allows; `None` if old pods are deleted first.
fn bounds(spec: &DeploymentSpec, goal: usize) -> Option<(usize, usize)> {
    let strategy = spec.strategy.as_ref();
    if strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate")) {
        return None;
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let quarter = IntOrString::String("25%".into());
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref()).unwrap_or(&quarter);
    let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&quarter);
    match (share(surge, goal, true), share(unavailable, goal, false)) {
        (0, 0) => Some((0, 1)),
        bounds => Some(bounds),
    }
}

/// A number, or a percentage of `goal`.
fn share(value: &IntOrString, goal: usize, round_up: bool) -> usize {
    match value {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or(0),
        IntOrString::String(text) => {
            let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
            if round_up { (goal * percent).div_ceil(100) } else { goal * percent / 100 }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{object, shared};

    fn spec(replicas: i32, strategy: &Value) -> DeploymentSpec {
        object(json!({ "replicas": replicas, "selector": {}, "template": {}, "strategy": strategy }))
    }

    fn careful() -> Value {
        json!({ "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } })
    }

    fn set(wanted: i32, available: i32) -> Arc<ReplicaSet> {
        shared(json!({ "metadata": {}, "spec": { "replicas": wanted, "selector": {} },
            "status": { "replicas": wanted, "availableReplicas": available } }))
    }

    /// Plays the update to its end, each pod at once available, and returns the largest and the smallest number of pods.
    fn play(spec: &DeploymentSpec, from: usize) -> (usize, usize) {
        let mut sets = [0, from];
        let (mut most, mut least) = (from, from);
        for _ in 0..100 {
            let made = |count: usize| set(i32::try_from(count).unwrap(), i32::try_from(count).unwrap());
            let (new, old) = (made(sets[0]), [made(sets[1])]);
            let changes = scale(spec, &new, &old);
            if changes.is_empty() {
                break;
            }
            for (changed, replicas) in changes {
                sets[usize::from(!std::ptr::eq(changed, &raw const *new))] = replicas;
                most = most.max(sets.iter().sum());
                least = least.min(sets.iter().sum());
            }
        }
        let goal = usize::try_from(spec.replicas.unwrap()).unwrap();
        assert_eq!(sets, [goal, 0], "the update comes to its end");
        (most, least)
    }

    #[test]
    fn a_rolling_update_keeps_within_its_bounds() {
        assert_eq!(play(&spec(3, &careful()), 3), (4, 3));
        assert_eq!(play(&spec(8, &json!(null)), 8), (10, 8), "a quarter, rounded up, too many");
        let late = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "50%" } });
        assert_eq!(play(&spec(4, &late), 4).0, 4);
        let neither = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": "10%" } });
        assert_eq!(play(&spec(2, &neither), 2), (2, 1));
    }

    #[test]
    fn no_old_pod_goes_before_a_new_one_is_available() {
        let (new, old) = (set(1, 0), [set(3, 3)]);
        assert!(scale(&spec(3, &careful()), &new, &old).is_empty());
        let (new, old) = (set(1, 1), [set(3, 3)]);
        let changes: Vec<_> =
            scale(&spec(3, &careful()), &new, &old).into_iter().map(|(_, count)| count).collect();
        assert_eq!(changes, [2]);
    }

    #[test]
    fn of_the_old_pods_those_go_first_that_are_not_available() {
        let (new, old) = (set(1, 0), [set(2, 0), set(2, 2)]);
        let changes: Vec<_> =
            scale(&spec(3, &careful()), &new, &old).into_iter().map(|(_, count)| count).collect();
        assert_eq!(changes, [1], "one of the two that never came up");
    }

    #[test]
    fn recreate_lets_all_old_pods_go_first() {
        let recreate = spec(2, &json!({ "type": "Recreate" }));
        let (new, old) = (set(0, 0), [set(2, 2)]);
        assert_eq!(scale(&recreate, &new, &old).into_iter().map(|(_, count)| count).collect::<Vec<_>>(), [0]);
        let (new, old) = (set(0, 0), [set(0, 0)]);
        assert_eq!(scale(&recreate, &new, &old).into_iter().map(|(_, count)| count).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn scaling_goes_at_once() {
        let new = set(2, 2);
        assert_eq!(scale(&spec(5, &careful()), &new, &[])[0].1, 5);
        assert_eq!(scale(&spec(0, &careful()), &new, &[])[0].1, 0);
    }
}
