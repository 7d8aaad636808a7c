//! DELETE requests: preconditions, grace periods and finalizers.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::pod::{self, Grace};
use super::{Cluster, closing};
use crate::object::{Key, Object, finalizers, list, map_mut, meta, meta_mut, seconds, terminating};
use crate::status::Status;
use crate::table::{Resource, Trait};

/// The body of a DELETE, or its query.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeleteOptions {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) preconditions: Option<Preconditions>,
    pub(crate) propagation_policy: Option<Propagation>,
    pub(crate) orphan_dependents: Option<bool>,
    /// `All`, or nothing.
    #[serde(default)]
    pub(crate) dry_run: Vec<String>,
}

/// The preconditions of a deletion.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preconditions {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// The propagation policy for dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Propagation {
    /// They follow.
    Background,
    /// They go first.
    Foreground,
    /// They stay, without the owner.
    Orphan,
}

/// The result of a DELETE.
pub(crate) enum Deleted {
    /// The object is gone; this is what it was.
    Gone(Object),
    /// The object waits for its grace period or its finalizers.
    Waits(Object),
}

impl DeleteOptions {
    fn propagation(&self) -> Option<Propagation> {
        let orphan = self
            .orphan_dependents
            .map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background });
        self.propagation_policy.or(orphan)
    }

    fn check(&self, resource: &Resource, object: &Value) -> Result<(), Status> {
        let Some(wanted) = &self.preconditions else { return Ok(()) };
        let name = meta(object, "name");
        let (uid, version) = (meta(object, "uid"), meta(object, "resourceVersion"));
        if let Some(wanted) = wanted.uid.as_deref().filter(|wanted| *wanted != uid) {
            let why = format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
            );
            return Err(Status::conflict(resource, name, &why));
        }
        if let Some(wanted) = wanted.resource_version.as_deref().filter(|wanted| *wanted != version) {
            let why = format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
            );
            return Err(Status::conflict(resource, name, &why));
        }
        Ok(())
    }
}

impl Cluster {
    /// Deletes an object, or marks it so that others can let go of it first.
    pub(crate) fn delete(
        &mut self,
        resource: &Resource,
        at: &Key,
        options: &DeleteOptions,
        now: Timestamp,
    ) -> Result<Deleted, Status> {
        let deleted = self.delete_one(resource, at, options, now)?;
        self.clean_up(now);
        Ok(deleted)
    }

    /// DELETE of a collection: what was selected, as it stood.
    pub(crate) fn delete_all(
        &mut self,
        resource: &Resource,
        objects: &[Object],
        options: &DeleteOptions,
        now: Timestamp,
    ) -> Result<(), Status> {
        for object in objects {
            self.delete_one(resource, &crate::object::key(object), options, now)?;
        }
        self.clean_up(now);
        Ok(())
    }

    pub(super) fn delete_one(
        &mut self,
        resource: &Resource,
        at: &Key,
        options: &DeleteOptions,
        now: Timestamp,
    ) -> Result<Deleted, Status> {
        let old = Arc::clone(self.get(resource, at)?);
        options.check(resource, &old)?;
        let mut marked = Value::clone(&old);
        let grace = if resource.has(Trait::Graceful) {
            match pod::mark(&mut marked, options.grace_period_seconds, now) {
                Grace::Pending => return Ok(Deleted::Waits(old)),
                Grace::Owned(period) => Some(period),
            }
        } else {
            None
        };
        if !terminating(&old) {
            propagate(options.propagation(), &mut marked);
        }
        let held = !finalizers(&marked).is_empty() || !closing::may_end(&resource.stored_as, &marked);
        if held && grace.is_none() {
            mark_at_once(&mut marked, &resource.stored_as, now);
            closing::announce(&resource.stored_as, &mut marked);
        }
        if !options.dry_run.is_empty() {
            return Ok(if held { Deleted::Waits(Arc::new(marked)) } else { Deleted::Gone(old) });
        }
        let mut last = Arc::clone(&old);
        if marked != *old {
            last = self.put(&resource.stored_as, at, marked);
        }
        if held || grace.is_some_and(|period| period > 0) {
            return Ok(Deleted::Waits(last));
        }
        self.remove(&resource.stored_as, at);
        Ok(Deleted::Gone(last))
    }
}

/// An object that something holds and that knows no grace says so in its metadata.
fn mark_at_once(object: &mut Value, place: &str, now: Timestamp) {
    if terminating(object) {
        return;
    }
    if closing::may_end(place, object) {
        pod::next_generation(object);
    }
    let metadata = meta_mut(object);
    metadata.insert("deletionTimestamp".into(), seconds(now).into());
    metadata.insert("deletionGracePeriodSeconds".into(), json!(0));
}

/// Foreground and orphan deletion are finalizers that the garbage collector takes away.
fn propagate(propagation: Option<Propagation>, object: &mut Value) {
    let Some(propagation) = propagation else { return };
    let mut left: Vec<_> = list(&object["metadata"]["finalizers"]).to_vec();
    left.retain(|finalizer| *finalizer != closing::ORPHAN && *finalizer != closing::FOREGROUND);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => left.push(closing::FOREGROUND.into()),
        Propagation::Orphan => left.push(closing::ORPHAN.into()),
    }
    let metadata = map_mut(&mut object["metadata"]);
    if left.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), left.into());
    }
}
