//! Puts together what `/debug/state` answers.

use staffetta_handler::{Change, Phase, Standing};

use super::clock::Now;
use super::document::{Document, Handler, Object, Trouble, Undecodable, Waits, Watch};
use super::query::{PhaseName, Query};
use super::{HandlerSight, State};
use crate::watcher::Sight;

impl State {
    /// How the program is at this moment, and the objects that `query` asks for.
    pub(crate) fn document(&self, query: &Query) -> Document {
        let now = Now::read();
        let conditions = self.health.conditions();
        let waits: Vec<_> = conditions
            .into_iter()
            .filter_map(|condition| Some(Waits { name: condition.name, reason: condition.reason? }))
            .collect();
        let (objects, omitted) = self.objects(query, now);
        Document {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            identity: self.identity.clone(),
            leadership: self.leadership(),
            started: now.words(self.started),
            uptime_seconds: now.seconds_since(self.started),
            ready: waits.is_empty(),
            waits,
            watches: self.watches().into_iter().map(|sight| self.watch(sight, now)).collect(),
            handlers: self.handlers().into_iter().map(handler).collect(),
            objects,
            omitted,
            undecodable: undecodable(query, &self.undecodable()),
            known: self.knows(query),
        }
    }

    fn watch(&self, sight: Sight, now: Now) -> Watch {
        let said = self.figures.silence.last_heard(&sight.kind.path);
        let [added, modified, deleted] = sight.so_far.events;
        Watch {
            kind: sight.kind.name.into_owned(),
            listed: sight.listed,
            objects: sight.objects,
            undecodable: sight.undecodable,
            added,
            modified,
            deleted,
            lists: sight.so_far.lists,
            errors: sight.so_far.errors,
            said: said.map(|said| now.words(said)),
            silent_seconds: said.map(|said| now.seconds_since(said)),
            error: sight.so_far.trouble,
        }
    }

    /// The objects that fit, and how many more of them there are.
    fn objects(&self, query: &Query, now: Now) -> (Vec<Object>, usize) {
        let Some(pipeline) = self.pipeline() else { return Default::default() };
        let asked = |name: &str| query.handler.as_deref().is_none_or(|wanted| wanted == name);
        let (mut found, mut count) = (Vec::new(), 0);
        for relay in pipeline.relays().iter().filter(|relay| asked(&relay.name)) {
            let before = found.len();
            if query.takes_all() {
                let standings = relay.standings(query.limit());
                count += relay.tally().total().max(standings.len());
                found.extend(standings.into_iter().map(|standing| (relay.name.as_str(), standing)));
            } else {
                let fitting = relay.standings(usize::MAX).into_iter().filter(|standing| query.fits(standing));
                found.extend(fitting.map(|standing| (relay.name.as_str(), standing)));
                count += found.len() - before;
            }
        }
        found.sort_by_key(|(_, standing)| rank(standing));
        found.truncate(query.limit());
        let omitted = count - found.len();
        (found.into_iter().map(|(handler, standing)| object(handler, standing, now)).collect(), omitted)
    }
}

/// Who is told of first is smaller: those in trouble, the oldest first; then the others, the oldest first.
fn rank(standing: &Standing) -> (bool, tokio::time::Instant) {
    let trouble = standing.trouble.as_ref();
    (trouble.is_none(), trouble.map_or(standing.since, |trouble| trouble.since))
}

/// Those that fit. An object that cannot be decoded belongs to no handler and is in no phase.
fn undecodable(query: &Query, objects: &[staffetta_handler::Undecodable]) -> Vec<Undecodable> {
    if query.handler.is_some() || query.phase.is_some() {
        return Vec::new();
    }
    let fitting = objects.iter().filter(|object| query.names(&object.identity.subject()));
    let shown = fitting.map(|staffetta_handler::Undecodable { identity, error }| Undecodable {
        kind: identity.kind.clone().into_owned(),
        namespace: identity.namespace.clone(),
        name: identity.name.clone(),
        uid: identity.uid.clone(),
        error: error.clone(),
    });
    shown.take(query.limit()).collect()
}

fn handler(sight: HandlerSight) -> Handler {
    let tally = sight.tally;
    Handler {
        name: sight.name,
        open: sight.waits.is_empty(),
        waits: sight.waits,
        held: tally.held,
        queued: tally.queued,
        running: tally.running,
        retrying: tally.retrying,
        failed: tally.failed,
    }
}

fn object(handler: &str, standing: Standing, now: Now) -> Object {
    let next = match standing.phase {
        Phase::Retrying { at } | Phase::Failed { at } => Some(at),
        Phase::Held | Phase::Queued | Phase::Running => None,
    };
    Object {
        handler: handler.to_owned(),
        kind: standing.kind.into_owned(),
        namespace: standing.namespace,
        name: standing.name,
        uid: standing.uid,
        change: Change::name(standing.change).to_owned(),
        phase: PhaseName::from(standing.phase).as_str().to_owned(),
        since: now.words(standing.since),
        since_seconds: now.seconds_since(standing.since),
        next: next.map(|next| now.words(next)),
        next_seconds: next.map(|next| now.seconds_until(next)),
        trouble: standing.trouble.map(|trouble| Trouble {
            error: trouble.error.to_string(),
            reason: trouble.reason.to_owned(),
            attempts: trouble.attempts,
            since: now.words(trouble.since),
            since_seconds: now.seconds_since(trouble.since),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;
    use staffetta_handler::Identity;
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn of_those_that_cannot_be_decoded_no_more_are_told_than_asked_for() {
        let object = |name: &str| staffetta_handler::Undecodable {
            identity: Identity::of::<Pod>(Some("default".into()), name.into(), name.into()),
            error: "odd".into(),
        };
        let objects = ["a", "b", "c"].map(object);
        let shown = |query: Query| {
            undecodable(&query, &objects).into_iter().map(|object| object.name).collect::<Vec<_>>()
        };
        assert_eq!(shown(Query { limit: Some(2), ..Query::default() }), ["a", "b"]);
        assert_eq!(shown(Query { limit: Some(1), name: Some("c".into()), ..Query::default() }), ["c"]);
        assert!(shown(Query { handler: Some("vif".into()), ..Query::default() }).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn those_in_trouble_come_first_and_of_all_others_the_oldest() {
        let now = Instant::now();
        let standing = |name: &str, since: u64, trouble: Option<u64>| Standing {
            kind: "Pod".into(),
            namespace: None,
            name: name.into(),
            uid: name.into(),
            change: Change::Added,
            phase: Phase::Running,
            since: now + Duration::from_secs(since),
            trouble: trouble.map(|since| staffetta_handler::Trouble {
                error: "no address".into(),
                reason: "NoAddress",
                attempts: 1,
                since: now + Duration::from_secs(since),
            }),
        };
        let mut standings = [
            standing("well for long", 0, None),
            standing("well", 9, None),
            standing("in trouble", 2, Some(4)),
            standing("in trouble for long", 5, Some(3)),
        ];
        standings.sort_by_key(rank);
        let names = standings.map(|standing| standing.name);
        assert_eq!(names, ["in trouble for long", "in trouble", "well for long", "well"]);
    }
}
