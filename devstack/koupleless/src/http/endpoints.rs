//! The endpoints of a base: a path for each command. As Arklet does, it closes the connection after each response.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::command::BaseCommand;
use crate::process::{AnswerContent, BaseProcess};
use crate::response;

/// The maximum size of a request, in bytes.
const MAX_REQUEST: usize = 1 << 20;

/// The delay after a failure to accept a connection, for example because no file descriptor is free.
const ACCEPT_DELAY: Duration = Duration::from_millis(200);

/// Serves connections until the future is dropped, which also closes the open connections.
pub(crate) async fn serve(listener: TcpListener, process: Arc<BaseProcess>) -> Infallible {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // A connection to a base that cannot be reached is closed at once.
                Ok((stream, _)) if process.behaviour.borrow().reachable => {
                    connections.spawn(connection(stream, Arc::clone(&process)));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(ACCEPT_DELAY).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one request, until the base is restarted or cannot be reached.
async fn connection(stream: TcpStream, process: Arc<BaseProcess>) {
    let service = service_fn(|request| respond(Arc::clone(&process), request));
    let serving = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // The client may close the connection at any time.
        _ = serving => {}
        () = process.ended() => {}
    }
}

/// Responds to a request. The error closes the connection without a response.
async fn respond(process: Arc<BaseProcess>, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    if request.method() != Method::POST {
        return Ok(answer(500, b"POST http request only supported by arklet".to_vec()));
    }
    let command = BaseCommand::of(request.uri().path().trim_start_matches('/'));
    let body = Limited::new(request.into_body(), MAX_REQUEST).collect().await;
    let body = body.map_err(io::Error::other)?;
    let Ok(body) = serde_json::from_slice::<Value>(&body.to_bytes()) else {
        let response = response::invalid("syntax error");
        return Ok(answer(200, response.to_string().into_bytes()));
    };
    let Some(command) = command else {
        return Ok(answer(200, response::unknown_command().to_string().into_bytes()));
    };
    let reply = process.execute(command, body).await;
    let reply = reply.ok_or_else(|| io::Error::other("the answer gets lost"))?;
    let body = match reply.content {
        AnswerContent::Response(response) => response::encode(response, reply.fault.as_ref()),
        AnswerContent::Bytes(bytes) => bytes,
    };
    Ok(answer(reply.status, body))
}

fn answer(status: u16, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
