//! The quick starts: their files and commands, and the configurations of all pages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use staffetta_apiserver::testing::{program, real_kubeconfig};
use tempfile::TempDir;

use crate::calls::{FOLLOWED, run_on_a_real_server};
use crate::page::Page;
use crate::{PROGRAM, ROOT, files};

/// The pages below a folder of the repository.
fn pages(folder: &str) -> Vec<Page> {
    let paths = files(&Path::new(ROOT).join(folder), "md");
    paths.iter().map(|path| Page::read(path.strip_prefix(ROOT).unwrap().to_str().unwrap())).collect()
}

/// A folder with the chart and the files of the page.
fn site(page: &Page) -> TempDir {
    let site = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .args(["-r", "--parents", "etc/deploy"])
        .arg(site.path())
        .current_dir(ROOT)
        .status()
        .unwrap();
    assert!(copied.success());
    // The page tells the reader to write the ids of the cloud here.
    let values = site.path().join("etc/deploy/values/openstack.yaml");
    let mut text = fs::read_to_string(&values).unwrap();
    for placeholder in
        ["SECURITY-GROUP-OF-PODS", "SUBNET-OF-PODS", "SUBNET-OF-SERVICES", "EXTERNAL-NETWORK", "PROJECT"]
    {
        text = text.replace(placeholder, &placeholder.to_lowercase());
    }
    fs::write(values, text).unwrap();
    page.write_files(site.path());
    site
}

fn run(command: &str, site: &TempDir) -> Output {
    Command::new("bash").args(["-c", command]).current_dir(site.path()).output().unwrap()
}

#[test]
#[ignore = "needs helm: devstack/real/test"]
fn every_release_that_a_quick_start_installs_has_values_that_the_program_accepts_with_helm() {
    let mut installed = 0;
    for page in pages("docs/start") {
        let site = site(&page);
        for (command, _) in page.commands() {
            let Some(release) = command.strip_prefix("helm upgrade --install ") else { continue };
            let release = release.replace(" --create-namespace", "");
            let rendered = run(&format!("helm template --no-hooks --kube-version 1.30.0 {release}"), &site);
            assert!(rendered.status.success(), "{}: {command}: {rendered:?}", page.path);
            let manifests = String::from_utf8(rendered.stdout).unwrap();
            let (_, configuration) = manifests.split_once("staffetta.toml: |\n").unwrap();
            fs::write(site.path().join("staffetta.toml"), configuration.split("\n---\n").next().unwrap())
                .unwrap();
            let check =
                format!("OS_CLIENT_CONFIG_FILE=clouds.yaml {PROGRAM} config check --config staffetta.toml");
            // The daemon of nodes has no handler of its own.
            if !release.starts_with("staffetta-cni") {
                let checked = run(&check, &site);
                assert_eq!(String::from_utf8_lossy(&checked.stdout), "ok\n", "{}: {checked:?}", page.path);
            }
            installed += 1;
        }
    }
    assert_eq!(installed, 5, "the pages were read");
}

/// The configuration in values of the chart, which have a preset.
fn of_values(body: &str) -> Option<String> {
    let values = body.contains("\npreset: ").then(|| serde_saphyr::from_str::<Value>(body).unwrap())?;
    Some(toml::to_string(&values["config"]).unwrap())
}

#[test]
fn every_configuration_in_a_page_consists_of_options_that_exist() {
    let mut checked = 0;
    // The page of drivers names one of an outside program, which the test `outside` runs.
    for page in pages("docs").iter().filter(|page| page.path != "docs/start/driver.md") {
        let files = page
            .blocks("toml")
            .filter(|body| !["[dependencies]", "{{#include"].iter().any(|other| body.contains(other)));
        for configuration in files.map(str::to_owned).chain(page.blocks("yaml").filter_map(of_values)) {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("staffetta.toml"), &configuration).unwrap();
            let output = run(&format!("{PROGRAM} config show --config staffetta.toml"), &folder);
            assert!(output.status.success(), "{}: {configuration}{output:?}", page.path);
            checked += 1;
        }
    }
    assert!(checked >= 10, "the pages were read: {checked} configurations");
}

/// Removes what a quick start has created, except for the namespaces.
const CLEAN_UP: &str = "
    for release in staffetta staffetta-cni; do helm -n $release uninstall $release --no-hooks --ignore-not-found; done
    for file in $(grep -l ^kind: *.yaml); do kubectl delete -f $file --ignore-not-found --force --grace-period=0; done
    kubectl delete deployment,service web --ignore-not-found
    kubectl delete crd ciscodevices.cisco.vk --ignore-not-found";

#[test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
fn the_pages_for_operators_can_be_followed_on_a_real_server() {
    let folders = ["kubectl", "helm"].map(|name| program(name).parent().unwrap().to_owned());
    for names in FOLLOWED {
        let pages: Vec<_> = names.iter().map(|name| Page::read(&format!("docs/{name}.md"))).collect();
        let site = site(&pages[0]);
        symlink(PROGRAM, site.path().join("kubectl-staffetta")).unwrap();
        let path = format!("{}:{}:{}", site.path().display(), folders[0].display(), folders[1].display());
        let run = |command: &str| {
            let script = format!("set -e\nPATH={path}:$PATH\n{command}");
            let mut bash = Command::new("bash");
            bash.args(["-c", &script]).current_dir(site.path()).env("KUBECONFIG", real_kubeconfig());
            let output = bash.env("HOME", site.path()).output().unwrap();
            assert!(output.status.success(), "{names:?}: {command}: {output:?}");
        };
        for command in pages.iter().flat_map(run_on_a_real_server) {
            // The person ends it when the object is as it should be.
            run(command.trim_end_matches(" --watch"));
            if command.starts_with("helm ") {
                run(
                    "kubectl get crd -o name | xargs -r kubectl wait --for=condition=Established --timeout=60s",
                );
            }
        }
        run(CLEAN_UP);
    }
    let namespaces =
        ["delete", "namespace", "staffetta", "--ignore-not-found", "--wait=false", "--kubeconfig"];
    assert!(
        Command::new(program("kubectl")).args(namespaces).arg(real_kubeconfig()).status().unwrap().success()
    );
}
