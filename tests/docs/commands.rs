//! `docs/commands.md`, whose output the test `cli` compares with the program.

use std::collections::BTreeSet;

use crate::page::Page;

#[test]
fn every_command_that_the_help_lists_is_shown() {
    let page = Page::read("docs/commands.md");
    let mut listed = BTreeSet::from(["staffetta", "kubectl-staffetta"].map(str::to_owned));
    let mut shown = BTreeSet::new();
    for (command, output) in page.commands() {
        let command = command.strip_suffix(" --help").unwrap();
        shown.insert(command.to_owned());
        let list = output.split("\nCommands:\n").nth(1).unwrap_or_default();
        let lines = list.lines().map_while(|line| line.strip_prefix("  "));
        // A description may continue on further lines.
        let names = lines.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next());
        listed.extend(names.filter(|name| *name != "help").map(|name| format!("{command} {name}")));
    }
    assert!(shown.len() > 10, "the page was read: {shown:?}");
    assert_eq!(shown, listed);
}
