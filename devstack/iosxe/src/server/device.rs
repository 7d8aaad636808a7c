//! The handle by which a test observes and controls a device.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::authority::Authority;
use super::door;
use super::shared::Shared;
use crate::counts::Counts;
use crate::fault::{Fault, Install, Kept, Reachability, Requests};
use crate::ledger::{Entry, Ledger};
use crate::machine::Machine;
use crate::options::{Options, Tls};
use crate::view::HostedApp;

/// A running device. Clones of a handle refer to the same device, which lives as long as its site.
#[derive(Clone)]
pub struct Device(Arc<Shared>);

impl Device {
    pub(super) fn start(options: Options, authority: &Authority, handle: &Handle) -> io::Result<Self> {
        let listen = options.listen;
        let listener = std::net::TcpListener::bind(listen)
            .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on {listen}: {error}")))?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        let (tls, certificate) = if options.tls == Tls::Off {
            (None, None)
        } else {
            let (config, certificate) =
                authority.serve(&options.name, at.ip(), options.tls == Tls::Mutual)?;
            (Some(TlsAcceptor::from(config)), Some(certificate.to_vec()))
        };
        let inner = Arc::new(Shared {
            name: options.name.clone(),
            machine: Mutex::new(Machine::new(options, Instant::now(), Timestamp::now())),
            reachability: watch::Sender::default(),
            tls,
            certificate,
            at,
            handle: handle.clone(),
        });
        let entered = handle.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(entered);
        handle.spawn(door::keep(Arc::clone(&inner), at, listener));
        Ok(Self(inner))
    }

    /// Returns the host name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the listen address.
    pub fn address(&self) -> SocketAddr {
        self.0.at
    }

    /// Returns the URL of the device: `http://ADDRESS:PORT`, or `https://ADDRESS:PORT` with TLS.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.0.tls.is_some() { "https" } else { "http" }, self.0.at)
    }

    /// Returns the certificate (DER) of the device; `None` without TLS.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.0.certificate.as_deref()
    }

    /// Injects `fault` into the next `times` matching requests. If several faults match a request, the oldest applies.
    pub fn inject(&self, requests: Requests, times: usize, fault: Fault) {
        self.0.machine.lock().plan_fault(requests, times, fault);
    }

    /// Removes the faults of requests that have not occurred yet.
    pub fn clear_faults(&self) {
        self.0.machine.lock().plan.clear();
    }

    /// Returns the number of injected faults that have not occurred yet.
    pub fn pending_faults(&self) -> usize {
        self.0.machine.lock().plan.pending()
    }

    /// Defines the behaviour of the next `times` installations of apps whose name or package contains `part`.
    pub fn plan_installs(&self, part: &str, times: usize, install: Install) {
        self.0.machine.lock().plan_installs(part, times, install);
    }

    /// Changes the reachability of the device; open connections are closed.
    pub fn reach(&self, reachability: Reachability) {
        self.0.reachability.send_replace(reachability);
    }

    /// Reboots the device: it refuses connections for the time `down`, and then has the state that `kept` defines.
    pub fn reboot(&self, kept: Kept, down: Duration) {
        let now = Instant::now();
        self.0.machine.lock().reboot(kept, now, now + down);
        self.reach(Reachability::Refuses);
        let inner = Arc::clone(&self.0);
        self.0.handle.spawn(async move {
            tokio::time::sleep(down).await;
            inner.reachability.send_replace(Reachability::Up);
        });
    }

    /// Enables or disables app hosting. While it is disabled, the device reports this, lists no apps and accepts no operation;
    /// the apps reappear afterwards.
    pub fn host_apps(&self, hosts: bool) {
        self.0.machine.lock().iox.enabled = hosts;
    }

    /// Ends a running app, as if it had crashed. Returns `false` if no app of this name is running.
    pub fn crash(&self, app: &str) -> bool {
        let mut machine = self.0.machine.lock();
        machine.advance(Instant::now());
        machine.iox.crash(app, Instant::now())
    }

    /// Reports `state` in the operational data of an app, whatever its real state; `None` reports the real state again.
    pub fn show_state(&self, app: &str, state: Option<&str>) {
        self.0.machine.lock().iox.show(app, state);
    }

    /// Changes the credentials of the account and unlocks it.
    pub fn set_credentials(&self, username: &str, password: &str) {
        self.0.machine.lock().account.set(username, password);
    }

    /// Returns the apps that are configured or installed, sorted by name.
    pub fn apps(&self) -> Vec<HostedApp> {
        self.0.machine.lock().apps(Instant::now())
    }

    /// Returns the files that were copied to the device, or are being copied.
    pub fn files(&self) -> Vec<String> {
        self.0.machine.lock().iox.files.keys().cloned().collect()
    }

    /// Returns the events of its apps so far.
    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.entries(0))
    }

    /// Returns the entries of its ledger whose number is greater than `after`.
    pub fn entries(&self, after: u64) -> Vec<Entry> {
        let mut machine = self.0.machine.lock();
        machine.advance(Instant::now());
        machine.iox.event_log.entries(after)
    }

    /// Returns the counts of its requests so far.
    pub fn counts(&self) -> Counts {
        self.0.machine.lock().counts.clone()
    }

    /// Returns the number of requests that were rejected with 401.
    pub fn denied(&self) -> u64 {
        self.0.machine.lock().account.denied
    }

    /// Returns the number of times that the account was locked because of wrong passwords.
    pub fn locks(&self) -> u64 {
        self.0.machine.lock().account.locks
    }
}
