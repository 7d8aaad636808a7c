//! The open connections, which a fault can cut, and which are cut at the end.

use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Weak};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};

/// A second handle to the socket of one connection.
#[derive(Clone, Debug)]
pub(super) struct Wire(Arc<std::net::TcpStream>);

impl Wire {
    /// Ends the connection in both directions, whatever is being sent.
    pub(super) fn cut(&self) {
        // A connection that the client has closed already cannot be shut down, and need not be.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// All connections, and whether new ones are let in.
#[derive(Default)]
pub(super) struct Connections(Mutex<Open>);

#[derive(Default)]
struct Open {
    refuse: bool,
    wires: Vec<Weak<std::net::TcpStream>>,
}

impl Connections {
    /// Cuts all connections; while `refuse` holds, new ones are cut too.
    pub(super) fn refuse(&self, refuse: bool) {
        let mut open = self.0.lock();
        open.refuse = refuse;
        if refuse {
            open.cut();
        }
    }

    /// Cuts all connections.
    pub(super) fn cut(&self) {
        self.0.lock().cut();
    }

    /// Takes in a new connection. False if it was cut.
    fn admit(&self, wire: &Wire) -> bool {
        let mut open = self.0.lock();
        if open.refuse {
            wire.cut();
            return false;
        }
        open.wires.retain(|wire| wire.strong_count() > 0);
        open.wires.push(Arc::downgrade(&wire.0));
        true
    }
}

impl Open {
    fn cut(&mut self) {
        self.wires.drain(..).filter_map(|wire| wire.upgrade()).for_each(|wire| Wire(wire).cut());
    }
}

/// A listener that remembers what it accepts.
pub(super) struct Door {
    pub(super) listener: TcpListener,
    pub(super) connections: Arc<Connections>,
}

impl Door {
    fn second_handle(stream: TcpStream) -> std::io::Result<(TcpStream, Wire)> {
        stream.set_nodelay(true)?;
        let stream = stream.into_std()?;
        let wire = Wire(Arc::new(stream.try_clone()?));
        Ok((TcpStream::from_std(stream)?, wire))
    }
}

impl Listener for Door {
    type Io = TcpStream;
    type Addr = Option<Wire>;

    async fn accept(&mut self) -> (TcpStream, Option<Wire>) {
        loop {
            let (stream, _) = Listener::accept(&mut self.listener).await;
            // A connection that has ended before it was taken in is none of ours.
            let Ok((stream, wire)) = Self::second_handle(stream) else { continue };
            if self.connections.admit(&wire) {
                return (stream, Some(wire));
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Option<Wire>> {
        Ok(None)
    }
}

/// The connection that a request came by.
#[derive(Clone)]
pub(super) struct Socket(pub(super) Option<Wire>);

impl Connected<IncomingStream<'_, Door>> for Socket {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        Self(stream.remote_addr().clone())
    }
}

/// Opens the listening socket.
pub(super) async fn listen(at: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(at).await?;
    let at = listener.local_addr()?;
    Ok((listener, at))
}
