//! The kubeconfig file with which kubectl connects to the API server.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A kubeconfig that exists as long as the server does which it names.
#[derive(Debug)]
pub(crate) struct KubeconfigFile(PathBuf);

impl KubeconfigFile {
    /// Writes the file for nobody else to read. What exists is not overwritten: it might be somebody's own kubeconfig.
    pub(crate) fn write(path: &Path, text: &str) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        Ok(Self(std::path::absolute(path)?))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        // It may have been removed by hand, and there is nobody left to tell.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn it_is_private_overwrites_nothing_and_goes_with_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        let file = KubeconfigFile::write(&path, "kind: Config").unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        let again = KubeconfigFile::write(&path, "").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kind: Config");
        drop(file);
        assert!(!path.exists());
    }
}
