//! The links of the pages, and the chapters of the book.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{ROOT, files, text};

/// The pages that are checked.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let others = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "etc/deploy/README.md"];
    let mut pages = files(&root.join("docs"), "md");
    pages.extend(others.map(|page| root.join(page)));
    pages
}

/// The lines of a page outside of blocks of code.
fn prose(page: &str) -> Vec<&str> {
    let mut in_code = false;
    let is_prose = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    };
    page.lines().filter(is_prose).collect()
}

/// The text without spans of code.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect()
}

/// The targets of the links of a page.
fn targets(page: &str) -> Vec<String> {
    let text = without_code(&prose(page).join("\n"));
    let rest = text.split("](").skip(1);
    rest.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// The anchors of the headings of a page, as GitHub and mdBook name them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut seen = BTreeMap::new();
    let headings = prose(page).into_iter().filter(|line| line.starts_with('#'));
    let named = headings.map(|line| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = |letter: &char| letter.is_alphanumeric() || "-_ ".contains(*letter);
        let anchor: String = text.chars().filter(kept).collect();
        let anchor = anchor.replace(' ', "-");
        let earlier = seen.entry(anchor.clone()).and_modify(|count| *count += 1).or_insert(0);
        if *earlier == 0 { anchor } else { format!("{anchor}-{earlier}") }
    });
    named.collect()
}

/// The error of a link on a page, if it has one.
fn error(page: &Path, target: &str) -> Option<String> {
    if target.starts_with("http") {
        return None;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    if !file.exists() {
        return Some(format!("{}: {target}: no such file", page.display()));
    }
    let found = anchor.is_empty() || anchors(&fs::read_to_string(file).unwrap()).contains(anchor);
    (!found).then(|| format!("{}: {target}: no such heading", page.display()))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let mut links = 0;
    let mut errors = Vec::new();
    for page in pages() {
        let targets = targets(&fs::read_to_string(&page).unwrap());
        links += targets.len();
        errors.extend(targets.iter().filter_map(|target| error(&page, target)));
    }
    assert!(links > 100, "the pages were read: {links} links");
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn every_page_is_a_chapter_of_the_book_exactly_once() {
    let docs = Path::new(ROOT).join("docs");
    let summary = docs.join("SUMMARY.md");
    let mut chapters: Vec<_> =
        targets(&text("docs/SUMMARY.md")).iter().map(|chapter| docs.join(chapter)).collect();
    chapters.sort();
    let pages: Vec<_> = files(&docs, "md").into_iter().filter(|page| *page != summary).collect();
    assert_eq!(chapters, pages);
}

#[test]
fn a_link_to_nothing_is_an_error() {
    let page = Path::new(ROOT).join("docs/operations.md");
    assert_eq!(error(&page, "operations.md#uninstall"), None);
    assert!(error(&page, "operations.md#install").unwrap().ends_with("no such heading"));
    assert!(error(&page, "operation.md").unwrap().ends_with("no such file"));
    assert_eq!(targets("see [a](b.md#c), `[d](e)`\n```\n[f](g)\n```\n"), ["b.md#c"]);
    let anchors = anchors("# Ports of `Kuryr's` pools\n## Twice\n## Twice\n");
    assert_eq!(Vec::from_iter(anchors), ["ports-of-kuryrs-pools", "twice", "twice-1"]);
}
