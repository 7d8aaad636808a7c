//! Tests of the image: the program runs with its files alone, and the image conforms to the image specifications.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};

use crate::container::{Container, image};
use crate::folder;
use crate::process::Process;
use crate::rendered::{file, objects};

#[tokio::test]
#[ignore = "needs unshare(1) with mount namespaces: devstack/real/test"]
async fn the_program_runs_from_it_alone_as_nobody_and_writes_nothing() {
    let container = Container::new();
    container.put("/etc/staffetta/staffetta.toml", file(&objects("iosxe")));
    container.put("/etc/hosts", "127.0.0.1 api.test\n");
    let program = container.program();

    for (arguments, answer) in [
        (&["--version"][..], concat!("staffetta ", env!("CARGO_PKG_VERSION"), "\n")),
        (&["config", "check"], "ok\n"),
    ] {
        let output = Command::new(&program).args(arguments).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), answer, "{output:?}");
    }

    // A name is looked up, and the whole of the program works.
    let server = ApiServer::start(Options::default()).await.unwrap();
    let kubeconfig = server.kubeconfig().replace("127.0.0.1", "api.test");
    assert_ne!(kubeconfig, server.kubeconfig());
    let mut process = Process::start(&program, container.home(), "", &kubeconfig).await;
    process.ready().await;
    assert!(process.terminate().await.success());
}

#[test]
fn the_archive_is_an_oci_image_whose_digests_are_true_and_the_same_each_time() {
    let place = tempfile::tempdir().unwrap();
    let root = place.path().join("rootfs");
    image(&["rootfs".as_ref(), "/bin/true".as_ref(), &root]);
    let (one, other) = (place.path().join("one.tar"), place.path().join("other.tar"));
    image(&["archive".as_ref(), &one, &root]);
    let program = fs::File::options().append(true).open(root.join("usr/bin/staffetta")).unwrap();
    program.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)).unwrap();
    image(&["archive".as_ref(), &other, &root]);
    assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "two archives of the same files differ");

    let layout = Layout::unpacked(&one, place.path());
    assert_eq!(layout.json("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }));
    let index = layout.json("index.json");
    let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
    assert_eq!(name, concat!("docker.io/library/staffetta:", env!("CARGO_PKG_VERSION")));
    let manifest = layout.json(&layout.blob(&index["manifests"][0]));
    let config = layout.json(&layout.blob(&manifest["config"]));
    let layer = place.path().join("layer");
    layout.uncompress(&manifest["layers"][0], &layer);
    assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{}", sum(&layer))]));

    let unpacked = place.path().join("unpacked");
    unpack(&layer, &unpacked);
    for path in ["usr/bin/staffetta", "etc/passwd", "etc/ssl/certs/ca-certificates.crt"] {
        assert!(fs::read(unpacked.join(path)).unwrap() == fs::read(root.join(path)).unwrap(), "{path}");
    }
    let programs = fs::read_dir(unpacked.join("usr/bin")).unwrap();
    assert_eq!(programs.map(|program| program.unwrap().file_name()).collect::<Vec<_>>(), ["staffetta"]);
    as_the_container_file_says(&config["config"]);
}

#[test]
fn the_archive_of_two_architectures_has_an_index_of_their_images() {
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("image.tar");
    let mut arguments = vec![PathBuf::from("archive"), archive.clone()];
    for (architecture, machine) in [("amd64", 62), ("arm64", 183)] {
        let mut program = fs::read("/bin/true").unwrap();
        program[18] = machine; // in the header of a program for Linux
        let folder = place.path().join(architecture);
        fs::create_dir_all(folder.join("usr/bin")).unwrap();
        fs::write(folder.join("usr/bin/staffetta"), program).unwrap();
        arguments.push(folder);
    }
    image(&arguments.iter().map(PathBuf::as_path).collect::<Vec<_>>());

    let layout = Layout::unpacked(&archive, place.path());
    let named = layout.json("index.json");
    assert!(named["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"].is_string());
    let index = layout.json(&layout.blob(&named["manifests"][0]));
    let architectures: Vec<_> = index["manifests"]
        .as_array()
        .unwrap()
        .iter()
        .map(|descriptor| {
            let manifest = layout.json(&layout.blob(descriptor));
            let config = layout.json(&layout.blob(&manifest["config"]));
            assert_eq!(config["architecture"], descriptor["platform"]["architecture"]);
            config["architecture"].clone()
        })
        .collect();
    assert_eq!(architectures, ["amd64", "arm64"]);
}

/// An OCI image layout.
struct Layout(PathBuf);

impl Layout {
    fn unpacked(archive: &Path, place: &Path) -> Self {
        let folder = place.join("layout");
        unpack(archive, &folder);
        Self(folder)
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_slice(&fs::read(self.0.join(path)).unwrap()).unwrap()
    }

    /// The path of what a descriptor describes truly.
    fn blob(&self, descriptor: &Value) -> String {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
        let path = format!("blobs/sha256/{digest}");
        assert_eq!(descriptor["size"], json!(fs::read(self.0.join(&path)).unwrap().len()));
        assert_eq!(sum(&self.0.join(&path)), digest);
        path
    }

    fn uncompress(&self, layer: &Value, into: &Path) {
        assert_eq!(layer["mediaType"], "application/vnd.oci.image.layer.v1.tar+gzip");
        let output = Command::new("gzip").arg("-dc").arg(self.0.join(self.blob(layer))).output().unwrap();
        assert!(output.status.success());
        fs::write(into, output.stdout).unwrap();
    }
}

fn sum(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// The archive and the Containerfile say the same in two languages.
fn as_the_container_file_says(config: &Value) {
    let text = fs::read_to_string(folder().join("Containerfile")).unwrap();
    let said = |word: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap();
        serde_json::from_str(line).unwrap_or_else(|_| json!(line.trim()))
    };
    assert_eq!(said("USER"), config["User"]);
    assert_eq!(json!([said("ENV")]), config["Env"]);
    assert_eq!((said("ENTRYPOINT"), said("CMD")), (config["Entrypoint"].clone(), config["Cmd"].clone()));
}

fn unpack(archive: &Path, into: &Path) {
    fs::create_dir(into).unwrap();
    assert!(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(into).status().unwrap().success());
}
