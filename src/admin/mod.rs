//! The server that answers how the program is: `/livez`, `/readyz`, `/metrics`, `/debug/state`.

mod debug;
mod health;
mod metrics;
mod serve;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::state::State;

/// Listens at `address` until the task is ended. Answers the address, whose port the system chose where 0 was asked for.
pub(crate) async fn serve(
    address: SocketAddr,
    state: Arc<State>,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let router = Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/debug/state", get(debug::state))
        .with_state(state);
    Ok((address, tokio::spawn(async { match serve::serve(listener, router).await {} })))
}
