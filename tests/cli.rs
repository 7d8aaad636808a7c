//! Tests of the command line: each transcript in `tests/cmd` contains the output of a command of the program.

use std::process::Command;

fn staffetta(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_staffetta"))
        .args(arguments)
        .output()
        .expect("cargo built the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the program writes UTF-8")
}

#[test]
fn every_transcript_is_what_the_program_answers() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-staffetta");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_staffetta"), &plugin).unwrap();
    let cases = trycmd::TestCases::new();
    cases.register_bin("kubectl-staffetta", plugin.as_path());
    // The transcripts are compared when this is dropped, before the folder is.
    cases.case("tests/cmd/*.trycmd").case("docs/commands.md");
    drop(cases);
}

#[test]
fn the_sample_in_etc_is_what_the_program_writes() {
    let checked_in =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/etc/staffetta.toml")).unwrap();
    assert!(
        checked_in == staffetta(&["config", "sample"]),
        "etc/staffetta.toml is out of date; write it anew: cargo run -- config sample > etc/staffetta.toml"
    );
}

#[test]
fn the_schema_describes_each_section_of_the_sample() {
    let schema: serde_json::Value = serde_json::from_str(&staffetta(&["config", "schema"])).unwrap();
    let sample: toml::Table = staffetta(&["config", "sample"]).parse().unwrap();
    assert!(!sample.is_empty());
    for section in sample.keys() {
        assert_eq!(schema["properties"][section]["additionalProperties"], false, "{section}");
    }
}
