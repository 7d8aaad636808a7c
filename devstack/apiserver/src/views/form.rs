//! The form of a response: complete objects, only their metadata, or rows of a table.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::printer;
use crate::engine::Listing;
use crate::status::Status;
use crate::table::{Resource, Trait};
use crate::version::shown;

/// The representation that the Accept header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// Rows for a terminal, each with as much of its object as the query says.
    Table(Include),
}

/// The part of the object in a row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    /// The metadata.
    Metadata,
    /// All of it.
    Object,
    /// Nothing.
    None,
}

impl Form {
    /// The first form of the Accept header that can be served.
    pub(crate) fn of(accept: &str, include: &str) -> Result<Self, Status> {
        let include = match include {
            "" | "Metadata" => Include::Metadata,
            "Object" => Include::Object,
            "None" => Include::None,
            other => {
                return Err(Status::bad_request(format!(
                    "includeObject: {other:?} is none of None, Metadata, Object"
                )));
            }
        };
        if accept.trim().is_empty() {
            return Ok(Self::Whole);
        }
        let form = accept.split(',').find_map(|offer| {
            let mut parts = offer.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            if !["application/json", "application/*", "*/*"].contains(&media_type) {
                return None;
            }
            let parts: Vec<_> = parts.collect();
            match parts.iter().find_map(|part| part.strip_prefix("as=")) {
                None => Some(Self::Whole),
                Some("Table") if parts.contains(&"v=v1") => Some(Self::Table(include)),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Self::Metadata),
                Some(_) => None,
            }
        });
        form.ok_or_else(|| {
            Status::of_code(
                406,
                "only the following media types are accepted: application/json, application/json;as=Table;v=v1;g=meta.k8s.io, application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            )
        })
    }

    /// One object in this form.
    pub(crate) fn object<'a>(self, resource: &Resource, stored: &'a Value, now: Timestamp) -> Cow<'a, Value> {
        match self {
            Self::Whole => shown(resource, stored),
            Self::Metadata => Cow::Owned(partial(stored)),
            Self::Table(include) => {
                let version = json!({"resourceVersion": stored["metadata"]["resourceVersion"]});
                Cow::Owned(table(resource, &[stored], include, &version, now))
            }
        }
    }

    /// A page of a list in this form, written out.
    pub(crate) fn list(self, resource: &Resource, listing: &Listing, now: Timestamp) -> String {
        let mut metadata = json!({"resourceVersion": listing.revision.to_string()});
        if let Some((token, left)) = &listing.next {
            metadata["continue"] = token.as_str().into();
            if let Some(left) = left {
                metadata["remainingItemCount"] = (*left).into();
            }
        }
        let objects = || listing.objects.iter().map(|object| &**object);
        match self {
            Self::Table(include) => {
                table(resource, &objects().collect::<Vec<_>>(), include, &metadata, now).to_string()
            }
            Self::Metadata => {
                let items = objects().map(|object| partial(object).to_string());
                page("PartialObjectMetadataList", "meta.k8s.io/v1", &metadata, items)
            }
            Self::Whole => {
                let items = objects().map(|object| item(resource, object));
                page(&resource.list_kind, &resource.api_version(), &metadata, items)
            }
        }
    }
}

fn page(kind: &str, api_version: &str, metadata: &Value, items: impl Iterator<Item = String>) -> String {
    let mut body =
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":[");
    for (index, item) in items.enumerate() {
        if index > 0 {
            body.push(',');
        }
        body.push_str(&item);
    }
    body.push_str("]}");
    body
}

/// The elements of a list of built-in objects do not repeat their kind.
fn item(resource: &Resource, stored: &Value) -> String {
    let object = shown(resource, stored);
    match object.as_object() {
        Some(fields) if !resource.has(Trait::Custom) => {
            let fields = fields.iter().filter(|(name, _)| !["kind", "apiVersion"].contains(&name.as_str()));
            let fields: Vec<_> =
                fields.map(|(name, value)| format!("{}:{value}", Value::from(name.as_str()))).collect();
            format!("{{{}}}", fields.join(","))
        }
        _ => object.to_string(),
    }
}

fn partial(stored: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored["metadata"]})
}

fn table(
    resource: &Resource,
    objects: &[&Value],
    include: Include,
    metadata: &Value,
    now: Timestamp,
) -> Value {
    let rows: Vec<_> = objects
        .iter()
        .map(|stored| {
            let mut row = json!({"cells": printer::cells(resource, &shown(resource, stored), now)});
            match include {
                Include::Metadata => row["object"] = partial(stored),
                Include::Object => row["object"] = shown(resource, stored).into_owned(),
                Include::None => {}
            }
            row
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": printer::columns(resource), "rows": rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_header_decides() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(Form::of(kubectl, "").unwrap(), Form::Table(Include::Metadata));
        assert_eq!(Form::of("", "").unwrap(), Form::Whole);
        assert_eq!(
            Form::of("application/vnd.kubernetes.protobuf, application/json", "").unwrap(),
            Form::Whole
        );
        assert_eq!(
            Form::of("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "").unwrap(),
            Form::Metadata
        );
        assert_eq!(Form::of("application/vnd.kubernetes.protobuf", "").unwrap_err().code(), 406);
    }
}
