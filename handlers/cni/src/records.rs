//! The record of each bound pod. It is written before anything is changed in the kernel, and removed after everything is undone, so
//! that a daemon that was killed finds all that it has to remove. A record says who may use a VIF, and not what is in the kernel: a driver
//! removes only what has the mark of the record's owner.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use staffetta_cni::conflist::install;
use staffetta_driver::{Vif, VifAttachment, VifClass};
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
    /// Returns the sandbox and the interface that the container runtime named in `ADD`.
    pub(crate) fn owner(&self) -> &str {
        self.attachments.first().map_or("", |default| &default.owner)
    }

    /// Returns the port, MAC address or IP address that both records have and only one pod of a node may have; `None` if there is none.
    fn conflict(&self, other: &Self) -> Option<String> {
        let mut pairs = self
            .attachments
            .iter()
            .flat_map(|ours| other.attachments.iter().map(move |theirs| (ours, theirs)));
        pairs.find_map(|(ours, theirs)| {
            // Interfaces on the node are named after the start of the id.
            if ours.host_interface() == theirs.host_interface() {
                return Some(format!("the port {}", ours.vif.id));
            }
            let (ours, theirs) = (&ours.vif, &theirs.vif);
            if ours.address == theirs.address {
                return Some(format!("the MAC address {}", ours.address));
            }
            // Other networks may have the same addresses.
            let may_share = ours.network.id != theirs.network.id
                && (segment(ours).is_none() || segment(ours) != segment(theirs));
            let mut shared = ours.ips().filter(|_| !may_share);
            shared.find(|ip| theirs.ips().any(|other| other == *ip)).map(|ip| format!("the address {ip}"))
        })
    }
}

/// Returns the part of the node's network in which a VIF is, whatever network the annotation names: its Linux bridge, or that of the node
/// itself for all macvlan interfaces. `None` if only the network says it.
fn segment(vif: &Vif) -> Option<&str> {
    match &vif.class {
        VifClass::Bridge { bridge_name, .. } => Some(bridge_name),
        VifClass::MacvlanNested { .. } => Some(""),
        _ => None,
    }
}

/// The records of all pods whose VIFs are bound or about to be, in memory and as files.
pub struct Records {
    folder: PathBuf,
    /// The id of this boot of the node.
    pub(crate) boot_id: String,
    by_uid: Mutex<HashMap<String, Record>>,
    /// The lock on the folder, for as long as this value exists.
    _lock: Option<File>,
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
    /// Reads the records in `folder`, which no other process may use meanwhile. Fails if another daemon uses it.
    pub fn open(folder: &Path) -> Result<Self, RecordError> {
        let failed = |source| RecordError { path: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::open(folder).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => failed(io::Error::other("another daemon uses it")),
            TryLockError::Error(error) => failed(error),
        })?;
        Ok(Self { _lock: Some(lock), ..Self::read(folder)? })
    }

    /// Reads the records in `folder`, and removes the temporary files of a writer that was killed. A record that cannot be read is logged
    /// and left: a power failure cuts off files, and then no network namespace is left either. Other files are ignored.
    pub(crate) fn read(folder: &Path) -> Result<Self, RecordError> {
        let failed = |source| RecordError { path: folder.to_owned(), source };
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
        Ok(Self { folder: folder.to_owned(), boot_id, by_uid: Mutex::new(records), _lock: None })
    }

    /// Returns the record of the pod with this UID; `None` if there is none.
    pub(crate) fn get(&self, uid: &str) -> Option<Record> {
        self.records().get(uid).cloned()
    }

    /// Returns the record with this owner; `None` if there is none.
    pub(crate) fn of_owner(&self, owner: &str) -> Option<Record> {
        self.records().values().find(|record| record.owner() == owner).cloned()
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

    /// Removes the record of the pod with this UID, from memory and from the disk. Succeeds if there is none. A file that cannot be removed
    /// is logged and left: nothing is bound any more, and the next daemon finds nothing to unbind.
    pub(crate) fn remove(&self, uid: &str) {
        let mut records = self.records();
        let path = self.path(uid);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            let path = path.display();
            warn!(%path, %error, "the record of a pod that is unbound cannot be removed");
        }
        records.remove(uid);
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{uid}.json"))
    }

    fn records(&self) -> MutexGuard<'_, HashMap<String, Record>> {
        self.by_uid.lock()
    }
}
