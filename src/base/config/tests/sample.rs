//! Tests of the sample file and of the JSON Schema.

use super::*;

/// Removes the `#` from each option of a sample.
fn all_set(sample: &str) -> String {
    let option =
        |line: &str| line.starts_with('#') && line[1..].starts_with(|first: char| first.is_ascii_lowercase());
    let lines = sample.lines().map(|line| if option(line) { &line[1..] } else { line });
    lines.collect::<Vec<_>>().join("\n")
}

/// Panics unless the sample passes the checks of the configuration, both as it is and with every option set.
fn check_sample(schema: &FileSchema) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Configuration::load(schema, Some(&path), []).unwrap_or_else(|error| panic!("{error}"))
    };
    let untouched = load(&schema.sample());
    assert!(untouched.origins.is_empty());

    let set = load(&all_set(&schema.sample()));
    let options: usize = schema.sections.iter().map(|section| section.options.len()).sum();
    assert_eq!(set.origins.len(), options);
    assert_eq!(set.relay, RelayOptions::default());
}

#[test]
fn the_sample_is_valid_with_every_option_commented_out_and_with_every_option_set() {
    check_sample(&schema());
}

#[test]
fn every_option_of_the_program_is_checked_and_every_default_is_valid() {
    let shipped =
        FileSchema::assemble(&crate::control::assembly::registry()).unwrap_or_else(|error| panic!("{error}"));
    check_sample(&shipped);
}

#[test]
fn the_sample_documents_each_option_and_its_limits() {
    let sample = schema().sample();
    for part in [
        "\n# The way the lamp burns.\n[lamp]\n",
        "\n# The brightness, in candelas.\n# From 0 to 90.\n#brightness = 60\n",
        "\n# What lights the way.\n# One of:\n# - \"candle\": Wax and a wick.\n# - \"torch\": A stick.\n#lamp_driver = \"candle\"\n",
        "# Any of:\n# - \"lb\": Balances.\n",
        "# Not set by default.\n#kubeconfig = \"/etc/staffetta/kubeconfig\"\n",
    ] {
        assert!(sample.contains(part), "{part}\n{sample}");
    }
    assert!(sample.lines().all(|line| line.chars().count() <= 100), "{sample}");
}

#[test]
fn the_schema_closes_every_section_and_names_handlers_and_drivers() {
    let schema = schema().to_json();
    for section in schema["properties"].as_object().unwrap().values() {
        assert_eq!(section["additionalProperties"], false);
    }
    let kubernetes = &schema["properties"]["kubernetes"]["properties"];
    assert_eq!(kubernetes["lamp_driver"]["oneOf"][1]["const"], "torch");
    assert_eq!(kubernetes["enabled_handlers"]["items"]["oneOf"].as_array().unwrap().len(), 3);
    assert_eq!(kubernetes["kubeconfig"]["type"], "string");
    assert_eq!(schema["properties"]["relay"]["properties"]["first_list_backlog"]["minimum"], 1);
}
