//! PUT and PATCH requests, which compute the next state of an object.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::create::{judged, place_in_namespace};
use super::{Cluster, pod};
use crate::object::{Key, Object, carry, finalizers, is_empty, map_mut, meta, meta_mut};
use crate::patch::{self, Form};
use crate::status::Status;
use crate::table::{Resource, Trait};
use crate::version::{shown, stored};
use crate::{defaults, event, rules, validate};

/// The kind of a write.
pub(crate) enum Change {
    /// PUT: this object.
    Replace(Value),
    /// PATCH: the present object with these changes.
    Patch(Form, Vec<u8>),
}

/// The part of an object that a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status.
    Main,
    /// The status alone.
    Status,
}

/// Metadata that a write cannot change and need not repeat.
const KEPT: [&str; 5] =
    ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"];

impl Cluster {
    /// Writes the next state of an object. One that equals the present state is answered without a write.
    pub(crate) fn update(
        &mut self,
        resource: &Resource,
        at: &Key,
        part: Part,
        change: Change,
        dry_run: bool,
        now: Timestamp,
    ) -> Result<Object, Status> {
        let old = Arc::clone(self.get(resource, at)?);
        let replaces = matches!(change, Change::Replace(_));
        let wanted = match change {
            Change::Replace(body) => body,
            Change::Patch(form, patch) => patch::apply(form, resource, &shown(resource, &old), &patch)?,
        };
        let unreadable = |why: String| {
            if replaces {
                Status::bad_request(why)
            } else {
                Status::unreadable_patch(resource, &at.name, &why)
            }
        };
        let mut new = stored(resource, wanted).map_err(unreadable)?;
        validate::shape(&new).map_err(unreadable)?;
        place_in_namespace(resource, Some(&at.namespace), &mut new)?;
        guard(resource, at, &old, &mut new, replaces)?;
        keep_what_is_not_ours(resource, part, &old, &mut new);
        if !resource.has(Trait::Custom) {
            defaults::fill(&resource.kind, &mut new);
        }
        if &*resource.stored_as == "services" {
            defaults::carry_addresses(&old, &mut new);
        }
        self.allocate(resource, &mut new)?;
        judge(resource, at, &old, &new)?;
        count_generation(resource, &old, &mut new);
        meta_mut(&mut new).insert("resourceVersion".into(), old["metadata"]["resourceVersion"].clone());
        if new == *old {
            return Ok(old);
        }
        if dry_run {
            return Ok(Arc::new(new));
        }
        let ends = finalizers(&new).is_empty() && old["metadata"]["deletionGracePeriodSeconds"] == 0;
        let ends = ends && super::closing::may_end(&resource.stored_as, &new);
        let answer = if ends {
            self.remove(&resource.stored_as, at);
            Arc::new(new)
        } else {
            self.put(&resource.stored_as, at, new)
        };
        self.clean_up(now);
        Ok(answer)
    }
}

/// Name, uid and version of the request against those of the object.
fn guard(resource: &Resource, at: &Key, old: &Value, new: &mut Value, replaces: bool) -> Result<(), Status> {
    let version = meta(new, "resourceVersion");
    let (name, uid) = (meta(new, "name"), meta(new, "uid"));
    if !name.is_empty() && name != at.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            at.name
        )));
    }
    if replaces && !uid.is_empty() && uid != meta(old, "uid") {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            meta(old, "uid")
        );
        return Err(Status::conflict(resource, &at.name, &why));
    }
    if version.is_empty() && replaces && resource.has(Trait::VersionedPut) {
        let cause = crate::status::Cause::invalid(
            "metadata.resourceVersion",
            &0.into(),
            "must be specified for an update",
        );
        return Err(Status::invalid(resource, &at.name, &[cause]));
    }
    if !version.is_empty() && version != meta(old, "resourceVersion") {
        return Err(Status::stale(resource, &at.name));
    }
    let metadata = meta_mut(new);
    for field in ["name", "uid"] {
        if metadata.get(field).is_none_or(is_empty) {
            metadata.insert(field.into(), old["metadata"][field].clone());
        }
    }
    Ok(())
}

/// Takes over from the old object what this write may not touch.
fn keep_what_is_not_ours(resource: &Resource, part: Part, old: &Value, new: &mut Value) {
    let before = old["metadata"].as_object().expect("a stored object has metadata");
    let metadata = meta_mut(new);
    for field in KEPT {
        carry(before, metadata, field);
    }
    metadata.remove("managedFields");
    metadata.retain(|_, value| !is_empty(value));
    let whole = old.as_object().expect("a stored object is a map");
    if part == Part::Status {
        let fields = map_mut(new);
        let status = fields.remove("status");
        let metadata = fields.remove("metadata");
        fields.clone_from(whole);
        fields.remove("status");
        if let Some(status) = status {
            fields.insert("status".into(), status);
        }
        if let Some(metadata) = metadata.filter(|_| !resource.has(Trait::StatusKeepsMetadata)) {
            fields.insert("metadata".into(), metadata);
        }
        if resource.has(Trait::StatusKeepsLabels) {
            carry(before, meta_mut(new), "labels");
        }
    } else if resource.has(Trait::StatusSubresource) {
        carry(whole, map_mut(new), "status");
    }
}

fn judge(resource: &Resource, at: &Key, old: &Value, new: &Value) -> Result<(), Status> {
    let mut causes = validate::metadata_update(old, new);
    if causes.is_empty() {
        causes.extend(validate::metadata(resource, new));
        causes.extend(judged(resource, new));
        if !resource.has(Trait::Custom) {
            causes.extend(rules::update(&resource.kind, old, new));
        }
        if &*resource.stored_as == "events" {
            causes.extend(event::updated(resource, old, new));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(resource, &at.name, &causes)) }
}

/// The generation counts the changes of what is wanted: of all but metadata and status.
fn count_generation(resource: &Resource, old: &Value, new: &mut Value) {
    if !resource.has(Trait::Generation) {
        return;
    }
    let wanted = |object: &Value| {
        let mut fields = object.as_object().cloned().unwrap_or_default();
        fields.remove("metadata");
        if resource.has(Trait::StatusSubresource) {
            fields.remove("status");
        }
        fields
    };
    if wanted(old) != wanted(new) {
        pod::next_generation(new);
    }
}
