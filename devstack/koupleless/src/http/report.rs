//! The reports of a base: a baseline query at the start, and heartbeats.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;

use crate::process::BaseProcess;
use crate::response;

/// The time limit of a report.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Reports until the future is dropped. Each report goes to the next of `controllers`, as through a Service in front of them, and to
/// the one after it if there is no connection.
pub(crate) async fn report(process: Arc<BaseProcess>, port: u16, controllers: Vec<SocketAddr>) -> Infallible {
    let mut next = 0;
    loop {
        tokio::select! {
            never = life(&process, port, &controllers, &mut next) => match never {},
            () = process.ended() => {}
        }
        // The sender lives as long as `process`.
        let _ = process.behaviour.subscribe().wait_for(|behaviour| behaviour.reachable).await;
    }
}

/// Reports from one start of the base to the next.
async fn life(process: &BaseProcess, port: u16, controllers: &[SocketAddr], next: &mut usize) -> Infallible {
    let options = &process.options;
    tokio::time::sleep(options.first_heartbeat).await;
    if options.asks_baseline {
        let metadata = response::metadata(options, &process.identity());
        let answer = post_to_any(options.ip, controllers, next, "queryBaseline", &metadata).await;
        process.start_with(answer.and_then(|(status, body)| baseline(status, &body))).await;
    }
    let mut ticks = tokio::time::interval(options.heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for beat in 0.. {
        process.next_beat(&mut ticks).await;
        let reported = {
            let behaviour = process.behaviour.borrow();
            behaviour.reports.then(|| behaviour.state_at(beat).to_owned())
        };
        if let Some(state) = reported {
            let status = response::heartbeat(options, &process.identity(), &state, Some(port));
            // A heartbeat that is not accepted is repeated after the period, as Arklet does.
            let _ = post_to_any(options.ip, controllers, next, "heartbeat", &status).await;
        }
    }
    std::future::pending().await
}

fn baseline(status: StatusCode, body: &[u8]) -> Result<Vec<Value>, String> {
    if status != StatusCode::OK {
        return Err(format!("HTTP {}: {}", status.as_u16(), String::from_utf8_lossy(body)));
    }
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// Posts a report to the controller whose turn it is, or the next one that can be reached.
async fn post_to_any(
    from: Ipv4Addr,
    controllers: &[SocketAddr],
    next: &mut usize,
    path: &str,
    report: &Value,
) -> Result<(StatusCode, Vec<u8>), String> {
    let mut last = "there is no controller".to_owned();
    for _ in controllers {
        let controller = controllers[*next % controllers.len()];
        *next += 1;
        match tokio::time::timeout(TIMEOUT, post(from, controller, path, report)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = format!("{controller} does not answer"),
        }
    }
    Err(last)
}

/// Posts a report from the address `from`, on a connection of its own.
async fn post(
    from: Ipv4Addr,
    to: SocketAddr,
    path: &str,
    report: &Value,
) -> io::Result<(StatusCode, Vec<u8>)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let stream = socket.connect(to).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("/{path}"))
        .header(HOST, to.to_string())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::<Bytes>::from(report.to_string()))
        .map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(io::Error::other)?;
    Ok((status, body.to_bytes().to_vec()))
}
