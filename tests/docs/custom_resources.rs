//! `docs/custom-resources.md` and the definition of `CiscoDevice`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::text;

/// Adds the paths of the fields below a schema: `tls.caFile`, `taints[].key`.
fn add_fields(schema: &Value, path: &str, fields: &mut BTreeSet<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}{name}");
        add_fields(field, &format!("{path}."), fields);
        add_fields(&field["items"], &format!("{path}[]."), fields);
        fields.insert(path);
    }
}

#[test]
fn every_field_of_a_device_is_explained_and_no_other() {
    let definition: Value =
        serde_saphyr::from_str(&text("etc/deploy/chart/files/ciscodevices.yaml")).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut fields = BTreeSet::new();
    add_fields(schema, "", &mut fields);
    assert!(fields.len() > 40, "the definition was read: {fields:?}");
    let page = text("docs/custom-resources.md");
    let section = page.split("\n## ").find(|section| section.starts_with("The spec of")).unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.map(str::to_owned).collect::<BTreeSet<_>>(), fields);
}
