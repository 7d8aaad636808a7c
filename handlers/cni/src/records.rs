//! The record of each bound pod. It is written before anything is changed in the kernel, and removed after everything is undone, so
//! that a daemon that was killed finds all that it has to remove.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use staffetta_cni::conflist::install;
use staffetta_driver::{VifAttachment, VifClass};
use tracing::warn;

/// A pod whose VIFs are bound, or were about to be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The UID of the pod.
    pub(crate) uid: String,
    /// The namespace of the pod.
    pub(crate) namespace: String,
    /// The name of the pod.
    pub(crate) name: String,
    /// The id of the pod's sandbox.
    pub(crate) container_id: String,
    /// The id of the boot of the node. The network namespaces of an earlier boot do not exist.
    pub(crate) boot_id: String,
    /// The VIFs of the pod, each with its network namespace and interface, the default VIF first.
    pub(crate) attachments: Vec<VifAttachment>,
}

impl Record {
    /// Returns the port, MAC address or IP address that both records have and only one pod of a node may have; `None` if there is none.
    fn conflict(&self, other: &Self) -> Option<String> {
        let mut pairs = self
            .attachments
            .iter()
            .flat_map(|ours| other.attachments.iter().map(move |theirs| (&ours.vif, &theirs.vif)));
        pairs.find_map(|(ours, theirs)| {
            if ours.id == theirs.id {
                return Some(format!("the port {}", ours.id));
            }
            if ours.address == theirs.address {
                return Some(format!("the MAC address {}", ours.address));
            }
            // Other networks may have the same addresses. All macvlan interfaces of a node are in the network of the node, whatever
            // network the annotation names.
            let in_node_network = matches!(ours.class, VifClass::MacvlanNested { .. });
            let may_share = ours.network.id != theirs.network.id && !in_node_network;
            let mut shared = ours.ips().filter(|_| !may_share);
            shared.find(|ip| theirs.ips().any(|other| other == *ip)).map(|ip| format!("the address {ip}"))
        })
    }
}

/// The records of all pods whose VIFs are bound or about to be, in memory and as files.
pub struct Records {
    folder: PathBuf,
    /// The id of this boot of the node.
    pub(crate) boot_id: String,
    by_uid: Mutex<HashMap<String, Record>>,
}

/// The error of a record that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the record {} (`cni_daemon.state_folder`)", path.display())]
pub struct RecordError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// The reason why a record was not added.
#[derive(Debug)]
pub(crate) enum ClaimError {
    /// Another pod has the same port or address: that pod's record, and the property.
    Taken(Box<Record>, String),
    /// The record cannot be written to its file.
    Unwritten(RecordError),
}

impl Records {
    /// Reads the records in `folder`, and removes the temporary files of a writer that was killed. A record that cannot be read is logged
    /// and left: a power failure cuts off files, and then no network namespace is left either. Other files are ignored.
    pub fn open(folder: &Path) -> Result<Self, RecordError> {
        let failed = |source| RecordError { path: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut records = HashMap::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let is_hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            match path.extension().and_then(OsStr::to_str) {
                Some("json") => {}
                Some("tmp") if is_hidden => {
                    let _ = fs::remove_file(&path);
                    continue;
                }
                _ => continue,
            }
            match fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<Record>(&text)?)) {
                Ok(record) => drop(records.insert(record.uid.clone(), record)),
                Err(error) => {
                    let path = path.display();
                    warn!(%path, %error, "a file is not the record of a pod; delete it if a power failure has cut it off");
                }
            }
        }
        let boot_id =
            fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed)?.trim().to_owned();
        Ok(Self { folder: folder.to_owned(), boot_id, by_uid: Mutex::new(records) })
    }

    /// Returns the record of the pod with this UID; `None` if there is none.
    pub(crate) fn get(&self, uid: &str) -> Option<Record> {
        self.records().get(uid).cloned()
    }

    /// Returns the record of the pod whose sandbox has this id; `None` if there is none.
    pub(crate) fn of_container(&self, container_id: &str) -> Option<Record> {
        self.records().values().find(|record| record.container_id == container_id).cloned()
    }

    /// Returns all records.
    pub(crate) fn all(&self) -> Vec<Record> {
        self.records().values().cloned().collect()
    }

    /// Adds a record or replaces that of the same pod, unless another pod has the same port or address. The check and the addition are
    /// atomic, so that of two pods with the same VIF at most one is bound.
    pub(crate) fn claim(&self, record: Record) -> Result<(), ClaimError> {
        let mut records = self.records();
        let mut others = records.values().filter(|other| other.uid != record.uid);
        let conflict = others.find_map(|other| Some((other.clone(), record.conflict(other)?)));
        if let Some((other, property)) = conflict {
            return Err(ClaimError::Taken(Box::new(other), property));
        }
        let path = self.path(&record.uid);
        let text =
            serde_json::to_vec(&record).expect("keys are strings and no number is without a JSON form");
        install(&path, &text, 0o600).map_err(|source| ClaimError::Unwritten(RecordError { path, source }))?;
        records.insert(record.uid.clone(), record);
        Ok(())
    }

    /// Removes the record of the pod with this UID, from memory and from the disk. Succeeds if there is none.
    pub(crate) fn remove(&self, uid: &str) -> Result<(), RecordError> {
        let mut records = self.records();
        let path = self.path(uid);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(RecordError { path, source });
            }
            _ => {}
        }
        records.remove(uid);
        Ok(())
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{uid}.json"))
    }

    fn records(&self) -> MutexGuard<'_, HashMap<String, Record>> {
        self.by_uid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
