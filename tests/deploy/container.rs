//! A stand-in for a container of the image: the program sees only the files of the image, runs as an unprivileged user, and
//! cannot write anywhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{PROGRAM, folder};

/// Runs etc/deploy/image to its good end.
pub(crate) fn image(arguments: &[&Path]) {
    let output =
        Command::new(folder().join("image")).env("SOURCE_DATE_EPOCH", "0").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The files of the image with what the kubelet adds to them.
pub(crate) struct Container {
    place: TempDir,
    home: TempDir,
}

impl Container {
    /// The image, unpacked.
    pub(crate) fn new() -> Self {
        let container = Self { place: tempfile::tempdir().unwrap(), home: tempfile::tempdir().unwrap() };
        image(&["rootfs".as_ref(), PROGRAM.as_ref(), &container.root()]);
        container
    }

    fn root(&self) -> PathBuf {
        self.place.path().join("rootfs")
    }

    /// A folder that is there under the same path within and without.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Puts a file at a path within, as the kubelet mounts one.
    pub(crate) fn put(&self, path: &str, content: &str) {
        let file = self.root().join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    /// A script that runs the program inside the image; panics if unshare(1) is not allowed.
    pub(crate) fn program(&self) -> PathBuf {
        let (root, home) = (self.root(), self.home());
        let script = format!(
            r#"#!/bin/sh
if [ "$(id -u)" = 0 ]; then nobody=--userspec=65532:65532; else user='--user --map-root-user'; fi
# shellcheck disable=SC2086
exec unshare --mount $user sh -ec '
  mount --bind {root} {root}
  mkdir -p {root}{home}
  mount --bind {home} {root}{home}
  mount -o remount,bind,ro {root}
  mount -o remount,bind,ro {root}{home}
  exec chroot '$nobody' {root} /usr/bin/staffetta "$@"' sh "$@"
"#,
            root = root.display(),
            home = home.display()
        );
        let program = root.with_extension("sh");
        fs::write(&program, script).unwrap();
        for (path, mode) in [(&*program, 0o755), (home, 0o755)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let allowed = Command::new("unshare").args(["--mount", "--map-root-user", "true"]).output();
        let allowed = allowed.is_ok_and(|output| output.status.success());
        assert!(allowed, "unshare(1) is not allowed to create a mount namespace");
        program
    }
}
