//! What keeps objects from being handled: those that fail or are stuck, grouped by handler and reason.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use staffetta_handler::{Message, QueueEntry, Resolved};
use tokio::time::Instant;

use super::remedy::remedy;
use super::snapshot::STUCK_AFTER;
use super::timestamps::Now;
use super::{PhaseName, full_name};

/// Objects of one handler that fail or wait for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Problem {
    /// The reason of their errors in one `CamelCase` word, such as `QuotaExceeded`; for objects without an error, that have been in one
    /// phase for more than five seconds, the phase.
    pub(crate) reason: String,
    /// The name of the handler.
    pub(crate) handler: String,
    /// The number of objects.
    pub(crate) objects: usize,
    /// The time since which the first of them fails or is in its phase.
    pub(crate) since: String,
    /// The seconds since that time.
    pub(crate) since_seconds: f64,
    /// The kind and the name of that object, such as `Pod shop/web-1`.
    pub(crate) example: String,
    /// The last error of that object; absent if it has none.
    pub(crate) error: Option<String>,
    /// What would help, from the table of reasons in `docs/events.md`; absent for a reason that it does not contain.
    pub(crate) remedy: Option<String>,
}

/// Collects the problems of a controller from the entries of its queues.
#[derive(Default)]
pub(super) struct Problems<'h> {
    groups: BTreeMap<(&'h str, &'static str), Group>,
}

/// The objects of one problem.
struct Group {
    objects: usize,
    since: Instant,
    example: String,
    error: Option<String>,
}

impl<'h> Problems<'h> {
    /// Adds an object of `handler` if it fails or is stuck. Work that is not finished yet is stuck after the same time.
    pub(super) fn add(&mut self, handler: &'h str, entry: &QueueEntry<Resolved>) {
        let error = entry.last_error();
        let since = error.map_or(entry.since, |error| error.since);
        if entry.failing_since().is_none() && since.elapsed() <= STUCK_AFTER {
            return;
        }
        let reason = error.map_or_else(|| PhaseName::from(entry.phase).as_str(), |error| error.reason);
        let group = self.groups.entry((handler, reason)).or_insert_with(|| Group {
            objects: 0,
            since,
            example: String::new(),
            error: None,
        });
        group.objects += 1;
        if group.example.is_empty() || since < group.since {
            let object = entry.event.object_ref();
            group.since = since;
            group.example = format!("{} {}", object.kind, full_name(object.namespace, object.name));
            group.error = error.map(|error| error.error.to_string());
        }
    }

    /// Returns the problems: first those of most objects.
    pub(super) fn list(self, now: Now) -> Vec<Problem> {
        let problem = |((handler, reason), group): ((&str, &str), Group)| Problem {
            reason: reason.to_owned(),
            handler: handler.to_owned(),
            objects: group.objects,
            since: now.rfc3339(group.since),
            since_seconds: now.seconds_since(group.since),
            example: group.example,
            error: group.error,
            remedy: remedy(reason).map(|(_, remedy)| remedy),
        };
        let mut problems: Vec<_> = self.groups.into_iter().map(problem).collect();
        sort(&mut problems);
        problems
    }
}

/// Adds the problems of another replica to `ours`.
pub(super) fn merge(ours: &mut Vec<Problem>, others: Vec<Problem>) {
    for other in others {
        let is_same = |ours: &&mut Problem| (&ours.handler, &ours.reason) == (&other.handler, &other.reason);
        let Some(same) = ours.iter_mut().find(is_same) else {
            ours.push(other);
            continue;
        };
        let objects = same.objects + other.objects;
        if other.since_seconds > same.since_seconds {
            *same = other;
        }
        same.objects = objects;
    }
    sort(ours);
}

/// Sorts problems by the number of their objects, in descending order.
fn sort(problems: &mut [Problem]) {
    problems.sort_by_key(|problem| std::cmp::Reverse(problem.objects));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(reason: &str, objects: usize, since_seconds: f64) -> Problem {
        Problem {
            reason: reason.to_owned(),
            handler: "vif".to_owned(),
            objects,
            since: String::new(),
            since_seconds,
            example: format!("Pod {since_seconds}"),
            error: None,
            remedy: None,
        }
    }

    #[test]
    fn problems_of_replicas_are_added_and_the_oldest_object_is_the_example() {
        let mut ours = vec![problem("NoAddress", 2, 5.0), problem("TimedOut", 1, 9.0)];
        merge(
            &mut ours,
            vec![problem("TimedOut", 3, 7.0), problem("NoAddress", 1, 30.0), problem("x", 9, 1.0)],
        );
        let merged: Vec<_> =
            ours.iter().map(|problem| (&*problem.reason, problem.objects, &*problem.example)).collect();
        assert_eq!(merged, [("x", 9, "Pod 1"), ("TimedOut", 4, "Pod 9"), ("NoAddress", 3, "Pod 30")]);
    }
}
