//! Devices as servers: a site has a thread and a clock of its own, and each device on it an address.

mod authority;
mod control;
mod device;
mod door;
mod handle;
mod shared;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use authority::Authority;
pub use device::Device;

use crate::options::Options;

/// A place with devices. All of them end when it is dropped: nothing is listened to any more, and all connections are cut.
///
/// It has a thread and a clock of its own, so that neither a busy nor a paused runtime of its users disturbs it.
pub struct Site {
    authority: Authority,
    devices: Arc<Mutex<Vec<Device>>>,
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Site {
    /// A place without devices. The error is that of its thread, or of its certificates.
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

    /// One more device. The error is that of the address, on which it cannot listen, or of its certificate.
    pub fn device(&self, options: Options) -> io::Result<Device> {
        let device = Device::start(options, &self.authority, &self.handle)?;
        self.lock().push(device.clone());
        Ok(device)
    }

    /// The devices, oldest first.
    pub fn devices(&self) -> Vec<Device> {
        self.lock().clone()
    }

    /// The certificate (PEM) of the authority that has signed those of the devices.
    pub fn authority(&self) -> &str {
        self.authority.pem()
    }

    /// A certificate and its key (PEM), signed by that authority, for a client of devices that ask for one.
    pub fn client_certificate(&self) -> io::Result<(String, String)> {
        self.authority.client()
    }

    /// Lets other processes look at the devices and break them, over HTTP; the crate says how. Port 0 takes a free one.
    pub fn control(&self, listen: SocketAddr) -> io::Result<SocketAddr> {
        control::serve(listen, Arc::clone(&self.devices), &self.handle)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Device>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
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
