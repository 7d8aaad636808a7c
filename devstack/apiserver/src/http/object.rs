//! The verbs on objects, executed by the engine.

use std::sync::Arc;

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::call::Call;
use super::dry_run;
use super::sent::Sent;
use crate::engine::{Change, Cluster, DeleteOptions, Deleted, Listing, Part, Propagation, scale};
use crate::object::{Object, meta, meta_mut};
use crate::patch;
use crate::status::{self, Cause, Status};
use crate::table::Trait;

/// An answer that is not a refusal. It is written out when the cluster is unlocked again.
pub(super) struct Done {
    pub(super) code: StatusCode,
    content: Content,
}

enum Content {
    Fixed(Value),
    Object(Object),
    Page(Listing),
}

impl Done {
    fn ok(content: Content) -> Self {
        Self { code: StatusCode::OK, content }
    }

    /// The body in the form that was asked for.
    pub(super) fn body(&self, call: &Call) -> String {
        match &self.content {
            Content::Fixed(body) => body.to_string(),
            Content::Object(object) => call.form.object(&call.resource, object, call.now).to_string(),
            Content::Page(listing) => call.form.list(&call.resource, listing, call.now),
        }
    }
}

/// Does what the request asks for.
pub(super) fn perform(cluster: &mut Cluster, call: &Call, sent: &Sent<'_>) -> Result<Done, Status> {
    match call.subresource.as_deref() {
        None => on_object(cluster, call, sent),
        Some("status") if call.resource.has(Trait::StatusSubresource) => match call.verb {
            "get" => get(cluster, call),
            "update" | "patch" => write(cluster, call, sent, Part::Status),
            _ => Err(Status::method_not_allowed()),
        },
        Some("scale") if call.resource.has(Trait::Scale) => on_scale(cluster, call, sent),
        Some("binding") if call.resource.kind == "Pod" && call.verb == "create" => {
            let dry_run = dry_run(call)?;
            let body = cluster.bind(&call.resource, &call.key(), &sent.json()?, dry_run, call.now)?;
            Ok(Done { code: StatusCode::CREATED, content: Content::Fixed(body) })
        }
        Some("finalize") if call.resource.kind == "Namespace" && call.verb == "update" => cluster
            .finalize_namespace(&call.key(), &sent.json()?, dry_run(call)?, call.now)
            .map(|object| Done::ok(Content::Object(object))),
        Some(_) => Err(Status::no_such_path()),
    }
}

fn on_object(cluster: &mut Cluster, call: &Call, sent: &Sent<'_>) -> Result<Done, Status> {
    match call.verb {
        "get" => get(cluster, call),
        "list" => {
            let selector = call.query.selector(&call.resource)?;
            let listing =
                cluster.list(&call.resource, call.namespace.as_deref(), &selector, &call.query.list()?)?;
            Ok(Done::ok(Content::Page(listing)))
        }
        "create" if call.name.is_none() => create(cluster, call, sent.json()?),
        "update" | "patch" => write(cluster, call, sent, Part::Main),
        "delete" => delete(cluster, call, sent),
        "deletecollection" => delete_collection(cluster, call, sent),
        _ => Err(Status::method_not_allowed()),
    }
}

fn get(cluster: &Cluster, call: &Call) -> Result<Done, Status> {
    let object = cluster.get(&call.resource, &call.key())?;
    Ok(Done::ok(Content::Object(Arc::clone(object))))
}

/// Returns `true` if the query of a write other than a deletion requests a dry run.
fn dry_run(call: &Call) -> Result<bool, Status> {
    let options = match call.verb {
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        _ => "PatchOptions",
    };
    dry_run::wanted(call.query.values("dryRun"), options)
}

fn create(cluster: &mut Cluster, call: &Call, body: Value) -> Result<Done, Status> {
    let dry_run = dry_run(call)?;
    let object = cluster.create(&call.resource, call.namespace.as_deref(), body, dry_run, call.now)?;
    Ok(Done { code: StatusCode::CREATED, content: Content::Object(object) })
}

fn write(cluster: &mut Cluster, call: &Call, sent: &Sent<'_>, part: Part) -> Result<Done, Status> {
    let key = call.key();
    let dry_run = dry_run(call)?;
    let change = if call.verb == "patch" {
        let form = patch::Form::of(sent.content_type, &call.resource)?;
        Change::Patch(form, sent.bytes.to_vec())
    } else {
        let mut body = sent.json()?;
        let absent = cluster.get(&call.resource, &key).is_err();
        if absent && part == Part::Main && call.resource.has(Trait::CreateOnPut) {
            let uid = meta(&body, "uid");
            if !uid.is_empty() {
                let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: ");
                return Err(Status::conflict(&call.resource, &key.name, &why));
            }
            if meta(&body, "name").is_empty() {
                body["metadata"]["name"] = key.name.into();
            }
            // The version of an object that does not exist is ignored.
            meta_mut(&mut body).remove("resourceVersion");
            return create(cluster, call, body);
        }
        Change::Replace(body)
    };
    let object = cluster.update(&call.resource, &key, part, change, dry_run, call.now)?;
    Ok(Done::ok(Content::Object(object)))
}

fn on_scale(cluster: &mut Cluster, call: &Call, sent: &Sent<'_>) -> Result<Done, Status> {
    let key = call.key();
    let object = cluster.get(&call.resource, &key)?;
    let present = scale::of(&call.resource.scale, object);
    let wanted = match call.verb {
        "get" => return Ok(Done::ok(Content::Fixed(present))),
        "update" => sent.json()?,
        "patch" => {
            let form = patch::Form::of(sent.content_type, &call.resource)?;
            patch::apply(form, &call.resource, &present, sent.bytes)?
        }
        _ => return Err(Status::method_not_allowed()),
    };
    let next = scale::applied(&call.resource, object, &wanted)?;
    let dry_run = dry_run(call)?;
    let change = Change::Replace(next);
    let object = cluster.update(&call.resource, &key, Part::Main, change, dry_run, call.now)?;
    Ok(Done::ok(Content::Fixed(scale::of(&call.resource.scale, &object))))
}

/// The options of a deletion: from the body, or, where there is none, from the query. What the query says beside a body
/// is not looked at.
fn delete_options(call: &Call, sent: &Sent<'_>) -> Result<DeleteOptions, Status> {
    let options = if sent.bytes.is_empty() {
        let policy = call.query.text("propagationPolicy");
        DeleteOptions {
            grace_period_seconds: call
                .query
                .number("gracePeriodSeconds")?
                .and_then(|seconds| i64::try_from(seconds).ok()),
            propagation_policy: if policy.is_empty() { None } else { Some(propagation(&policy.into())?) },
            dry_run: call.query.values("dryRun").to_vec(),
            ..DeleteOptions::default()
        }
    } else {
        let body = sent.json()?;
        if !body["propagationPolicy"].is_null() {
            propagation(&body["propagationPolicy"])?;
        }
        serde_json::from_value(body)
            .map_err(|error| Status::bad_request(format!("the body is no DeleteOptions: {error}")))?
    };
    dry_run::wanted(&options.dry_run, "DeleteOptions")?;
    Ok(options)
}

fn propagation(policy: &Value) -> Result<Propagation, Status> {
    Propagation::deserialize(policy).map_err(|_| {
        let cause =
            Cause::unsupported("propagationPolicy", policy, &["Foreground", "Background", "Orphan", "nil"]);
        Status::invalid_kind("meta.k8s.io", "DeleteOptions", "", &[cause])
    })
}

fn delete(cluster: &mut Cluster, call: &Call, sent: &Sent<'_>) -> Result<Done, Status> {
    let options = delete_options(call, sent)?;
    let content = match cluster.delete(&call.resource, &call.key(), &options, call.now)? {
        Deleted::Gone(object) if !call.resource.has(Trait::EchoesDeleted) => {
            Content::Fixed(status::deleted(&call.resource, meta(&object, "name"), meta(&object, "uid")))
        }
        Deleted::Gone(object) | Deleted::Waits(object) => Content::Object(object),
    };
    Ok(Done::ok(content))
}

fn delete_collection(cluster: &mut Cluster, call: &Call, sent: &Sent<'_>) -> Result<Done, Status> {
    let options = delete_options(call, sent)?;
    let selector = call.query.selector(&call.resource)?;
    let listing = cluster.list(&call.resource, call.namespace.as_deref(), &selector, &call.query.list()?)?;
    cluster.delete_all(&call.resource, &listing.objects, &options, call.now)?;
    Ok(Done::ok(Content::Page(listing)))
}
