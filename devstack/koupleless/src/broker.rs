//! A broker of MQTT 3.1.1, for tests without mosquitto.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use mqtt3::{
    Codec, ConnAck, ConnectReturnCode, Packet, PubAck, Publish, QoS, SubAck, SubscribeReasonCode, UnsubAck,
    matches,
};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::codec::Framed;
use tokio_util::task::AbortOnDropHandle;

/// The maximum size of a packet, in bytes.
const MAX_PACKET: usize = 16 << 20;

/// A broker on loopback, which admits everybody. Sessions end with their connections, and nothing is retained. It ends when it is
/// dropped.
#[derive(Debug)]
pub struct SimulatedBroker {
    address: SocketAddr,
    running: Option<AbortOnDropHandle<()>>,
}

impl SimulatedBroker {
    /// Starts a broker at a free port.
    pub async fn start() -> io::Result<Self> {
        let mut broker = Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), running: None };
        broker.resume().await?;
        Ok(broker)
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the broker with all its connections.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            // It was aborted.
            let _ = running.await;
        }
    }

    /// Starts the broker again, at the same address.
    pub async fn resume(&mut self) -> io::Result<()> {
        let listener = TcpListener::bind(self.address).await?;
        self.address = listener.local_addr()?;
        self.running = Some(AbortOnDropHandle::new(tokio::spawn(serve(listener))));
        Ok(())
    }
}

async fn serve(listener: TcpListener) {
    let (clients, mut connections) = (Arc::<Mutex<Clients>>::default(), JoinSet::new());
    for number in 0_u64.. {
        if let Ok((stream, _)) = listener.accept().await {
            let clients = Arc::clone(&clients);
            connections.spawn(async move {
                // Whoever breaks the protocol loses the connection.
                let _ = connection(number, stream, &clients).await;
                clients.lock().remove(&number);
            });
        }
        while connections.try_join_next().is_some() {}
    }
}

/// The clients, by the number of their connection.
type Clients = HashMap<u64, Client>;

#[derive(Debug)]
struct Client {
    id: String,
    filters: HashMap<String, QoS>,
    outgoing: mpsc::UnboundedSender<Publish>,
}

async fn connection(
    number: u64,
    stream: TcpStream,
    clients: &Mutex<Clients>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let codec = Codec { max_incoming_size: MAX_PACKET, max_outgoing_size: MAX_PACKET };
    let mut framed = Framed::new(stream, codec);
    let Some(Packet::Connect(connect)) = framed.next().await.transpose()? else { return Ok(()) };
    let (outgoing, mut messages) = mpsc::unbounded_channel();
    {
        let mut clients = clients.lock();
        // The end of its channel ends the older connection of the same client.
        clients.retain(|_, client| client.id != connect.client_id);
        clients.insert(number, Client { id: connect.client_id, filters: HashMap::new(), outgoing });
    }
    framed.send(Packet::ConnAck(ConnAck::new(ConnectReturnCode::Success, false))).await?;
    let mut last_id = 0_u16;
    loop {
        tokio::select! {
            message = messages.recv() => {
                let Some(mut message) = message else { return Ok(()) };
                if message.qos != QoS::AtMostOnce {
                    last_id = last_id.checked_add(1).unwrap_or(1);
                    message.pkid = last_id;
                }
                framed.send(Packet::Publish(message)).await?;
            }
            packet = framed.next() => {
                let Some(packet) = packet.transpose()? else { return Ok(()) };
                if let Some(answer) = answer(number, packet, clients) {
                    framed.send(answer).await?;
                }
            }
        }
    }
}

/// Executes a packet of a client, and returns the answer.
fn answer(number: u64, packet: Packet, clients: &Mutex<Clients>) -> Option<Packet> {
    let mut clients = clients.lock();
    match packet {
        Packet::Publish(message) => {
            let answer = (message.qos != QoS::AtMostOnce).then(|| Packet::PubAck(PubAck::new(message.pkid)));
            let topic = String::from_utf8_lossy(&message.topic).into_owned();
            for client in clients.values() {
                let filters = client.filters.iter().filter(|(filter, _)| matches(&topic, filter));
                if let Some(qos) = filters.map(|(_, qos)| *qos).max_by_key(|qos| *qos as u8) {
                    let qos = if qos as u8 <= message.qos as u8 { qos } else { message.qos };
                    // A client whose connection has ended gets nothing.
                    let _ = client.outgoing.send(Publish { qos, retain: false, ..message.clone() });
                }
            }
            answer
        }
        Packet::Subscribe(request) => {
            let client = clients.get_mut(&number)?;
            let granted = request.filters.into_iter().map(|filter| {
                let qos = if filter.qos == QoS::AtMostOnce { QoS::AtMostOnce } else { QoS::AtLeastOnce };
                client.filters.insert(filter.path, qos);
                SubscribeReasonCode::Success(qos)
            });
            Some(Packet::SubAck(SubAck::new(request.pkid, granted.collect())))
        }
        Packet::Unsubscribe(request) => {
            let client = clients.get_mut(&number)?;
            client.filters.retain(|filter, _| !request.topics.contains(filter));
            Some(Packet::UnsubAck(UnsubAck::new(request.pkid)))
        }
        Packet::PingReq => Some(Packet::PingResp),
        _ => None,
    }
}
