//! The network between one replica and the world. It delays, loses and refuses messages. A request may take effect after its sender has
//! stopped waiting for it, or has crashed.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kube::Client;
use serde_json::json;
use staffetta_driver::{
    Activation, BulkVifDriver, BulkVifRequest, BulkVifResult, DriverError, Fence, Owned, Owner, PodVifDriver,
    PooledVifList, Reason, SecurityGroupId, Vif, VifId, VifRequest,
};
use staffetta_memory::{MemoryBulkVifDriver, MemoryVifDriver};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::choices::Draw;
use crate::world::{Body, Error, World};

/// The time after which a driver no longer waits for the cloud.
const CLOUD_TIMEOUT: Duration = Duration::from_secs(30);

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
enum Loss {
    /// The request was not sent.
    Request,
    /// The request may have been executed.
    Response,
}

/// What happens to one request.
struct Fate {
    there: Duration,
    back: Duration,
    loss: Option<Loss>,
    /// `true` if nobody says that the message is lost.
    silent: bool,
    /// The status of the response, without an execution.
    refusal: Option<u16>,
}

impl Fate {
    fn of(draw: &mut Draw, stormy: bool) -> Self {
        const SHORT: Duration = Duration::from_millis(1);
        let mut fate = Self { there: SHORT, back: SHORT, loss: None, silent: false, refusal: None };
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
            _ => {}
        }
        fate.silent = draw.chance(300);
        fate
    }
}

impl Link {
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
    async fn until_up(&self) {
        let mut state = self.state.subscribe();
        // The sender is in `self`.
        let _ = state.wait_for(|state| *state == LinkState::Up).await;
    }

    /// Lets `work` be executed at the other end, and returns its result.
    async fn transmit<T: Send + 'static>(
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
        if parts.method != Method::GET && !path.contains("/leases") {
            world.sends(&self.replica, &what);
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

/// A driver of the cloud behind the network of one replica.
pub(crate) struct Remote<D> {
    pub(crate) link: Arc<Link>,
    pub(crate) fence: Fence,
    pub(crate) driver: Arc<D>,
}

impl<D: Send + Sync + 'static> Remote<D> {
    /// Calls the driver at the other end of the network. An error after which the call may have taken effect is ambiguous.
    async fn call<T: Send + 'static, F: Future<Output = Result<T, DriverError>> + Send + 'static>(
        &self,
        what: String,
        changes: bool,
        work: impl FnOnce(Arc<D>) -> F,
    ) -> Result<T, DriverError> {
        let (link, world) = (&self.link, Arc::clone(&self.link.world));
        let method = what.split(' ').next().unwrap_or_default();
        let mut draw = world.choices.at(&format!("{} {method}", link.replica));
        let fate = Fate::of(&mut draw, world.is_stormy());
        if fate.refusal.is_some() {
            return Err(DriverError::new(Reason::Unavailable, method.to_owned()).detail("refused"));
        }
        let (replica, work, text) = (link.replica.clone(), work(Arc::clone(&self.driver)), what.clone());
        let sent = async {
            link.until_up().await;
            if changes {
                world.sends(&link.replica, &what);
            }
            let there = Arc::clone(&world);
            link.transmit(fate, async move { there.call(&replica, &text, changes, work).await }).await
        };
        let lost = DriverError::new(Reason::Unavailable, method.to_owned());
        let lost_response = if changes { lost.clone().maybe_applied() } else { lost.clone() };
        match self.fence.run(timeout(CLOUD_TIMEOUT, sent)).await {
            None => Err(lost_response.detail(Fence::NOT_LEADER_MESSAGE)),
            Some(Err(_) | Ok(Err(Loss::Response))) => Err(lost_response),
            Some(Ok(Err(Loss::Request))) => Err(lost),
            Some(Ok(Ok(result))) => result,
        }
    }
}

#[async_trait]
impl PodVifDriver for Remote<MemoryVifDriver> {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let (what, request) = (format!("request_vif {}", request.owner.name), request.clone());
        self.call(what, true, async move |driver| driver.request_vif(&request).await).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let (owner, vif) = (owner.clone(), vif.clone());
        let what = format!("release_vif {} {}", owner.name, vif.id);
        self.call(what, true, async move |driver| driver.release_vif(&owner, &vif).await).await
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        let (owner, vif) = (owner.clone(), vif.clone());
        let what = "activate_vif".to_owned();
        self.call(what, false, async move |driver| driver.activate_vif(&owner, &vif).await).await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        let owner = owner.cloned();
        self.call("vifs".to_owned(), false, async move |driver| driver.vifs(owner.as_ref()).await).await
    }

    async fn unmarked_vifs(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.call("unmarked_vifs".to_owned(), false, async |driver| driver.unmarked_vifs().await).await
    }

    fn vif_returned(&self, vif: &VifId) {
        self.driver.vif_returned(vif);
    }
}

#[async_trait]
impl BulkVifDriver for Remote<MemoryBulkVifDriver> {
    fn host(&self, request: &VifRequest) -> Result<String, DriverError> {
        self.driver.host(request)
    }

    async fn create_vifs(&self, order: &BulkVifRequest) -> BulkVifResult {
        let (what, order) = (format!("create_vifs {} {}", order.key.host, order.count), order.clone());
        let created = self.call(what, true, async move |driver| Ok(driver.create_vifs(&order).await)).await;
        created.unwrap_or_else(|error| BulkVifResult { vifs: Vec::new(), failure: Some(error) })
    }

    async fn set_security_groups(&self, vif: &Vif, groups: &[SecurityGroupId]) -> Result<(), DriverError> {
        let (what, vif, groups) = (format!("set_security_groups {}", vif.id), vif.clone(), groups.to_vec());
        self.call(what, true, async move |driver| driver.set_security_groups(&vif, &groups).await).await
    }

    async fn delete_vifs(&self, vifs: &[Vif]) -> Vec<(VifId, DriverError)> {
        let vifs = vifs.to_vec();
        let ids: Vec<_> = vifs.iter().map(|vif| vif.id.clone()).collect();
        let what = format!("delete_vifs {ids:?}");
        let deleted = self.call(what, true, async move |driver| Ok(driver.delete_vifs(&vifs).await)).await;
        deleted.unwrap_or_else(|error| ids.into_iter().map(|id| (id, error.clone())).collect())
    }

    async fn list_vifs(&self) -> Result<PooledVifList, DriverError> {
        self.call("list_vifs".to_owned(), false, async |driver| driver.list_vifs().await).await
    }

    fn is_active_unbound(&self, vif: &Vif) -> bool {
        self.driver.is_active_unbound(vif)
    }
}
