//! A server in front of the embedded API server that serves `pods/portforward` as a kubelet does: over a WebSocket, with a data channel
//! and an error channel for the port. The loopback address of all pods is that of this machine.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::{SinkExt, StreamExt};
use staffetta_apiserver::ApiServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_util::task::AbortOnDropHandle;

/// The server. It ends when it is dropped.
pub(crate) struct PortForward {
    kubeconfig: String,
    forbidden: Arc<AtomicBool>,
    ports: Ports,
    _task: AbortOnDropHandle<()>,
}

/// The ports on this machine that stand for any port of a pod, by the name of the pod.
type Ports = Arc<Mutex<HashMap<String, u16>>>;

impl PortForward {
    /// Starts the server in front of `server`.
    pub(crate) async fn start(server: &ApiServer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let kubeconfig = server.kubeconfig().replace(server.url(), &url);
        let upstream: SocketAddr = server.url().trim_start_matches("http://").parse().unwrap();
        let forbidden = Arc::new(AtomicBool::new(false));
        let (forbids, ports) = (Arc::clone(&forbidden), Ports::default());
        let of_pods = Arc::clone(&ports);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(
                    stream,
                    upstream,
                    forbids.load(Ordering::Relaxed),
                    Arc::clone(&of_pods),
                ));
            }
        });
        Self { kubeconfig, forbidden, ports, _task: AbortOnDropHandle::new(task) }
    }

    /// The kubeconfig of a user of this server.
    pub(crate) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    /// Connects later port-forwards to the pod with this port of this machine, whichever port they name.
    pub(crate) fn connect(&self, pod: &str, port: u16) {
        self.ports.lock().unwrap().insert(pod.to_owned(), port);
    }

    /// Rejects later port-forwards like an API server whose user lacks the right.
    pub(crate) fn forbid(&self) {
        self.forbidden.store(true, Ordering::Relaxed);
    }
}

/// Serves one request.
async fn connection(mut stream: TcpStream, upstream: SocketAddr, forbidden: bool, ports: Ports) {
    let mut head = vec![0; 16 * 1024];
    let size = loop {
        let size = stream.peek(&mut head).await.unwrap_or_default();
        if size == 0 || head[..size].windows(4).any(|end| end == b"\r\n\r\n") {
            break size;
        }
        tokio::task::yield_now().await;
    };
    let head = String::from_utf8_lossy(&head[..size]).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let Some((pod, query)) = path.split_once("/portforward?") else {
        let _ = pass(&mut stream, upstream, &head).await;
        return;
    };
    if forbidden {
        let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods is forbidden","reason":"Forbidden","code":403}"#;
        let length = body.len();
        let _ = stream.read(&mut vec![0; size]).await;
        let answer = format!(
            "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        let _ = stream.write_all(answer.as_bytes()).await;
        return;
    }
    // A pod that does not exist gets the answer of the API server.
    let mut asked = TcpStream::connect(upstream).await.unwrap();
    let request = format!("GET {pod} HTTP/1.1\r\nHost: {upstream}\r\nConnection: close\r\n\r\n");
    asked.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    asked.read_to_end(&mut answer).await.unwrap();
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        let _ = stream.read(&mut vec![0; size]).await;
        let _ = stream.write_all(&answer).await;
        return;
    }
    let name = pod.rsplit('/').next().unwrap_or_default();
    let chosen = ports.lock().unwrap().get(name).copied();
    let port = query.split('&').find_map(|part| part.strip_prefix("ports=")).unwrap().parse().unwrap();
    forward(stream, port, chosen.unwrap_or(port)).await;
}

/// Passes one request without a body to the API server. The connection ends with the response, because the next request may be one for
/// this server.
async fn pass(stream: &mut TcpStream, upstream: SocketAddr, head: &str) -> std::io::Result<()> {
    stream.read_exact(&mut vec![0; head.len()]).await?;
    let mut server = TcpStream::connect(upstream).await?;
    server.write_all(head.replacen("\r\n", "\r\nConnection: close\r\n", 1).as_bytes()).await?;
    tokio::io::copy(&mut server, stream).await.map(drop)
}

/// Connects the WebSocket, for the port `port` of a pod, to a port of this machine.
async fn forward(stream: TcpStream, port: u16, local: u16) {
    // `accept_hdr_async` wants the error in this form.
    #[allow(clippy::result_large_err, clippy::unnecessary_wraps, reason = "the signature is given")]
    let protocol = |_: &Request, mut response: Response| {
        let protocol = "v4.channel.k8s.io".parse().unwrap();
        response.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
        Ok(response)
    };
    let mut socket = tokio_tungstenite::accept_hdr_async(stream, protocol).await.unwrap();
    let [low, high] = port.to_le_bytes();
    for channel in [0, 1] {
        socket.send(Message::binary(vec![channel, low, high])).await.unwrap();
    }
    let mut target = match TcpStream::connect((Ipv4Addr::LOCALHOST, local)).await {
        Ok(target) => target,
        Err(error) => {
            let message = format!("error forwarding port {port}: {error}");
            let _ = socket.send(Message::binary([&[1], message.as_bytes()].concat())).await;
            let _ = socket.close(None).await;
            // The end of a connection with unread data would discard the message.
            while let Some(Ok(_)) = socket.next().await {}
            return;
        }
    };
    let mut buffer = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            read = target.read(&mut buffer) => match read {
                Ok(size) if size > 0 => {
                    let _ = socket.send(Message::binary([&[0], &buffer[..size]].concat())).await;
                }
                _ => {
                    let _ = socket.close(None).await;
                    return;
                }
            },
            message = socket.next() => match message {
                Some(Ok(Message::Binary(bytes))) => target.write_all(&bytes[1..]).await.unwrap(),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
        }
    }
}
