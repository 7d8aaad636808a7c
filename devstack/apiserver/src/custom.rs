//! `CustomResourceDefinition`s, which add resources to the table at run time.

use serde_json::{Value, json};

use crate::object::{list, map_mut, meta, seconds};
use crate::table::{Resource, ScalePaths, Trait};

/// Fills in what a definition leaves to the server.
pub(crate) fn fill(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let names = map_mut(spec.entry("names").or_insert(Value::Null));
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
    names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
}

/// The status of a definition that is served.
pub(crate) fn established(definition: &Value, now: jiff::Timestamp) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": seconds(now), "reason": reason, "message": message});
    let stored = list(&definition["spec"]["versions"]).iter().filter(|version| version["storage"] == true);
    json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": stored.map(|version| version["name"].clone()).collect::<Vec<_>>(),
    })
}

/// The resources that a definition asks to be served, one a version, newest version first as discovery wants it.
pub(crate) fn resources(definition: &Value) -> Vec<Resource> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| list(value).iter().map(text).collect::<Vec<_>>();
    list(&spec["versions"])
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let mut traits =
                vec![Trait::Custom, Trait::Generation, Trait::VersionedPut, Trait::FreeFinalizers];
            if spec["scope"] == "Namespaced" {
                traits.push(Trait::Namespaced);
            }
            if version["subresources"]["status"].is_object() {
                traits.extend([Trait::StatusSubresource, Trait::StatusKeepsMetadata]);
            }
            let scale = &version["subresources"]["scale"];
            let path = |field: &str| text(&scale[field]).trim_start_matches('.').to_owned();
            if scale.is_object() {
                traits.push(Trait::Scale);
            }
            Resource {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                plural: text(&names["plural"]),
                singular: text(&names["singular"]),
                kind: text(&names["kind"]),
                list_kind: text(&names["listKind"]),
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                traits,
                stored_as: meta(definition, "name").into(),
                scale: ScalePaths {
                    wanted: path("specReplicasPath"),
                    present: path("statusReplicasPath"),
                    selector: path("labelSelectorPath"),
                },
                columns: list(&version["additionalPrinterColumns"]).to_vec(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_becomes_a_row_for_each_served_version() {
        let mut definition = json!({
            "metadata": {"name": "devices.example.org"},
            "spec": {
                "group": "example.org", "scope": "Namespaced",
                "names": {"plural": "devices", "kind": "Device", "shortNames": ["dev"]},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}},
                    {"name": "v1alpha1", "served": false, "storage": false},
                ],
            },
        });
        fill(&mut definition);
        let rows = resources(&definition);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].singular.as_str(), rows[0].list_kind.as_str()), ("device", "DeviceList"));
        assert!(rows[0].has(Trait::StatusSubresource) && rows[0].has(Trait::Namespaced));
        assert_eq!(established(&definition, jiff::Timestamp::UNIX_EPOCH)["storedVersions"], json!(["v1"]));
    }
}
