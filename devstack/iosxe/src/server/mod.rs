//! Devices as servers: a site has its own thread and clock, and each of its devices has an address.

mod authority;
mod control;
mod device;
mod door;
mod handle;
mod shared;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use authority::Authority;
pub use device::Device;

use crate::options::Options;

/// A set of running devices. All of them stop when it is dropped: they no longer listen, and all connections are cut.
///
/// A site has its own thread and clock, so that a busy or paused tokio runtime of its user does not affect it.
pub struct Site {
    authority: Authority,
    devices: Arc<Mutex<Vec<Device>>>,
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    /// Starts a site without devices. Fails if its thread or its certificates cannot be created.
    pub fn start() -> io::Result<Self> {
        let authority = Authority::new()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("iosxe-devices".into()).spawn(move || {
            // The site says so, or is gone. The end of the runtime ends the connections too.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self { authority, devices: Arc::default(), handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Adds a device and starts it. Fails if it cannot listen on its address, or if its certificate cannot be created.
    pub fn device(&self, options: Options) -> io::Result<Device> {
        let device = Device::start(options, &self.authority, &self.handle)?;
        self.lock().push(device.clone());
        Ok(device)
    }

    /// Returns the devices, oldest first.
    pub fn devices(&self) -> Vec<Device> {
        self.lock().clone()
    }

    /// Returns the certificate (PEM) of the CA that signed the certificates of the devices.
    pub fn authority(&self) -> &str {
        self.authority.pem()
    }

    /// Creates a client certificate and its key (PEM), signed by the same CA, for devices that require one.
    pub fn client_certificate(&self) -> io::Result<(String, String)> {
        self.authority.client()
    }

    /// Starts the control API, by which other processes observe and control the devices over HTTP; see the documentation of the
    /// crate. Port 0 chooses a free port. Returns the address.
    pub fn control(&self, listen: SocketAddr) -> io::Result<SocketAddr> {
        control::serve(listen, Arc::clone(&self.devices), &self.handle)
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<Device>> {
        self.devices.lock()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed; there is nothing left to end.
            let _ = thread.join();
        }
    }
}
