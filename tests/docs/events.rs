//! `docs/events.md` and the reasons of Events in the code.

use std::collections::BTreeSet;
use std::fs;

use crate::{sources, text};

/// The string literals that functions with this signature return, outside of tests.
fn answers(code: &str, signature: &str) -> BTreeSet<String> {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let bodies = code.split(signature).skip(1).map(|rest| rest.split("\n    }\n").next().unwrap());
    let words = bodies.flat_map(|body| body.split('"').skip(1).step_by(2));
    let is_reason = |word: &&str| word.starts_with(|first: char| first.is_ascii_uppercase());
    words.filter(is_reason).map(str::to_owned).collect()
}

/// The signatures of the functions that return reasons of Events.
const REASONS: [&str; 5] = [
    "fn reason(&self) -> &'static str {",
    "fn properties(self) -> (&'static str, &'static str, bool) {",
    "fn class(&self) -> (bool, Option<Duration>, &'static str) {",
    "fn note(self, handler: ",
    "fn words(self) -> (&'static str, &'static str) {",
];

/// The code before reasons of Events that a device causes.
const DEVICE_REASONS: [&str; 4] =
    [".named(\"", "after_back_off(\"", "Fail { reason: \"", "PodProgress::Failing {\n        reason: \""];

#[test]
fn every_reason_of_an_event_is_explained_and_no_other() {
    let mut files = sources(&["handlers", "drivers", "src"]);
    files.retain(|file| {
        !file.ends_with("tests.rs") && !file.components().any(|part| part.as_os_str() == "tests")
    });
    let mut reasons = BTreeSet::new();
    for file in &files {
        let code = fs::read_to_string(file).unwrap();
        for signature in REASONS {
            reasons.extend(answers(&code, signature));
        }
        for before in DEVICE_REASONS {
            let words = code.split("#[cfg(test)]").next().unwrap().split(before).skip(1);
            reasons.extend(words.filter_map(|rest| rest.split('"').next()).map(str::to_owned));
        }
        let of_notes = [
            "src/engine/pipeline/report.rs",
            "cni/src/daemon.rs",
            "policy/mod.rs",
            "prefix-ip/src/error.rs",
            "lb/mod.rs",
            "lbaasspec/mod.rs",
            "namespace/mod.rs",
            "virtual-node/src/error.rs",
            "virtual-node/src/reach.rs",
            "vnode/tracker/mod.rs",
            "network/src/annotation.rs",
            "src/installation.rs",
            "src/kuryr.rs",
        ];
        if of_notes.iter().any(|name| file.ends_with(name)) {
            let constants =
                code.lines().filter_map(|line| line.strip_prefix("pub(crate) const ")?.split('"').nth(1));
            reasons.extend(constants.map(str::to_owned));
        }
    }
    let document = text("docs/events.md");
    let (_, table) = document.split_once("\n## Reasons\n").unwrap();
    let rows: Vec<_> = table.lines().filter_map(|line| line.strip_prefix("| `")).collect();
    let explained: BTreeSet<_> = rows.iter().map(|row| row.split('`').next().unwrap().to_owned()).collect();
    assert!(
        reasons.contains("QuotaExceeded") && reasons.contains("Recovered"),
        "the code was read: {reasons:?}"
    );
    assert_eq!(reasons, explained, "docs/events.md and the code differ");
    assert!(rows.is_sorted() && rows.iter().all(|row| row.matches(" | ").count() == 2), "{rows:#?}");
}
