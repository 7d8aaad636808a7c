//! Runs work in the network namespace of a pod.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use rustix::fs::OFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use staffetta_driver::{DriverError, Reason};

use crate::error::failed;
use crate::netlink::RouteSocket;

/// The rtnetlink sockets of a thread that has moved from the network namespace of the node into that of a pod.
pub(crate) struct NetworkNamespaces {
    /// A socket that configures the network of the node.
    pub(crate) host: RouteSocket,
    /// A socket that configures the network of the pod.
    pub(crate) pod: RouteSocket,
    netns: File,
}

impl NetworkNamespaces {
    /// Returns the file descriptor of the pod's network namespace, to create an interface in it.
    pub(crate) fn netns(&self) -> RawFd {
        self.netns.as_raw_fd()
    }
}

/// Runs `work` on a thread of its own that has moved into the network namespace `netns`. The thread then ends, so that no unrelated work
/// of this program ever runs in that namespace.
///
/// Fails with [`Reason::NotFound`] if the namespace does not exist or cannot be entered, and with [`Reason::Refused`] if it is that of the
/// node.
pub(crate) fn run_in_namespace<T: Send>(
    netns: &Path,
    work: impl FnOnce(&NetworkNamespaces) -> Result<T, DriverError> + Send,
) -> Result<T, DriverError> {
    let enter = || {
        let namespaces = enter(netns)?;
        work(&namespaces)
    };
    thread::scope(|scope| scope.spawn(enter).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// Moves the calling thread into the network namespace at `path`, and returns sockets in both namespaces. The thread must end afterwards.
/// Refuses the namespace of the node itself, in which the interface of a pod would replace one of the node.
fn enter(path: &Path) -> Result<NetworkNamespaces, DriverError> {
    const STEP: &str = "enter the network namespace of the pod";
    let missing = |error: io::Error| {
        DriverError::new(Reason::NotFound, STEP).detail(path.display().to_string()).because(error)
    };
    // A named pipe does not open before somebody writes to it.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let netns = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(missing)?;
    let (there, here) =
        (netns.metadata(), File::open("/proc/thread-self/ns/net").and_then(|file| file.metadata()));
    let (there, here) = (there.map_err(failed(STEP))?, here.map_err(failed(STEP))?);
    if (there.dev(), there.ino()) == (here.dev(), here.ino()) {
        return Err(DriverError::new(Reason::Refused, STEP)
            .detail(format!("{} is the namespace of the node", path.display())));
    }
    let host = RouteSocket::open().map_err(failed(STEP))?;
    move_into_link_name_space(netns.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|error| missing(error.into()))?;
    let pod = RouteSocket::open().map_err(failed(STEP))?;
    Ok(NetworkNamespaces { host, pod, netns })
}
