//! The network between one replica and the world. It delays, loses and refuses messages. A request may take effect after its sender has
//! stopped waiting for it, or has crashed.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kube::Client;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::choices::Draw;
use crate::world::{Body, Error, World};

/// The name of the Lease of the leader.
pub(crate) const LEADER_LEASE: &str = "staffetta";

/// The network of one replica.
pub(crate) struct Link {
    pub(crate) world: Arc<World>,
    pub(crate) replica: String,
    state: watch::Sender<LinkState>,
}

#[derive(Clone, Copy, PartialEq)]
enum LinkState {
    Up,
    /// No message arrives for a time.
    Parted,
    /// The replica has crashed.
    Cut,
}

/// The loss of a message.
pub(crate) enum Loss {
    /// The request was not sent.
    Request,
    /// The request may have been executed.
    Response,
}

/// The fate of one request: its delays, its loss or its refusal.
pub(crate) struct Fate {
    there: Duration,
    back: Duration,
    loss: Option<Loss>,
    /// `true` if nobody says that the message is lost.
    silent: bool,
    /// The status of the response, without an execution.
    pub(crate) refusal: Option<u16>,
    /// The delay after which the request arrives once more, as when a proxy repeats it.
    again: Option<Duration>,
}

/// The times of the last messages of a connection in both directions. None overtakes another one.
#[derive(Default)]
pub(crate) struct Order {
    there: Option<Instant>,
    back: Option<Instant>,
}

impl Fate {
    /// Delays a request and its response so that they arrive after those before them.
    pub(crate) fn in_order(mut self, last: &mut Order) -> Self {
        const NEXT: Duration = Duration::from_millis(1);
        let now = Instant::now();
        let arrival = last.there.map_or(now, |last| last + NEXT).max(now + self.there);
        let answer = last.back.map_or(now, |last| last + NEXT).max(arrival + self.back);
        (self.there, self.back) = (arrival - now, answer - arrival);
        (last.there, last.back) = (Some(arrival), Some(answer));
        self
    }

    /// Draws the fate of a request; without faults if it is not `stormy`.
    pub(crate) fn of(draw: &mut Draw, stormy: bool) -> Self {
        const SHORT: Duration = Duration::from_millis(1);
        let mut fate =
            Self { there: SHORT, back: SHORT, loss: None, silent: false, refusal: None, again: None };
        if !stormy {
            return fate;
        }
        let mut delay = || {
            let longest = [20, 20, 20, 500, 500, 20_000][draw.below(6)];
            draw.time(SHORT, Duration::from_millis(longest))
        };
        (fate.there, fate.back) = (delay(), delay());
        match draw.below(60) {
            0 => fate.loss = Some(Loss::Request),
            1 | 2 => fate.loss = Some(Loss::Response),
            3 => fate.refusal = Some([429, 500, 503][draw.below(3)]),
            4 => fate.again = Some(draw.time(SHORT, Duration::from_secs(20))),
            _ => {}
        }
        fate.silent = draw.chance(300);
        fate
    }
}

impl Link {
    /// Creates the network of one process of a replica.
    pub(crate) fn new(world: &Arc<World>, replica: String) -> Arc<Self> {
        Arc::new(Self { world: Arc::clone(world), replica, state: watch::Sender::new(LinkState::Up) })
    }

    /// Cuts the network for ever: the replica has crashed.
    pub(crate) fn cut(&self) {
        self.state.send_replace(LinkState::Cut);
    }

    /// Lets no message through for this time.
    pub(crate) fn part(self: &Arc<Self>, time: Duration) {
        let link = Arc::clone(self);
        let part = |state: &mut LinkState| {
            *state == LinkState::Up && {
                *state = LinkState::Parted;
                true
            }
        };
        if self.state.send_if_modified(part) {
            tokio::spawn(async move {
                sleep(time).await;
                link.state.send_if_modified(|state| {
                    *state == LinkState::Parted && {
                        *state = LinkState::Up;
                        true
                    }
                });
            });
        }
    }

    /// Waits until messages get through again; for ever after a crash.
    pub(crate) async fn until_up(&self) {
        let mut state = self.state.subscribe();
        // The sender is in `self`.
        let _ = state.wait_for(|state| *state == LinkState::Up).await;
    }

    /// Lets `work` be executed at the other end, and returns its result.
    pub(crate) async fn transmit<T: Send + 'static>(
        &self,
        fate: Fate,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Loss> {
        self.until_up().await;
        let Fate { there, back, loss, silent, .. } = fate;
        if matches!(loss, Some(Loss::Request)) {
            sleep(there).await;
            if silent { pending().await } else { return Err(Loss::Request) }
        }
        // It is executed even if the sender is gone.
        let task = tokio::spawn(async move {
            sleep(there).await;
            work.await
        });
        let result = task.await.expect("the other end does not panic");
        sleep(back).await;
        self.until_up().await;
        match loss {
            Some(_) if silent => pending().await,
            Some(_) => Err(Loss::Response),
            None => Ok(result),
        }
    }

    /// Returns a client of the API server.
    pub(crate) fn client(self: &Arc<Self>) -> Client {
        let link = Arc::clone(self);
        let service = tower::service_fn(move |request| Arc::clone(&link).api(request));
        Client::new(service, "default")
    }

    async fn api(self: Arc<Self>, request: Request<kube::client::Body>) -> Result<Response<Body>, Error> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes().to_vec();
        let (world, path) = (Arc::clone(&self.world), parts.uri.path().to_owned());
        let what = format!("{} {path}", parts.method);
        let watches = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let mut draw = world.choices.at(&format!("{} {what}", self.replica));
        let fate = Fate::of(&mut draw, world.is_stormy());
        if let Some(code) = fate.refusal {
            sleep(fate.there).await;
            return Ok(refusal(code));
        }
        self.until_up().await;
        if parts.method != Method::GET
            && let Some(lease) = world.lease_of(&path)
        {
            world.sends(&self.replica, &lease, &what);
        }
        if let Some(delay) = fate.again.filter(|_| parts.method != Method::GET) {
            let (request, replica) =
                (Request::from_parts(parts.clone(), bytes.clone()), self.replica.clone());
            let (world, delay) = (Arc::clone(&world), fate.there + delay);
            tokio::spawn(async move {
                sleep(delay).await;
                world.execute(&replica, request).await;
            });
        }
        let (request, replica) = (Request::from_parts(parts, bytes), self.replica.clone());
        let sent = self.transmit(fate, async move { world.execute(&replica, request).await });
        match sent.await {
            Ok(response) if watches => Ok(response.map(|body| self.watched(body, what))),
            Ok(response) => Ok(response),
            Err(Loss::Request) => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
            Err(Loss::Response) => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        }
    }

    /// Delays the events of a watch. It may also end, break off, or stay silent for ever.
    fn watched(self: Arc<Self>, body: Body, what: String) -> Body {
        let frames = stream::unfold((self, BodyStream::new(body)), move |(link, mut body)| {
            let site = format!("watch {} {what}", link.replica);
            async move {
                let frame = body.next().await?;
                if link.world.is_stormy() {
                    let mut draw = link.world.choices.at(&site);
                    match draw.below(40) {
                        0 => return None,
                        1 => {
                            let error: Error = io::Error::from(io::ErrorKind::ConnectionReset).into();
                            return Some((Err(error), (link, body)));
                        }
                        2 => pending().await,
                        3..10 => sleep(draw.time(Duration::ZERO, Duration::from_secs(15))).await,
                        _ => sleep(draw.time(Duration::ZERO, Duration::from_millis(50))).await,
                    }
                }
                link.until_up().await;
                Some((frame, (link, body)))
            }
        });
        BodyExt::boxed_unsync(StreamBody::new(frames))
    }
}

fn refusal(code: u16) -> Response<Body> {
    let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": "InternalError", "message": "this request was chosen to fail" });
    let body = http_body_util::Full::new(status.to_string().into()).map_err(|never| match never {});
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(body.boxed_unsync()).expect("it is a response")
}
