//! Tests of the image: the program runs with its files alone, and the image conforms to the image specifications.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};

use crate::container::{Container, image};
use crate::folder;
use crate::process::Process;

#[tokio::test]
#[ignore = "needs unshare(1) with mount namespaces: devstack/real/test"]
async fn the_program_runs_from_it_alone_as_nobody_and_writes_nothing() {
    let container = Container::new();
    let configuration = fs::read_to_string(folder().join("base/staffetta.toml")).unwrap();
    container.put("/etc/staffetta/staffetta.toml", &configuration);
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
    image(&["archive".as_ref(), &root, &one]);
    let program = fs::File::options().append(true).open(root.join("usr/bin/staffetta")).unwrap();
    program.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400)).unwrap();
    image(&["archive".as_ref(), &root, &other]);
    assert!(fs::read(&one).unwrap() == fs::read(&other).unwrap(), "two archives of the same files differ");

    let layout = place.path().join("layout");
    unpack(&one, &layout);
    let read = |path: &str| fs::read(layout.join(path)).unwrap();
    let json = |path: &str| serde_json::from_slice::<Value>(&read(path)).unwrap();
    assert_eq!(json("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }));
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
        let path = format!("blobs/sha256/{digest}");
        assert_eq!(descriptor["size"], json!(read(&path).len()));
        let sum = Command::new("sha256sum").arg(layout.join(&path)).output().unwrap();
        assert!(String::from_utf8(sum.stdout).unwrap().starts_with(&digest));
        path
    };
    let index = json("index.json");
    let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
    assert_eq!(name, concat!("docker.io/library/staffetta:", env!("CARGO_PKG_VERSION")));
    let manifest = json(&blob(&index["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    let layer = &manifest["layers"][0];
    assert_eq!(config["rootfs"]["diff_ids"], json!([layer["digest"]]));

    let unpacked = place.path().join("unpacked");
    unpack(&layout.join(blob(layer)), &unpacked);
    for path in ["usr/bin/staffetta", "etc/passwd", "etc/ssl/certs/ca-certificates.crt"] {
        assert!(fs::read(unpacked.join(path)).unwrap() == fs::read(root.join(path)).unwrap(), "{path}");
    }
    as_the_container_file_says(&config["config"]);
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
