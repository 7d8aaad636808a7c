//! `docs/custom-resources.md` and the definition of `CiscoDevice`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::text;

/// Adds the path and the description of each field below a schema: `tls.caFile`, `taints[].key`.
fn add_fields(schema: &Value, path: &str, fields: &mut BTreeMap<String, String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{name}");
        add_fields(field, &format!("{path}."), fields);
        add_fields(&field["items"], &format!("{path}[]."), fields);
        fields.insert(path, field["description"].as_str().unwrap_or_default().to_owned());
    }
}

#[test]
fn every_field_of_a_device_is_explained_and_no_other() {
    let definition: Value =
        serde_saphyr::from_str(&text("etc/deploy/chart/files/ciscodevices.yaml")).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut fields = BTreeMap::new();
    add_fields(schema, "", &mut fields);
    assert!(fields.len() > 40, "the definition was read: {fields:?}");
    let page = text("docs/custom-resources.md");
    let section = page.split("\n## ").find(|section| section.starts_with("The spec of")).unwrap();
    let row = |line: &str| {
        let (field, meaning) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        Some((field.to_owned(), meaning.replace('`', "")))
    };
    assert_eq!(
        section.lines().filter_map(row).collect::<BTreeMap<_, _>>(),
        fields,
        "kubectl explain says the same"
    );
}
