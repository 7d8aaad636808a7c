//! Tests of `etc/release`, with small static programs in the place of ours, which take too long to compile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::text;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs a shell command in a folder.
pub(crate) fn shell(folder: &Path, script: &str) -> Output {
    Command::new("bash").args(["-ec", script]).current_dir(folder).output().unwrap()
}

/// Static programs for two architectures, and a key.
pub(crate) struct Workshop(TempDir);

impl Workshop {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = r"
            mkdir -p programs/x86_64
            echo 'int main(void) { return 0; }' >main.c
            cc -static -o programs/x86_64/staffetta main.c
            cp programs/x86_64/staffetta programs/x86_64/staffetta-cni
            cp -R programs/x86_64 programs/aarch64
            for program in programs/aarch64/*; do printf '\\xb7' | dd of=$program bs=1 seek=18 conv=notrunc; done
            ssh-keygen -q -t ed25519 -N '' -C releases -f key";
        let output = shell(folder.path(), script);
        assert!(output.status.success(), "{output:?}");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, name: &str, key: bool) -> Output {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("etc/release"));
        command.arg("--programs").arg(self.path().join("programs")).arg(self.path().join(name));
        command.env("SOURCE_DATE_EPOCH", "86400").env_remove("STAFFETTA_RELEASE_KEY");
        if key {
            command.env("STAFFETTA_RELEASE_KEY", self.path().join("key"));
        }
        command.output().unwrap()
    }

    /// Makes a signed release in the folder `name`.
    pub(crate) fn release(&self, name: &str) -> PathBuf {
        let output = self.run(name, true);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.path().join(name)
    }
}

#[test]
#[ignore = "needs jq, ssh-keygen and a static libc: devstack/real/test"]
fn two_releases_are_the_same_bytes_and_their_digests_are_signed() {
    let workshop = Workshop::new();
    let one = workshop.release("one");
    assert!(shell(workshop.path(), "touch programs/*/*; chmod 700 programs/*/*").status.success());
    assert!(workshop.run("other", false).status.success());
    let script =
        concat!("STAFFETTA_RELEASE_KEY=$PWD/key ", env!("CARGO_MANIFEST_DIR"), "/etc/release --sign other");
    assert!(shell(workshop.path(), script).status.success());
    let same = shell(workshop.path(), "diff -r one other");
    assert!(same.status.success(), "{same:?}");

    let mut names: Vec<_> =
        fs::read_dir(&one).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let of_version = [
        "aarch64-linux.tar.gz",
        "aarch64.cdx.json",
        "chart.tar",
        "chart.tgz",
        "image.tar",
        "x86_64-linux.tar.gz",
        "x86_64.cdx.json",
    ];
    let of_version = of_version.map(|name| format!("staffetta-{VERSION}-{name}"));
    let expected = ["SHA256SUMS", "SHA256SUMS.sig"].map(str::to_owned).into_iter().chain(of_version);
    assert_eq!(names, expected.collect::<Vec<_>>());
    let listed = format!("tar -tzf staffetta-{VERSION}-x86_64-linux.tar.gz");
    let listed = String::from_utf8(shell(&one, &listed).stdout).unwrap();
    assert_eq!(
        listed,
        "x86_64/\nx86_64/CHANGELOG.md\nx86_64/LICENSE\nx86_64/staffetta\nx86_64/staffetta-cni\n"
    );

    let verify = "sha256sum --check --quiet SHA256SUMS
        echo \"releases $(cat ../key.pub)\" >../signers
        ssh-keygen -Y verify -f ../signers -I releases -n staffetta-release -s SHA256SUMS.sig <SHA256SUMS";
    let verified = shell(&one, verify);
    assert!(verified.status.success(), "{verified:?}");
    fs::write(one.join("SHA256SUMS"), "").unwrap();
    assert!(
        !shell(&one, &verify[verify.find("ssh-keygen").unwrap()..]).status.success(),
        "another text is signed too"
    );
}

#[test]
#[ignore = "needs jq, ssh-keygen and a static libc: devstack/real/test"]
fn the_bill_of_materials_lists_what_is_linked_with_the_digests_of_the_lock_file() {
    let workshop = Workshop::new();
    let path = workshop.release("release").join(format!("staffetta-{VERSION}-x86_64.cdx.json"));
    let bill: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
    assert_eq!(bill["metadata"]["timestamp"], "1970-01-02T00:00:00Z");
    let components = bill["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|component| component["name"] == name);
    let kube = named("kube").unwrap();
    let lock = text("Cargo.lock");
    let (_, locked) = lock.split_once("name = \"kube\"\n").unwrap();
    let checksum = locked.split_once("checksum = \"").unwrap().1.split('"').next().unwrap();
    assert_eq!(kube["hashes"][0]["content"], checksum);
    assert_eq!(kube["licenses"][0]["expression"], "Apache-2.0");
    assert_eq!(named("staffetta-cni").unwrap()["version"], VERSION);
    for absent in ["wiremock", "serde_derive", "staffetta-apiserver"] {
        assert!(named(absent).is_none(), "{absent} is not linked");
    }
    let dependencies = bill["dependencies"].as_array().unwrap();
    let of_kube = dependencies.iter().find(|entry| entry["ref"] == kube["bom-ref"]).unwrap();
    assert!(of_kube["dependsOn"].to_string().contains("pkg:cargo/kube-client@"), "{of_kube}");
}

#[test]
#[ignore = "needs jq, ssh-keygen and a static libc: devstack/real/test"]
fn a_release_says_what_it_lacks_and_refuses_programs_that_need_libraries() {
    let workshop = Workshop::new();
    fs::remove_dir_all(workshop.path().join("programs/aarch64")).unwrap();
    let output = workshop.run("release", false);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("THE RELEASE HAS NO PROGRAM FOR aarch64"), "{said}");
    assert!(said.contains("THE RELEASE IS NOT SIGNED"), "{said}");

    fs::copy("/bin/true", workshop.path().join("programs/x86_64/staffetta-cni")).unwrap();
    let output = workshop.run("another", false);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("staffetta-cni is not static"), "{said}");
}
