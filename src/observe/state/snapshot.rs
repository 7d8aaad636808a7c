//! The response of `/debug/state`, which `staffetta status` reads.
//!
//! Timestamps are in the format of RFC 3339, in UTC. Beside each timestamp, a field with the suffix `_seconds` contains the seconds
//! since or until that time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use staffetta_handler::{DriverId, Interest, Message, Phase, QueueEntry, Resolved, Undecodable};

use super::problems::{self, Problem};
use super::queue_counts::QueueCounts;
use super::requests::{BackgroundSummary, RequestSummary};
use super::timestamps::Now;
use super::{PhaseName, ScopedChain};
use crate::base::health::Condition;
use crate::engine::pipeline::{HandlerScope, Kept};
use crate::engine::watcher::{WatchCounts, WatchStatus};

/// The state of the controller at one moment.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StateSnapshot {
    /// The version of the program.
    pub(crate) version: String,
    /// The identity of this process among its replicas.
    pub(crate) identity: String,
    /// The state of the leader election.
    pub(crate) leadership: LeadershipSummary,
    /// The time at which the process started.
    pub(crate) started: String,
    /// The seconds since the process started.
    pub(crate) uptime_seconds: f64,
    /// `true` if all conditions of readiness are met.
    pub(crate) ready: bool,
    /// The conditions of readiness that are not met, with the reasons.
    pub(crate) waits: Vec<Condition>,
    /// The watch of each kind, ordered by the name of the kind.
    pub(crate) watches: Vec<WatchSummary>,
    /// The enabled handlers, in the order of the configuration.
    pub(crate) handlers: Vec<HandlerSummary>,
    /// What keeps the selected objects from being handled: those that fail or are stuck, also beyond the limit, by handler and reason. First
    /// those of most objects.
    #[serde(default)]
    pub(crate) problems: Vec<Problem>,
    /// The objects that the query selects and that were not handled successfully yet: first those with an error, beginning with the oldest
    /// failure, and then the others, beginning with those that have been in their phase for longest.
    pub(crate) objects: Vec<ObjectSummary>,
    /// The work in the background that fails for the object of the requested kind and name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) background: Vec<BackgroundSummary>,
    /// The number of selected objects that exceed the limit and are not listed.
    pub(crate) omitted: usize,
    /// The selected objects that cannot be decoded, up to the same limit. [`WatchSummary::undecodable`] counts all of them.
    pub(crate) undecodable: Vec<UndecodableSummary>,
    /// `true` if an object of the requested name is watched. Absent if no name was requested, or nothing is watched.
    pub(crate) known: Option<bool>,
    /// The error of reading the object of the query; absent if there was none, or if the query does not ask to explain the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unread: Option<String>,
    /// The other replicas whose state was [added](Self::merge): their identities, and when they started.
    #[serde(skip)]
    pub(crate) others: Vec<(String, String)>,
}

/// The time in one phase after which an object counts as stuck.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(5);

impl StateSnapshot {
    /// Removes all objects except those that fail or are stuck.
    pub(crate) fn retain_failing_and_stuck(&mut self) {
        self.objects
            .retain(|object| object.last_error.is_some() || object.since_seconds > STUCK_AFTER.as_secs_f64());
    }

    /// Adds the state of another replica, in which handlers that run in every replica act for objects of their own.
    pub(crate) fn merge(&mut self, other: Self) {
        self.background.extend(other.background);
        let identity = other.identity;
        self.others.push((identity.clone(), other.started));
        self.ready &= other.ready;
        let of_replica = |wait: Condition| Condition { name: format!("{identity}: {}", wait.name), ..wait };
        self.waits.extend(other.waits.into_iter().map(of_replica));
        for HandlerSummary { name, added, attempts, interest, counts, .. } in
            other.handlers.into_iter().filter(|handler| handler.in_every_replica)
        {
            let Some(ours) = self.handlers.iter_mut().find(|ours| ours.name == name) else { continue };
            ours.added += added;
            ours.attempts += attempts;
            ours.interest = ours.interest.take().or(interest);
            for (phase, count) in counts {
                *ours.counts.entry(phase).or_default() += count;
            }
        }
        let of_replica = |object| ObjectSummary { replica: Some(identity.clone()), ..object };
        self.objects.extend(other.objects.into_iter().map(of_replica));
        self.objects.sort_by(|one, other| {
            let healthy = |object: &ObjectSummary| object.last_error.is_none();
            healthy(one).cmp(&healthy(other)).then(other.age_seconds().total_cmp(&one.age_seconds()))
        });
        problems::merge(&mut self.problems, other.problems);
        self.omitted += other.omitted;
        for object in other.undecodable {
            if self.undecodable.iter().all(|ours| (&ours.kind, &ours.uid) != (&object.kind, &object.uid)) {
                self.undecodable.push(object);
            }
        }
        self.known = self.known.max(other.known);
        self.unread = self.unread.take().or(other.unread.map(|error| format!("{identity}: {error}")));
    }

    /// Adds an unmet condition, because the state of other replicas is missing: `replicas` names them, `reason` says why.
    pub(crate) fn add_missing_replicas(&mut self, replicas: String, reason: String) {
        self.ready = false;
        self.waits.push(Condition { name: replicas, reason: Some(reason) });
    }

    /// Returns the reason why the list of objects may be incomplete; `None` if it is complete.
    pub(crate) fn incomplete_reason(&self) -> Option<String> {
        if !self.leadership.leads {
            let role = &self.leadership.role;
            let handlers = self.handlers.iter().filter(|handler| handler.open).map(|handler| &*handler.name);
            let handlers: Vec<_> = handlers.collect();
            let handles =
                if handlers.is_empty() { "no objects".to_owned() } else { handlers.join(", ") + " only" };
            return Some(format!(
                "This process is not the leader ({role}) and handles {handles}; query the leader."
            ));
        }
        let all = self.ready && self.watches.iter().all(|watch| watch.listed);
        (!all).then(|| "Not all objects are known yet; see the unmet conditions above.".to_owned())
    }

    /// Returns `true` if the requested object is watched, and no handler has anything left to do for it; `false` also if the list of
    /// objects may be incomplete.
    pub(crate) fn is_handled(&self) -> bool {
        let nothing_left = self.objects.is_empty() && self.undecodable.is_empty();
        self.known == Some(true) && nothing_left && self.incomplete_reason().is_none()
    }

    /// Returns the number of selected objects that fail or are stuck, also beyond the limit, apart from those that cannot be decoded.
    pub(crate) fn failing_and_stuck(&self) -> usize {
        self.problems.iter().map(|problem| problem.objects).sum()
    }

    /// Returns the number of events in the queues of all handlers.
    pub(crate) fn queued_events(&self) -> usize {
        self.handlers.iter().flat_map(|handler| handler.counts.values()).sum()
    }
}

/// The state of the leader election.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeadershipSummary {
    /// The name of the lease.
    pub(crate) name: String,
    /// `true` if this process is the leader, or leader election is disabled.
    pub(crate) leads: bool,
    /// The role of this process, such as `leader`, `standby of NAME`, or `unopposed` without leader election.
    pub(crate) role: String,
    /// The number of renewals that needed more than one request.
    pub(crate) slow_renewals: u64,
    /// The number of times that this process was the leader and lost the lease.
    #[serde(default)]
    pub(crate) losses: u64,
}

/// The state of the watch of one kind.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WatchSummary {
    /// The watched kind.
    pub(crate) kind: String,
    /// `true` once all objects of the kind were delivered.
    pub(crate) listed: bool,
    /// The number of objects of the kind that exist, as far as the watch has reported.
    pub(crate) objects: usize,
    /// The number of objects of the kind that exist and cannot be decoded, so that no handler gets them.
    pub(crate) undecodable: usize,
    /// The number of `Added` events that were delivered since the watch began.
    pub(crate) added: u64,
    /// The number of delivered `Modified` events.
    pub(crate) modified: u64,
    /// The number of delivered `Deleted` events.
    pub(crate) deleted: u64,
    /// The number of complete lists of all objects.
    pub(crate) lists: u64,
    /// The number of failed lists and watches.
    pub(crate) errors: u64,
    /// The time at which the API server last accepted the watch, or sent an event or a bookmark in it. This version always sets it.
    pub(crate) said: Option<String>,
    /// The seconds since the time in `said`. This version always sets them.
    pub(crate) silent_seconds: Option<f64>,
    /// The seconds since the watch began: the time in which the counted events were delivered.
    #[serde(default)]
    pub(crate) seconds: f64,
    /// The last error; absent if the watch has worked since.
    pub(crate) error: Option<String>,
}

impl WatchSummary {
    /// Returns the number of delivered events.
    pub(crate) fn events(&self) -> u64 {
        self.added + self.modified + self.deleted
    }

    /// Converts the status of a watch, with its times relative to `now`.
    pub(super) fn new(watch: WatchStatus, now: Now) -> Self {
        let WatchCounts { events: [added, modified, deleted], lists, errors, last_error } = watch.counts;
        Self {
            kind: watch.kind.name.into_owned(),
            listed: watch.listed,
            objects: watch.objects,
            undecodable: watch.undecodable,
            added,
            modified,
            deleted,
            lists,
            errors,
            said: Some(now.rfc3339(watch.last_activity)),
            silent_seconds: Some(now.seconds_since(watch.last_activity)),
            seconds: now.seconds_since(watch.began),
            error: last_error,
        }
    }
}

/// The state of one enabled handler.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HandlerSummary {
    /// The name of the handler.
    pub(crate) name: String,
    /// The kinds of the objects that the handler handles.
    #[serde(default)]
    pub(crate) kinds: Vec<String>,
    /// The drivers that the handler uses.
    #[serde(default)]
    pub(crate) drivers: Vec<DriverId>,
    /// `true` if the handler runs in every replica, and not in the leader only.
    #[serde(default)]
    pub(crate) in_every_replica: bool,
    /// `true` once the handler receives events.
    pub(crate) open: bool,
    /// The conditions that are not met yet and must be met before the handler receives events.
    pub(crate) waits: Vec<String>,
    /// The number of events that were queued since the process started.
    #[serde(default)]
    pub(crate) added: u64,
    /// The number of attempts to handle an event since the process started.
    #[serde(default)]
    pub(crate) attempts: u64,
    /// The decision of the handler about the object of the query; absent unless the query asks to explain the object, it was read, and
    /// the handler handles its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interest: Option<InterestSummary>,
    /// The number of events in the queues of the handler, by phase.
    #[serde(flatten)]
    pub(crate) counts: BTreeMap<PhaseName, usize>,
}

/// The decision of a handler about an object: it wants the object, or the reason why not.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InterestSummary {
    /// `true` if the handler wants the object.
    pub(crate) taken: bool,
    /// The reason why the handler does not want the object, or does not do everything for it; absent otherwise.
    pub(crate) reason: Option<String>,
}

impl From<Interest> for InterestSummary {
    fn from(interest: Interest) -> Self {
        Self { taken: interest.is_taken(), reason: interest.reason().map(str::to_owned) }
    }
}

impl HandlerSummary {
    /// Describes the enabled handler `name`: its scope and its chain, if it is set up, and the numbers of its queued events and attempts.
    pub(super) fn new(name: &str, running: Option<ScopedChain>, (added, attempts): (u64, u64)) -> Self {
        let (scope, handler) = running.unzip();
        let waits = handler.as_ref().map(|handler| handler.unmet_prerequisites());
        let waits = waits.unwrap_or_else(|| vec!["it is not set up yet".to_owned()]);
        let counts = QueueCounts::of(handler.as_ref().map(|handler| &handler.chain));
        let handler = handler.as_ref().map(|handler| &handler.registration);
        Self {
            name: name.to_owned(),
            kinds: handler
                .iter()
                .flat_map(|handler| handler.kinds())
                .map(|kind| kind.name.to_string())
                .collect(),
            drivers: handler.map(|handler| handler.drivers.clone()).unwrap_or_default(),
            in_every_replica: scope == Some(HandlerScope::EveryReplica),
            open: waits.is_empty(),
            waits,
            added,
            attempts,
            interest: None,
            counts: counts.by_phase,
        }
    }
}

/// An object that a handler has not handled successfully yet.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectSummary {
    /// The name of the handler.
    pub(crate) handler: String,
    /// The identity of the replica in whose queues the object is; absent for that of this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) replica: Option<String>,
    /// The kind of the object.
    pub(crate) kind: String,
    /// The namespace of the object; absent for a cluster-scoped object.
    pub(crate) namespace: Option<String>,
    /// The name of the object.
    pub(crate) name: String,
    /// The UID of the object.
    pub(crate) uid: String,
    /// The type of the event: `added`, `modified` or `deleted`.
    pub(crate) change: String,
    /// The phase in the queues of the handler: `held`, `queued`, `running`, `retrying` or `failed`.
    pub(crate) phase: String,
    /// The time at which the phase began.
    pub(crate) since: String,
    /// The seconds since the phase began.
    pub(crate) since_seconds: f64,
    /// The time of the next attempt; absent if the object does not wait for one.
    pub(crate) next: Option<String>,
    /// The seconds until the next attempt; absent if the object does not wait for one.
    pub(crate) next_seconds: Option<f64>,
    /// The last error since the object was last handled successfully; absent if there was none.
    pub(crate) last_error: Option<ErrorSummary>,
    /// The last requests that failed attempts to handle the object sent to external systems and to the Kubernetes API. Present only if the
    /// query contains a name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) requests: Vec<RequestSummary>,
}

impl ObjectSummary {
    /// Returns `true` if the retries have ended without success, or if the object has failed or been in its phase for more than five
    /// seconds.
    pub(crate) fn is_failed_or_stuck(&self) -> bool {
        self.phase == PhaseName::Failed.as_str() || self.age_seconds() > STUCK_AFTER.as_secs_f64()
    }

    /// Returns the age of the failure or, if the object does not fail, of its phase, in seconds. The phase of a failing object changes with
    /// each attempt.
    pub(crate) fn age_seconds(&self) -> f64 {
        self.last_error.as_ref().map_or(self.since_seconds, |last_error| last_error.since_seconds)
    }

    /// Converts an entry of the queues of `handler`, with its times relative to `now`, and with its requests if `with_requests` is `true`.
    pub(super) fn new(handler: &str, entry: &QueueEntry<Resolved>, with_requests: bool, now: Now) -> Self {
        let next = match entry.phase {
            Phase::Retrying { at } | Phase::Failed { at } => Some(at),
            Phase::Held | Phase::Queued | Phase::Running => None,
        };
        let note = entry.note().filter(|_| with_requests);
        let kept = note.and_then(|note| note.downcast_ref::<Kept>()?.requests.as_ref());
        let object_ref = entry.event.object_ref();
        let requests = kept.map(|kept| kept.log.requests()).unwrap_or_default();
        Self {
            handler: handler.to_owned(),
            replica: None,
            kind: object_ref.kind.to_string(),
            namespace: object_ref.namespace.map(str::to_owned),
            name: object_ref.name.to_owned(),
            uid: object_ref.uid.to_owned(),
            change: entry.event.change().name().to_owned(),
            phase: PhaseName::from(entry.phase).as_str().to_owned(),
            since: now.rfc3339(entry.since),
            since_seconds: now.seconds_since(entry.since),
            next: next.map(|next| now.rfc3339(next)),
            next_seconds: next.map(|next| now.seconds_until(next)),
            last_error: entry.last_error().map(|last_error| ErrorSummary {
                error: last_error.error.to_string(),
                reason: last_error.reason.to_owned(),
                attempts: last_error.attempts,
                since: now.rfc3339(last_error.since),
                since_seconds: now.seconds_since(last_error.since),
            }),
            requests: requests.into_iter().map(|request| RequestSummary::new(request, now)).collect(),
        }
    }
}

/// The last error of an object since it was last handled successfully.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorSummary {
    /// The error with its causes.
    pub(crate) error: String,
    /// The reason of the error in one `CamelCase` word, such as `QuotaExceeded`.
    pub(crate) reason: String,
    /// The number of failed attempts since the object was last handled successfully.
    pub(crate) attempts: u32,
    /// The time of the first failed attempt since the object was last handled successfully.
    pub(crate) since: String,
    /// The seconds since the first failed attempt.
    pub(crate) since_seconds: f64,
}

/// An object that cannot be decoded.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UndecodableSummary {
    /// The kind of the object.
    pub(crate) kind: String,
    /// The namespace of the object; absent for a cluster-scoped object.
    pub(crate) namespace: Option<String>,
    /// The name of the object.
    pub(crate) name: String,
    /// The UID of the object.
    pub(crate) uid: String,
    /// The error of the decoder.
    pub(crate) error: String,
}

impl From<Undecodable> for UndecodableSummary {
    fn from(Undecodable { identity, error }: Undecodable) -> Self {
        Self {
            kind: identity.kind.into_owned(),
            namespace: identity.namespace,
            name: identity.name,
            uid: identity.uid,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot(identity: &str, unread: Option<&str>) -> StateSnapshot {
        serde_json::from_value(json!({
            "version": "0.1.0", "identity": identity, "started": "2026-11-21T14:00:00.000Z", "uptimeSeconds": 1.0,
            "leadership": { "name": "staffetta", "leads": true, "role": "leader", "slowRenewals": 0 },
            "ready": true, "waits": [], "watches": [], "handlers": [], "objects": [], "omitted": 0,
            "undecodable": [], "unread": unread,
        }))
        .unwrap()
    }

    #[test]
    fn an_object_that_another_replica_cannot_read_is_reported_with_the_name_of_the_replica() {
        for (ours, expected) in [(None, "web-2: 403"), (Some("timeout"), "timeout")] {
            let mut joined = snapshot("web-1", ours);
            joined.merge(snapshot("web-2", Some("403")));
            joined.merge(snapshot("web-3", Some("404")));
            assert_eq!(joined.unread.as_deref(), Some(expected));
        }
    }
}
