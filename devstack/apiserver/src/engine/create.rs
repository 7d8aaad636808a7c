//! POST requests, which create objects.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Cluster, NAMESPACES};
use crate::object::{Key, Object, is_empty, key, meta, meta_mut, seconds, terminating};
use crate::status::{Cause, Status};
use crate::table::{Resource, Trait};
use crate::version::stored;
use crate::{custom, defaults, event, random, rules, validate};

/// Fields of the metadata that only the server writes.
const SERVER_FIELDS: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "managedFields",
];

impl Cluster {
    /// Creates an object. With `dry_run` the answer is the same and nothing is stored.
    pub(crate) fn create(
        &mut self,
        resource: &Resource,
        namespace: Option<&str>,
        body: Value,
        dry_run: bool,
        now: Timestamp,
    ) -> Result<Object, Status> {
        let mut object = self.prepare(resource, namespace, body, now)?;
        let at = key(&object);
        if self.store.get(&resource.stored_as, &at).is_some() {
            return Err(Status::already_exists(resource, &at.name));
        }
        self.allocate(resource, &mut object)?;
        if dry_run {
            return Ok(Arc::new(object));
        }
        let object = self.put(&resource.stored_as, &at, object);
        if &*resource.stored_as == NAMESPACES {
            self.default_service_account(&at.name, now)?;
        }
        self.collect_if_orphaned(resource, &object, now);
        self.clean_up(now);
        Ok(object)
    }

    /// The object as it would be stored.
    fn prepare(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        body: Value,
        now: Timestamp,
    ) -> Result<Value, Status> {
        let mut object = stored(resource, body).map_err(Status::bad_request)?;
        validate::shape(&object).map_err(Status::bad_request)?;
        if !meta(&object, "resourceVersion").is_empty() {
            return Err(Status::unexplained("resourceVersion should not be set on objects to be created"));
        }
        place_in_namespace(resource, namespace, &mut object)?;
        let metadata = meta_mut(&mut object);
        metadata.retain(|field, value| !SERVER_FIELDS.contains(&field.as_str()) && !is_empty(value));
        let prefix = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !metadata.contains_key("name") {
            if prefix.is_empty() {
                let cause = Cause::required("metadata.name", "name or generateName is required");
                return Err(Status::invalid(resource, "", &[cause]));
            }
            metadata.insert("name".into(), format!("{prefix}{}", random::suffix()).into());
        }
        metadata.insert("uid".into(), random::uid().into());
        metadata.insert("creationTimestamp".into(), seconds(now).into());
        if resource.has(Trait::Generation) {
            metadata.insert("generation".into(), json!(1));
        }
        if !resource.has(Trait::Custom) {
            defaults::fill(&resource.kind, &mut object);
            defaults::admit(&resource.kind, &mut object);
        }
        first_status(resource, &mut object, now);
        let name = meta(&object, "name");
        let mut causes = validate::metadata(resource, &object);
        causes.extend(judged(resource, &object));
        if &*resource.stored_as == "events" {
            causes.extend(event::created(resource, &object));
        }
        if !causes.is_empty() {
            return Err(Status::invalid(resource, name, &causes));
        }
        if resource.has(Trait::Namespaced) {
            self.namespace_takes(resource, meta(&object, "namespace"), name)?;
        }
        Ok(object)
    }

    /// New objects need a namespace that is there to stay.
    fn namespace_takes(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), Status> {
        let Some(found) = self.store.get(NAMESPACES, &Key::new("", namespace)) else {
            let message = format!("namespaces \"{namespace}\" not found");
            return Err(Status::of_code(404, message).about(namespace, "", NAMESPACES));
        };
        if terminating(found) {
            let cause = json!({
                "reason": "NamespaceTerminating", "field": "metadata.namespace",
                "message": format!("namespace {namespace} is being terminated"),
            });
            let message = format!(
                "{} \"{name}\" is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
                resource.qualified()
            );
            return Err(Status::of_code(403, message)
                .about(name, &resource.group, &resource.plural)
                .detail("causes", json!([cause])));
        }
        Ok(())
    }

    /// Gives a service its addresses.
    pub(super) fn allocate(&self, resource: &Resource, object: &mut Value) -> Result<(), Status> {
        if &*resource.stored_as != "services" {
            return Ok(());
        }
        let others = self.store.list(&resource.stored_as, None);
        defaults::allocate_addresses(object, &others)
            .ok_or_else(|| Status::of_code(500, "no cluster IP or node port is left"))
    }

    fn default_service_account(&mut self, namespace: &str, now: Timestamp) -> Result<(), Status> {
        let accounts = crate::table::builtin("", "serviceaccounts");
        let body = json!({"metadata": {"name": "default", "namespace": namespace}});
        self.create(&accounts, Some(namespace), body, false, now).map(drop)
    }
}

/// Holds the namespace of the body against that of the path.
pub(super) fn place_in_namespace(
    resource: &Resource,
    namespace: Option<&str>,
    object: &mut Value,
) -> Result<(), Status> {
    if !resource.has(Trait::Namespaced) {
        meta_mut(object).remove("namespace");
        return Ok(());
    }
    let wanted = namespace.unwrap_or_default();
    if !["", wanted].contains(&meta(object, "namespace")) {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    meta_mut(object).insert("namespace".into(), wanted.into());
    Ok(())
}

/// The mistakes in what is special to the kind.
pub(super) fn judged(resource: &Resource, object: &Value) -> Vec<Cause> {
    if resource.has(Trait::Custom) { Vec::new() } else { rules::object(&resource.kind, object) }
}

/// A node tells its status when it registers; of all others the server decides how they start.
fn first_status(resource: &Resource, object: &mut Value, now: Timestamp) {
    if !resource.has(Trait::StatusSubresource) || resource.kind == "Node" {
        return;
    }
    let first = if resource.has(Trait::Custom) {
        None
    } else if resource.kind == "CustomResourceDefinition" {
        Some(custom::established(object, now))
    } else {
        defaults::initial_status(&resource.kind, object)
    };
    let fields = crate::object::map_mut(object);
    fields.remove("status");
    if let Some(first) = first {
        fields.insert("status".into(), first);
    }
}
