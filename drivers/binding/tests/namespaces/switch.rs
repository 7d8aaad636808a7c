//! A real Open vSwitch.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::fs::File;
use std::path::PathBuf;

use super::node::{sh, succeeds};

/// Open vSwitch with a datapath in userspace, in a folder of its own.
pub(crate) struct OpenVSwitch {
    folder: tempfile::TempDir,
    /// The lock of the only Open vSwitch on this machine: a second one cannot create its interface `ovs-netdev`.
    _only: File,
}

impl OpenVSwitch {
    pub(crate) fn start(bridge: &str) -> Self {
        let only = File::create(std::env::temp_dir().join("staffetta-test-open-vswitch")).unwrap();
        only.lock().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        sh(&format!(
            "export OVS_RUNDIR={path} OVS_DBDIR={path} OVS_LOGDIR={path}; cd {path}; \
             ovsdb-tool create conf.db /usr/share/openvswitch/vswitch.ovsschema; \
             ovsdb-server conf.db --remote=punix:db.sock --detach --no-chdir --pidfile --log-file >/dev/null 2>&1; \
             ovs-vsctl --db=unix:{path}/db.sock --no-wait init; \
             ovs-vswitchd unix:{path}/db.sock --detach --no-chdir --pidfile --log-file >/dev/null 2>&1; \
             ovs-vsctl --db=unix:{path}/db.sock add-br {bridge} -- set bridge {bridge} datapath_type=netdev"
        ));
        Self { folder, _only: only }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("db.sock")
    }

    /// Sends a signal to the daemon `ovs-vswitchd`, which applies what the database says.
    pub(crate) fn kill(&self, name: &str) {
        sh(&format!("kill -{name} $(cat {}/ovs-vswitchd.pid)", self.folder.path().display()));
    }

    pub(crate) fn vsctl(&self, command: &str) -> String {
        sh(&format!("ovs-vsctl --db=unix:{} {command}", self.socket().display()))
    }
}

impl Drop for OpenVSwitch {
    fn drop(&mut self) {
        let path = self.folder.path().display();
        // With its interfaces, of which a failed test leaves some.
        let _ = succeeds(&format!(
            "kill -CONT $(cat {path}/ovs-vswitchd.pid); ovs-appctl --timeout=10 --target={path}/ovs-vswitchd.$(cat {path}/ovs-vswitchd.pid).ctl exit --cleanup"
        ));
        let _ = succeeds(&format!("kill $(cat {path}/ovsdb-server.pid)"));
        // Before the lock is released.
        let _ = succeeds("for _ in $(seq 100); do ip link show ovs-netdev || exit 0; sleep 0.1; done");
    }
}
