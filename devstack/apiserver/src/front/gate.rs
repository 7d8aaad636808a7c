//! Controls all watches at once: their answers pass a gate that can be closed or cut.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::watch;

use super::Front;

/// The state of the gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Watches {
    /// Nothing is delivered.
    pub(super) paused: bool,
    /// Counts the times at which all were cut.
    pub(super) cut: u64,
}

/// The answer of a watch behind the gate. While that is shut, nothing is read from `chunks` either.
pub(super) fn gated<S>(front: &Arc<Front>, chunks: S) -> Body
where
    S: Stream<Item = io::Result<Bytes>> + Send + Unpin + 'static,
{
    let watches = front.watches.subscribe();
    let cut = watches.borrow().cut;
    let gate = Gate { _front: Arc::clone(front), watches, cut, chunks, held: Held::Nothing };
    Body::from_stream(stream::unfold(gate, Gate::step))
}

struct Gate<S> {
    /// Owns the sender of `watches`.
    _front: Arc<Front>,
    watches: watch::Receiver<Watches>,
    cut: u64,
    chunks: S,
    held: Held,
}

/// Data that was read and has not passed the gate.
enum Held {
    Nothing,
    Chunk(io::Result<Bytes>),
    End,
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Gate<S> {
    /// The next chunk; an error cuts the answer off.
    async fn step(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            let watches = *self.watches.borrow_and_update();
            if watches.cut != self.cut {
                self.cut = watches.cut;
                self.held = Held::End;
                return Some((Err(io::Error::other("the watch was cut")), self));
            }
            if !watches.paused {
                match std::mem::replace(&mut self.held, Held::Nothing) {
                    Held::Nothing => {}
                    Held::Chunk(chunk) => return Some((chunk, self)),
                    Held::End => return None,
                }
            }
            tokio::select! {
                _ = self.watches.changed() => {}
                chunk = self.chunks.next(), if !watches.paused => {
                    self.held = chunk.map_or(Held::End, Held::Chunk);
                }
            }
        }
    }
}
