//! The names of metrics, options and reasons of Events in all pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{ROOT, files, text};

/// Looks like an option of the section `kubernetes`.
const DOMAIN: &str = "kubernetes.io";

/// The spans of code in the prose of a page.
fn spans(page: &str) -> Vec<&str> {
    page.lines()
        .filter(|line| !line.starts_with("```"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// The first cells of the tables of a page.
fn rows(page: &str) -> BTreeSet<&str> {
    page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

/// The options of the sample, as `section.option`.
fn options(sample: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut options = BTreeSet::new();
    for line in sample.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((option, _)) = line.strip_prefix('#').and_then(|line| line.split_once(" = ")) {
            options.insert(format!("{section}.{option}"));
        }
    }
    options
}

/// Calls `check` with each span of each page, and returns those that it rejects, with their pages.
fn rejected(check: impl Fn(&str) -> bool) -> Vec<String> {
    let pages = files(&Path::new(ROOT).join("docs"), "md");
    let pages = pages.iter().filter(|page| page.parent().is_none_or(|folder| !folder.ends_with("adr")));
    let read = |page| (page, fs::read_to_string(page).unwrap());
    let of_page = |(page, text): (&std::path::PathBuf, String)| {
        let unknown = spans(&text).into_iter().filter(|span| !check(span));
        unknown.map(|span| format!("{}: {span}", page.display())).collect::<Vec<_>>()
    };
    pages.map(read).flat_map(of_page).collect()
}

#[test]
fn every_metric_that_a_page_names_exists() {
    let page = text("docs/metrics.md");
    let metrics = rows(&page);
    let is_metric = |span: &str| {
        let prefixes = ["staffetta_", "workqueue_", "rest_client_", "leader_election_", "process_"];
        prefixes.iter().any(|prefix| span.starts_with(prefix))
            && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    // Of the code, not of metrics.
    let others = |span: &str| {
        span.starts_with("staffetta_") && ["staffetta_handler", "staffetta_driver"].contains(&span)
    };
    let unknown = rejected(|span| !is_metric(span) || others(span) || metrics.contains(span));
    assert!(metrics.len() > 30, "the page was read: {metrics:?}");
    assert!(unknown.is_empty(), "docs/metrics.md has no row for {unknown:#?}");
}

#[test]
fn every_option_that_a_page_names_exists() {
    let sample = text("etc/staffetta.toml");
    let options = options(&sample);
    let sections: BTreeSet<_> = options.iter().filter_map(|option| option.split('.').next()).collect();
    let known = |span: &str| {
        let Some((section, option)) = span.split_once('.') else { return true };
        let is_option = !option.is_empty()
            && option.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        !is_option || !sections.contains(section) || options.contains(span) || span == DOMAIN
    };
    assert!(options.len() > 100 && known("relay.handler_timeout") && !known("relay.handler_time"));
    let unknown = rejected(known);
    assert!(unknown.is_empty(), "etc/staffetta.toml has no option {unknown:#?}");
}

#[test]
fn every_section_of_the_options_is_listed() {
    let (page, sample) = (text("docs/options.md"), text("etc/staffetta.toml"));
    let sections: BTreeSet<_> = sample.lines().filter(|line| line.starts_with('[')).collect();
    let cells =
        page.lines().filter(|line| line.starts_with("| `[")).filter_map(|line| line.split(" | ").next());
    let listed: BTreeSet<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert_eq!(listed, sections);
}

#[test]
fn every_reason_of_the_troubleshooting_exists() {
    let page = text("docs/events.md");
    let reasons = rows(&page);
    let is_reason = |span: &&str| {
        span.starts_with(|c: char| c.is_ascii_uppercase())
            && span.chars().all(|c| c.is_ascii_alphabetic())
            && *span != span.to_uppercase()
    };
    let troubleshooting = text("docs/troubleshooting.md");
    // Words of Kubernetes.
    let others = ["CiscoDevice", "FailedCreatePodSandBox", "StaffettaTwoLeaders"];
    let named: Vec<_> =
        spans(&troubleshooting).into_iter().filter(is_reason).filter(|span| !others.contains(span)).collect();
    assert!(named.len() > 20, "the page was read: {named:?}");
    let unknown: Vec<_> = named.iter().filter(|reason| !reasons.contains(**reason)).collect();
    assert!(unknown.is_empty(), "docs/events.md has no row for {unknown:?}");
}
