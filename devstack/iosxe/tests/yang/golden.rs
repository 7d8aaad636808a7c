//! The bodies that the driver sends, as it keeps them beside its tests.

use std::path::{Path, PathBuf};

use crate::yanglint::{Kind, Yanglint};

/// The bodies of the driver, by whether they are configuration or operations, as their names say.
fn bodies() -> Vec<(PathBuf, Kind)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drivers/iosxe/tests/golden");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files = files.map(|file| file.unwrap().path());
    let kind = |file: &Path| {
        let name = file.file_name()?.to_str()?.strip_suffix(".json")?;
        match (name.contains("config"), name.contains("rpc")) {
            (true, false) => Some(Kind::Config),
            (false, true) => Some(Kind::Rpc),
            _ => panic!("{name} says neither config nor rpc"),
        }
    };
    files.filter_map(|file| Some((file.clone(), kind(&file)?))).collect()
}

#[test]
#[ignore = "needs yanglint and the YANG modules: devstack/real/test"]
fn yanglint_finds_every_body_that_the_driver_sends_valid() {
    let bodies = bodies();
    for kind in [Kind::Config, Kind::Rpc] {
        let count = bodies.iter().filter(|(_, one)| *one == kind).count();
        assert!(count >= 5, "{count} bodies are {kind:?}");
    }
    let yanglint = Yanglint::find();
    for (file, kind) in bodies {
        let body = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(yanglint.complaint(kind, &body), None, "{}", file.display());
    }
}
