//! The part of `OpenAPI` v3 that kubectl needs in order to let the server validate fields. There are no schemas of built-in
//! kinds: without them, kubectl creates patches by its own types.

use serde_json::{Map, Value, json};

use crate::catalog::Catalog;
use crate::table::{Resource, Trait};

/// `/openapi/v3`: where the documents of the group versions are.
pub(crate) fn index(catalog: &Catalog) -> Value {
    let mut paths = Map::new();
    for row in catalog.all() {
        let path = root(row);
        let at = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
        paths.entry(path).or_insert(at);
    }
    json!({"paths": paths})
}

fn root(row: &Resource) -> String {
    if row.group.is_empty() {
        format!("api/{}", row.version)
    } else {
        format!("apis/{}/{}", row.group, row.version)
    }
}

/// `/openapi/v3/api/v1` and its like: the document of one group version.
pub(crate) fn document(catalog: &Catalog, group_version: &str) -> Option<Value> {
    let mut paths = Map::new();
    for row in catalog.all().filter(|row| root(row) == group_version) {
        let scope = if row.has(Trait::Namespaced) { "namespaces/{namespace}/" } else { "" };
        let collection = format!("/{group_version}/{scope}{}", row.plural);
        let body = |media_types: &[&str]| {
            let content: Map<_, _> =
                media_types.iter().map(|media_type| ((*media_type).into(), json!({}))).collect();
            json!({"content": content})
        };
        let write = |action: &str, media_types: &[&str]| {
            json!({
                "parameters": [
                    {"name": "dryRun", "in": "query", "schema": {"type": "string"}},
                    {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}},
                ],
                "requestBody": body(media_types),
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": {"group": row.group, "version": row.version, "kind": row.kind},
            })
        };
        let json = &["application/json"][..];
        let patches = &["application/json-patch+json", "application/merge-patch+json"][..];
        paths.insert(
            format!("{collection}/{{name}}"),
            json!({"put": write("put", json), "patch": write("patch", patches)}),
        );
        paths.insert(collection, json!({"post": write("post", json)}));
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": paths,
        "components": {"schemas": {}},
    }))
}
