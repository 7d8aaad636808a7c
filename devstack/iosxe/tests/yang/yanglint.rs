//! The validator.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Names the folder of the modules.
const YANG_DIR: &str = "STAFFETTA_YANG_DIR";

const CFG: &str = "Cisco-IOS-XE-app-hosting-cfg";
const RPC: &str = "Cisco-IOS-XE-rpc";
const MODULES: [&str; 5] =
    [CFG, "Cisco-IOS-XE-app-hosting-oper", "Cisco-IOS-XE-arp-oper", "Cisco-IOS-XE-device-hardware-oper", RPC];

/// `yanglint` with the modules of IOS-XE.
pub(crate) struct Yanglint {
    pub(crate) modules: PathBuf,
}

/// The kind of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Configuration.
    Config,
    /// Operational data.
    Data,
    /// The input of an operation.
    Rpc,
    /// The output of an operation.
    Reply,
}

impl Yanglint {
    /// Finds the validator and the modules; panics if either is missing.
    pub(crate) fn find() -> Self {
        let modules = std::env::var_os(YANG_DIR).filter(|folder| !folder.is_empty());
        let modules = PathBuf::from(modules.unwrap_or_else(|| panic!("{YANG_DIR} is not set")));
        assert!(modules.join(format!("{CFG}.yang")).is_file(), "{YANG_DIR} has no {CFG}.yang");
        assert!(Command::new("yanglint").arg("--version").output().is_ok(), "yanglint is not on the PATH");
        Self { modules }
    }

    /// Returns the validator's error for a RESTCONF body; `None` if it is valid.
    pub(crate) fn complaint(&self, kind: Kind, body: &Value) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("body.json");
        std::fs::write(&file, document(kind, body).to_string()).unwrap();
        let kind = match kind {
            Kind::Config => "config",
            Kind::Data => "data",
            Kind::Rpc => "rpc",
            Kind::Reply => "reply",
        };
        self.run(&["-t", kind], &file).err()
    }

    /// A document of data in XML, as JSON.
    pub(crate) fn json(&self, xml: &Path) -> Value {
        let text = self.run(&["-t", "data", "-f", "json"], xml).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn run(&self, arguments: &[&str], file: &Path) -> Result<String, String> {
        let output = Command::new("yanglint")
            .arg("-p")
            .arg(&self.modules)
            .args(arguments)
            .args(MODULES.map(|module| self.modules.join(format!("{module}.yang"))))
            .arg(file)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).unwrap());
        }
        let errors: Vec<_> = errors.lines().filter(|line| !line.contains("libyang warn")).collect();
        assert!(!errors.is_empty(), "it failed without a word");
        Err(errors.join("\n"))
    }
}

/// A body of RESTCONF as a whole document, which it may be already: RESTCONF leaves out what the path says.
fn document(kind: Kind, body: &Value) -> Value {
    let operation = |member: &str| match body.get(format!("{RPC}:{member}")) {
        Some(content) => json!({ format!("{RPC}:app-hosting"): content }),
        None => body.clone(),
    };
    match kind {
        Kind::Rpc => operation("input"),
        Kind::Reply => operation("output"),
        Kind::Config => match body.get(format!("{CFG}:app")) {
            Some(app) => json!({ format!("{CFG}:app-hosting-cfg-data"): { "apps": { "app": app } } }),
            None => body.clone(),
        },
        Kind::Data => body.clone(),
    }
}
