//! Discovery: groups, versions and resources.

use serde_json::{Value, json};

use crate::catalog::Catalog;
use crate::table::{Resource, Trait};

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// `/version`: the release whose behaviour this server follows.
pub(crate) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// `/api`.
pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

/// The named groups with their versions, each once.
fn groups(catalog: &Catalog) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in catalog.all().filter(|row| !row.group.is_empty()) {
        match groups.iter_mut().find(|(group, _)| *group == row.group) {
            None => groups.push((&row.group, vec![&row.version])),
            Some((_, versions)) if !versions.contains(&row.version.as_str()) => versions.push(&row.version),
            Some(_) => {}
        }
    }
    for (_, versions) in &mut groups {
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
    }
    groups
}

/// Stable versions before beta before alpha, higher numbers first.
fn priority(version: &str) -> (u8, u32, u32) {
    let digits = |text: &str| text.parse().unwrap_or_default();
    let Some(number) = version.strip_prefix('v') else { return (0, 0, 0) };
    for (stage, rank) in [("beta", 2), ("alpha", 1)] {
        if let Some((major, minor)) = number.split_once(stage) {
            return (rank, digits(major), digits(minor));
        }
    }
    (3, digits(number), 0)
}

fn group_json(name: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({
        "name": name, "versions": versions.iter().map(version).collect::<Vec<_>>(),
        "preferredVersion": version(&versions[0]),
    })
}

/// `/apis`.
pub(crate) fn group_list(catalog: &Catalog) -> Value {
    let groups: Vec<_> = groups(catalog).iter().map(|(name, versions)| group_json(name, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(crate) fn group(catalog: &Catalog, name: &str) -> Option<Value> {
    let (_, versions) = groups(catalog).into_iter().find(|(group, _)| *group == name)?;
    let mut group = group_json(name, &versions);
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(crate) fn resource_list(catalog: &Catalog, group: &str, version: &str) -> Option<Value> {
    let rows: Vec<_> = catalog.all().filter(|row| row.group == group && row.version == version).collect();
    let group_version = rows.first()?.api_version();
    let resources: Vec<_> = rows.iter().flat_map(|row| entries(row)).collect();
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn entries(row: &Resource) -> Vec<Value> {
    let namespaced = row.has(Trait::Namespaced);
    let verbs: Vec<_> =
        VERBS.iter().filter(|verb| **verb != "deletecollection" || row.plural != "namespaces").collect();
    let mut main = json!({
        "name": row.plural, "singularName": row.singular, "namespaced": namespaced, "kind": row.kind, "verbs": verbs,
    });
    if !row.short_names.is_empty() {
        main["shortNames"] = json!(row.short_names);
    }
    if !row.categories.is_empty() {
        main["categories"] = json!(row.categories);
    }
    let mut entries = vec![main];
    let mut sub = |name: &str, kind: &str, verbs: &[&str]| {
        entries.push(json!({
            "name": format!("{}/{name}", row.plural), "singularName": "", "namespaced": namespaced, "kind": kind,
            "verbs": verbs,
        }));
    };
    if row.has(Trait::StatusSubresource) {
        sub("status", &row.kind, &["get", "patch", "update"]);
    }
    if row.has(Trait::Scale) {
        sub("scale", "Scale", &["get", "patch", "update"]);
    }
    if row.kind == "Pod" && row.group.is_empty() {
        sub("binding", "Binding", &["create"]);
    }
    for entry in entries.iter_mut().filter(|entry| entry["kind"] == "Scale") {
        entry["group"] = "autoscaling".into();
        entry["version"] = "v1".into();
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_stable_version_comes_first() {
        let mut versions = ["v1alpha1", "v1", "v2beta1", "v2", "v1beta2", "v1beta10"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v2", "v1", "v2beta1", "v1beta10", "v1beta2", "v1alpha1"]);
    }

    #[test]
    fn subresources_are_listed_with_their_resource() {
        let list = resource_list(&Catalog::new(), "apps", "v1").unwrap();
        let names: Vec<_> =
            list["resources"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names[..3], ["deployments", "deployments/status", "deployments/scale"]);
        assert!(resource_list(&Catalog::new(), "apps", "v9").is_none());
    }
}
