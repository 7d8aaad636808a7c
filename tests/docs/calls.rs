//! The commands of the pages: the program can parse its calls, and all others of the README and of the book are run by a test.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::page::Page;
use crate::{PROGRAM, ROOT, files, sources, text};

/// The beginnings of commands that no test runs as they are, each with the test or the line of a script that runs the same otherwise.
const ELSEWHERE: [(&str, &str); 24] = [
    ("\"$EDITOR\" ", "nothing_is_missing_in_the_configuration_of_a_preset"),
    ("cargo build --package greeter", "cargo test --workspace --no-fail-fast"),
    ("cargo build --package outside", "cargo test --workspace --no-fail-fast"),
    ("cargo devstack", "cargo devstack -- --once"),
    ("STAFFETTA_YANG_DIR=... cargo test ", "step yang prepare_yang"),
    ("cargo test --features simulated --test openstack ", "run_tests \"${flags[@]}\""),
    ("cargo test --workspace", "cargo test --workspace --no-fail-fast"),
    ("cargo xtask simulate ", "cargo xtask simulate --seeds 100"),
    ("devstack/real/openstack down ", "bring_up openstack"),
    ("export KUBECONFIG=", "bring_up kubernetes"),
    ("export STAFFETTA_REAL_OPENSTACK=", "bring_up openstack"),
    // They compile the program, and need a registry.
    ("image=$(etc/deploy/image)", "the_program_runs_from_it_alone_as_nobody_and_writes_nothing"),
    ("install -D \"${image%/*}/rootfs/usr/bin/staffetta\" ", "every_transcript_is_what_the_program_answers"),
    ("skopeo copy ", "the_archive_is_an_oci_image_whose_digests_are_true_and_the_same_each_time"),
    ("kubeconfig=$(devstack/real/kubernetes up)", "bring_up kubernetes"),
    ("kubectl -n staffetta rollout status ", RELEASE),
    ("kubectl apply -f node.yaml", OUTSIDE),
    ("kubectl get pod hello -o jsonpath=", "a_pod_is_greeted"),
    ("kubectl get pod web -o jsonpath=", OUTSIDE),
    ("kubectl run ", OUTSIDE),
    ("helm -n staffetta uninstall staffetta", RELEASE),
    ("ln -s \"$(command -v staffetta)\" ", "every_transcript_is_what_the_program_answers"),
    ("rm ", "the_page_removes_all_that_the_release_leaves_on_a_node"),
    ("staffetta-cni install ", "[\"install\", \"--bin\"]"),
];

const RELEASE: &str = "a_release_serves_pods_and_frees_them_when_it_is_removed_on_a_real_node";
const OUTSIDE: &str = "an_outside_handler_and_an_outside_driver_work_beside_ours";

/// The beginnings of commands that no test runs: those of OpenStack, and those that need nodes.
const FOREIGN: [&str; 6] = [
    "for port in $(openstack port list ",
    "kubectl -n NAMESPACE describe pod POD",
    "kubectl -n staffetta logs ",
    "kubectl drain NODE ",
    "kubectl uncordon NODE",
    "openstack ",
];

/// The pages whose commands the test on a real server runs, in this order. The last ones are for what the one before has installed.
pub(crate) const FOLLOWED: [&[&str]; 4] = [
    &["start/ec2"],
    &["start/iosxe"],
    &["start/koupleless"],
    &["start/openstack", "operations", "troubleshooting", "cni"],
];

/// The beginnings of calls of the program.
const CALLS: [&str; 5] = [
    "staffetta ",
    "kubectl staffetta ",
    "cargo run --release -- ",
    "target/debug/greeter ",
    "target/debug/outside ",
];

/// The command without the variables that are set for it.
fn without_variables(command: &str) -> &str {
    let set = |word: &str| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    match command.split_once(' ') {
        Some((word, rest)) if set(word) => without_variables(rest),
        _ => command,
    }
}

pub(crate) fn is_call(command: &str) -> bool {
    CALLS.iter().any(|call| without_variables(command).starts_with(call))
}

fn is_foreign(command: &str) -> bool {
    FOREIGN.iter().any(|start| command.starts_with(start))
}

/// The commands of a page, without comments.
fn commands(page: &Page) -> Vec<String> {
    let of_console = page.commands().into_iter().map(|(command, _)| command);
    let of_script =
        page.blocks("sh").flat_map(str::lines).filter(|line| !line.starts_with(' ') && *line != "done");
    let without_comment = |line: &str| line.split(" # ").next().unwrap().trim_end().to_owned();
    of_console.chain(of_script).map(without_comment).collect()
}

/// The commands of a page that the test on a real server runs.
pub(crate) fn run_on_a_real_server(page: &Page) -> Vec<String> {
    let elsewhere = |command: &str| ELSEWHERE.iter().any(|(start, _)| command.starts_with(start));
    let of_kubernetes = |command: &str| command.starts_with("kubectl ") || command.starts_with("helm ");
    // Before the installation, no controller has to answer.
    let without_controller = |command: &str| !is_call(command) || command.contains(" check --pre ");
    let mut commands = commands(page);
    commands.retain(|command| {
        of_kubernetes(command) && !elsewhere(command) && !is_foreign(command) && without_controller(command)
    });
    commands
}

/// The README and the pages of the book, except for the one whose commands the test `cli` runs.
fn pages() -> Vec<String> {
    let docs = files(&Path::new(ROOT).join("docs"), "md");
    let docs = docs.iter().map(|page| page.strip_prefix(ROOT).unwrap().to_str().unwrap().to_owned());
    docs.filter(|page| page != "docs/commands.md").chain(["README.md".to_owned()]).collect()
}

/// A folder with the program under the names that the pages have for it. Whoever calls it there reaches neither a cluster nor a controller.
struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("target/debug")).unwrap();
        for name in ["staffetta", "kubectl-staffetta", "target/debug/greeter", "target/debug/outside"] {
            symlink(PROGRAM, path(name)).unwrap();
        }
        let scripts = [
            ("kubectl", "shift\nexec kubectl-staffetta \"$@\""),
            ("cargo", "while [ \"$1\" != -- ]; do shift; done\nshift\nexec staffetta \"$@\""),
        ];
        for (name, script) in scripts {
            fs::write(path(name), format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(folder)
    }

    /// Calls the program, and returns what it finds wrong with its arguments.
    fn misuse(&self, call: &str) -> Option<String> {
        let folder = self.0.path();
        let output = Command::new("bash")
            .args(["-c", call])
            .current_dir(folder)
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", folder.display()))
            .env("HOME", folder)
            .env("KUBECONFIG", folder.join("none"))
            .env("kubeconfig", folder.join("none"))
            .env("STAFFETTA_ADMIN", "http://127.0.0.1:1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let wrong = ["Usage:", "try '--help'"].iter().any(|word| said.contains(word));
        (wrong || output.status.code() == Some(127)).then_some(said)
    }
}

/// The calls of the program on a page: in its blocks, and in spans of its text, where arguments may be missing.
fn calls(path: &str) -> BTreeSet<String> {
    let page = text(path);
    let prose = page.split("\n```").step_by(2);
    let spans = prose.flat_map(|text| text.split('`').skip(1).step_by(2));
    // Patterns, and a message of Helm.
    let is_part = |span: &&str| ["[", "|", "...", "\n", " is "].iter().all(|word| !span.contains(word));
    let parts = spans.filter(|span| is_call(span)).filter(is_part).map(|span| format!("{span} --help"));
    commands(&Page::read(path)).into_iter().filter(|command| is_call(command)).chain(parts).collect()
}

#[test]
fn every_call_of_the_program_on_a_page_has_arguments_that_it_knows() {
    let desk = Desk::new();
    for wrong in
        ["kubectl staffetta chek", "kubectl staffetta check --pre --preset openstak", "staffetta explain"]
    {
        assert!(desk.misuse(wrong).is_some(), "{wrong}");
    }
    let others = ["CONTRIBUTING.md", "etc/deploy/README.md"].map(str::to_owned);
    let pages = pages().into_iter().filter(|page| !page.contains("/adr/")).chain(others);
    let (mut count, mut errors) = (0, Vec::new());
    for page in pages {
        for call in calls(&page) {
            count += 1;
            errors.extend(desk.misuse(&call).map(|said| format!("{page}: {call}: {said}")));
        }
    }
    assert!(count > 40, "the pages were read: {count} calls");
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn every_command_of_the_readme_and_of_the_book_is_run_by_a_test() {
    let followed = FOLLOWED.iter().copied().flatten().map(|page| Page::read(&format!("docs/{page}.md")));
    let run: BTreeSet<_> = followed.flat_map(|page| run_on_a_real_server(&page)).collect();
    let (mut left, mut used) = (Vec::new(), BTreeSet::<&str>::new());
    for path in pages() {
        for command in commands(&Page::read(&path)) {
            let elsewhere = ELSEWHERE.iter().find(|(start, _)| command.starts_with(start));
            used.extend(elsewhere.map(|(start, _)| *start));
            if elsewhere.is_none() && !is_call(&command) && !is_foreign(&command) && !run.contains(&command) {
                left.push(format!("{path}: {command}"));
            }
        }
    }
    assert!(run.len() > 15, "the pages were read: {run:?}");
    assert!(left.is_empty(), "run these in a test, or name in ELSEWHERE what does: {left:#?}");
    assert_eq!(used.len(), ELSEWHERE.len(), "no page has the others any more: {used:?}");
    let runners = runners();
    let missing: Vec<_> = ELSEWHERE.iter().filter(|(_, runner)| !runners.contains(*runner)).collect();
    assert!(missing.is_empty(), "nothing runs {missing:?}");
}

/// The sources of the tests and the scripts of CI, without this file.
fn runners() -> String {
    let tests = sources(&["tests", "examples"]).into_iter().filter(|file| !file.ends_with("docs/calls.rs"));
    let tests = tests.map(|file| fs::read_to_string(file).unwrap());
    tests.chain([text(".ci/run"), text("devstack/real/test")]).collect()
}
