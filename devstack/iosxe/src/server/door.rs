//! The listening socket of a device and its connections, which depend on its reachability.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::handle::handle;
use super::shared::Shared;
use crate::fault::Reachability;

/// The maximum number of connections waiting to be accepted.
const BACKLOG: u32 = 1024;
/// The wait before what failed for a lack of something is tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// Keeps the address of a device for ever.
pub(super) async fn keep(device: Arc<Shared>, at: SocketAddr, mut listener: TcpListener) {
    let mut reachability = device.reachability.subscribe();
    loop {
        if *reachability.borrow_and_update() == Reachability::Refuses {
            drop(listener);
            // A socket that is bound and does not listen: its port stays ours, and connections are refused.
            let placeholder = hold(at).await;
            // The device owns the sender, and is held here.
            let _ = reachability.wait_for(|now| *now != Reachability::Refuses).await;
            listener = match placeholder.listen(BACKLOG) {
                Ok(listener) => listener,
                Err(_) => again(at).await,
            };
            continue;
        }
        tokio::select! {
            _ = reachability.changed() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tokio::spawn(connection(Arc::clone(&device), stream));
                }
                // Out of file descriptors, or a connection that has ended already.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
        }
    }
}

/// Binds the address, as soon as nobody has it.
async fn hold(at: SocketAddr) -> TcpSocket {
    loop {
        match bind(at) {
            Ok(socket) => return socket,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Listens, as soon as nobody has the address.
async fn again(at: SocketAddr) -> TcpListener {
    loop {
        match hold(at).await.listen(BACKLOG) {
            Ok(listener) => return listener,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn bind(at: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    Ok(socket)
}

/// One connection, until it ends or the device cannot be reached any more.
async fn connection(device: Arc<Shared>, stream: TcpStream) {
    let mut reachability = device.reachability.subscribe();
    let now = *reachability.borrow_and_update();
    match now {
        Reachability::Up => {}
        Reachability::Resets => {
            // Where it cannot be reset, it is closed.
            let _ = stream.set_zero_linger();
            return;
        }
        Reachability::Refuses => return,
        Reachability::Hangs => {
            let _ = reachability.wait_for(|now| *now != Reachability::Hangs).await;
            return;
        }
    }
    device.machine.lock().counts.connections += 1;
    let mut served = pin!(serve(&device, stream));
    tokio::select! {
        () = &mut served => {}
        _ = reachability.changed() => {
            // It stays open, and nothing is read from it or answered any more.
            let _ = reachability.wait_for(|now| *now != Reachability::Hangs).await;
        }
    }
}

async fn serve(device: &Arc<Shared>, stream: TcpStream) {
    // A connection that has ended already needs no options.
    let _ = stream.set_nodelay(true);
    match &device.tls {
        None => requests(device, stream).await,
        Some(tls) => {
            // A client that does not like the certificate says so by closing.
            if let Ok(stream) = tls.accept(stream).await {
                requests(device, stream).await;
            }
        }
    }
}

async fn requests(device: &Arc<Shared>, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(|request| handle(device, request));
    // How a connection ends is the client's matter, or a fault's.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
