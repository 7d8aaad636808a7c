//! The writes of the program, by the audit log of a real API server.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The rules of the log: the metadata of each completed request that changes something.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: None
    verbs: [get, list, watch]
  - level: Metadata
";

/// The audit log of an API server.
pub(crate) struct AuditLog {
    policy: PathBuf,
    log: PathBuf,
    read: u64,
}

impl AuditLog {
    /// Prepares a log in a folder.
    pub(crate) fn prepare(folder: &Path) -> Self {
        let (policy, log) = (folder.join("policy.yaml"), folder.join("audit.log"));
        std::fs::write(&policy, POLICY).expect("the folder can be written");
        Self { policy, log, read: 0 }
    }

    /// The flags of a server that writes the log, to one file whatever its size.
    pub(crate) fn flags(&self) -> [String; 3] {
        let (policy, log) = (self.policy.display(), self.log.display());
        [
            format!("--audit-policy-file={policy}"),
            format!("--audit-log-path={log}"),
            "--audit-log-maxsize=100000".to_owned(),
        ]
    }

    /// Forgets what was logged so far.
    pub(crate) fn skip(&mut self) {
        self.read = std::fs::metadata(&self.log).map_or(0, |log| log.len());
    }

    /// The number of writes of the program since the last call, by resource and verb: `leases patch`, `nodes/status patch`.
    pub(crate) fn writes(&mut self) -> BTreeMap<String, u64> {
        let mut log = std::fs::File::open(&self.log).expect("the server writes a log");
        log.seek(SeekFrom::Start(self.read)).expect("a file can be read from anywhere");
        let mut text = String::new();
        log.read_to_string(&mut text).expect("the log is text");
        // The last line may be incomplete.
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += end as u64;
        let mut writes = BTreeMap::new();
        for line in text[..end].lines() {
            let record: Value = serde_json::from_str(line).expect("the audit log is JSON, a record a line");
            if !record["userAgent"].as_str().is_some_and(|agent| agent.starts_with("staffetta/")) {
                continue;
            }
            let object = &record["objectRef"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut name = text(&object["resource"]);
            if let Some(subresource) = object["subresource"].as_str() {
                name = format!("{name}/{subresource}");
            }
            *writes.entry(format!("{name} {}", text(&record["verb"]))).or_default() += 1;
        }
        writes
    }
}
