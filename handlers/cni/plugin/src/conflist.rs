//! The configuration list that the container runtime reads, and the atomic installation of files.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{io, iter};

use serde_json::{Value, json};

use crate::version::VERSIONS;

/// The file name of the configuration list. A runtime uses the first file in alphabetical order, and Kuryr's is `10-kuryr.conflist`.
pub const FILE: &str = "05-staffetta.conflist";
/// The file name of the plugin's program, by which a configuration list names the plugin.
pub const PLUGIN: &str = "staffetta-cni";

/// The CNI reference plugins to which the configuration list gives a capability, each with the name of the capability. The runtime passes
/// host ports and rates only to plugins with these capabilities.
const CAPABILITIES: [(&str, &str); 2] = [("portmap", "portMappings"), ("bandwidth", "bandwidth")];

/// Returns the configuration list for a daemon at `daemon`, with the plugins called `chained` after ours. The CNI version of the list is
/// 1.0.0, because containerd 1.6 knows no later one. The list offers all of [`VERSIONS`] only if ours is the only plugin: others may not
/// know them.
pub fn conflist(daemon: &str, chained: &[String]) -> String {
    let ours = json!({ "type": PLUGIN, "daemon": daemon });
    let plugins: Vec<Value> =
        iter::once(ours).chain(chained.iter().map(|name| chained_plugin(name))).collect();
    let mut list = json!({ "cniVersion": "1.0.0", "name": "staffetta", "plugins": plugins });
    if chained.is_empty() {
        list["cniVersions"] = json!(VERSIONS);
    }
    format!("{list:#}\n")
}

fn chained_plugin(name: &str) -> Value {
    match CAPABILITIES.iter().find(|(plugin, _)| *plugin == name) {
        Some((_, capability)) => json!({ "type": name, "capabilities": { *capability: true } }),
        None => json!({ "type": name }),
    }
}

/// Replaces a file atomically, by renaming a temporary file in the same folder, and sets its mode. If the file has that content
/// already, only the mode is set.
pub fn install(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    if fs::read(path).is_ok_and(|existing| existing == content) {
        return fs::set_permissions(path, Permissions::from_mode(mode));
    }
    let temporary = temporary(path);
    let write = || {
        fs::write(&temporary, content)?;
        fs::set_permissions(&temporary, Permissions::from_mode(mode))?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&temporary)))
}

/// Returns the path of a hidden temporary file beside `path`. Its extension `.tmp` is none that a container runtime reads.
fn temporary(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_file_is_whole_and_nothing_else_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        install(&path, b"old", 0o644).unwrap();
        install(&path, conflist("/run/x.sock", &[]).as_bytes(), 0o600).unwrap();
        let list: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(list["plugins"][0], json!({ "type": "staffetta-cni", "daemon": "/run/x.sock" }));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn chained_plugins_get_their_capabilities_and_no_version_that_they_may_not_know() {
        let chained = ["portmap", "bandwidth", "tuning"].map(str::to_owned);
        let list: Value = serde_json::from_str(&conflist("/run/x.sock", &chained)).unwrap();
        let expected = json!([
            { "type": "staffetta-cni", "daemon": "/run/x.sock" },
            { "type": "portmap", "capabilities": { "portMappings": true } },
            { "type": "bandwidth", "capabilities": { "bandwidth": true } },
            { "type": "tuning" },
        ]);
        assert_eq!((&list["plugins"], &list["cniVersions"]), (&expected, &Value::Null));
        let alone: Value = serde_json::from_str(&conflist("/run/x.sock", &[])).unwrap();
        assert_eq!(alone["cniVersions"], json!(VERSIONS));
    }

    #[test]
    fn the_list_comes_before_that_of_kuryr() {
        assert!(FILE < "10-kuryr.conflist");
    }
}
