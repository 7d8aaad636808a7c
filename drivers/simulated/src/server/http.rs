//! The thin shell: from a request to a call, and back.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use staffetta_driver::DriverError;

use super::desk::{Answer, Caller};
use super::world::World;
use crate::method::Method;
use crate::wire::{
    AcquirePublicIp, ActivateVif, AssociatePublicIp, DisassociatePublicIp, EnsureListener,
    EnsureLoadBalancer, Envelope, Injection, LoadBalancerProgress, LoadBalancers, Page, ProjectOfPod,
    ProjectOfService, PublicIps, REQUEST_ID, ReleaseListener, ReleaseLoadBalancer, ReleasePublicIp,
    ReleaseVif, RequestVif, SecurityGroupsOfPod, SecurityGroupsOfService, SetMembers, SubnetsOfPod,
    SubnetsOfService, Vifs,
};

/// The largest request: a pod has at most 1.5 MB, a pool of ten thousand members about as much.
const MAX_BODY: usize = 4 << 20;

/// The longest request id that is written down.
const MAX_REQUEST_ID: usize = 128;

/// How often a planned fault may happen.
const MAX_TIMES: usize = 100_000;

/// Serves for ever.
pub(super) async fn serve(listener: std::net::TcpListener, world: Arc<World>) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // Without it, a small answer may wait for the acknowledgement of the one before. A socket that refuses is slower.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router().with_state(world)).await
}

fn router() -> Router<Arc<World>> {
    let router = Router::new()
        .route("/livez", get(Json("ok")))
        .route("/ledger", get(ledger))
        .route("/ports", get(async |State(world): State<Arc<World>>| Json(world.ports())))
        .route("/load_balancers", get(async |State(world): State<Arc<World>>| Json(world.load_balancers())))
        .route("/public_ips", get(async |State(world): State<Arc<World>>| Json(world.public_ips())))
        .route("/faults", post(inject).delete(clear_faults));
    let calls = Method::ALL.iter().fold(router, |router, method| call(router, *method));
    calls.layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Adds the route of a method.
fn call(router: Router<Arc<World>>, method: Method) -> Router<Arc<World>> {
    match method {
        Method::PodProject => typed::<ProjectOfPod<'static>>(router, method),
        Method::PodSubnets => typed::<SubnetsOfPod<'static>>(router, method),
        Method::PodSecurityGroups => typed::<SecurityGroupsOfPod<'static>>(router, method),
        // The network has no pool: asking it is asking for a port.
        Method::RequestVif | Method::PoolRequestVif => typed::<RequestVif<'static>>(router, method),
        Method::ReleaseVif | Method::PoolReleaseVif => typed::<ReleaseVif<'static>>(router, method),
        Method::ActivateVif | Method::PoolActivateVif => typed::<ActivateVif<'static>>(router, method),
        Method::ListVifs | Method::PoolListVifs => typed::<Vifs<'static>>(router, method),
        Method::ServiceProject => typed::<ProjectOfService<'static>>(router, method),
        Method::ServiceSubnets => typed::<SubnetsOfService<'static>>(router, method),
        Method::ServiceSecurityGroups => typed::<SecurityGroupsOfService<'static>>(router, method),
        Method::ListLoadBalancers => typed::<LoadBalancers<'static>>(router, method),
        Method::EnsureLoadBalancer => typed::<EnsureLoadBalancer<'static>>(router, method),
        Method::LoadBalancerProgress => typed::<LoadBalancerProgress<'static>>(router, method),
        Method::ReleaseLoadBalancer => typed::<ReleaseLoadBalancer<'static>>(router, method),
        Method::EnsureListener => typed::<EnsureListener<'static>>(router, method),
        Method::ReleaseListener => typed::<ReleaseListener<'static>>(router, method),
        Method::SetMembers => typed::<SetMembers<'static>>(router, method),
        Method::ListPublicIps => typed::<PublicIps<'static>>(router, method),
        Method::AcquirePublicIp => typed::<AcquirePublicIp<'static>>(router, method),
        Method::AssociatePublicIp => typed::<AssociatePublicIp<'static>>(router, method),
        Method::DisassociatePublicIp => typed::<DisassociatePublicIp<'static>>(router, method),
        Method::ReleasePublicIp => typed::<ReleasePublicIp<'static>>(router, method),
    }
}

fn typed<C>(router: Router<Arc<World>>, method: Method) -> Router<Arc<World>>
where
    C: Answer + DeserializeOwned + Send + 'static,
    C::Answer: Send,
{
    let answer = async move |State(world): State<Arc<World>>, headers: HeaderMap, body: Bytes| {
        let Envelope::<C> { cluster, arguments } = read(&body)?;
        let caller = Caller { method, cluster: cluster.into_owned(), request_id: request_id(&headers)? };
        world.answer(&caller, arguments).await.map(Json).map_err(Refusal::Failed)
    };
    router.route(&format!("/v1/{method}"), post(answer))
}

fn request_id(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let Some(id) = headers.get(REQUEST_ID) else { return Ok(None) };
    let text = id.to_str().ok().filter(|text| text.len() <= MAX_REQUEST_ID);
    let wrong = || Refusal::Malformed(format!("{REQUEST_ID} is no text of at most {MAX_REQUEST_ID} bytes"));
    text.map(|text| Some(text.to_owned())).ok_or_else(wrong)
}

/// From where the ledger is wanted.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Place {
    after: u64,
}

async fn ledger(State(world): State<Arc<World>>, Query(place): Query<Place>) -> Json<Page> {
    Json(world.ledger(place.after))
}

async fn inject(State(world): State<Arc<World>>, body: Bytes) -> Result<Json<()>, Refusal> {
    let Injection { call, times, fault } = read(&body)?;
    if times > MAX_TIMES {
        return Err(Refusal::Malformed(format!("a fault may happen {MAX_TIMES} times, not {times}")));
    }
    world.inject(call, times, fault.into_owned());
    Ok(Json(()))
}

async fn clear_faults(State(world): State<Arc<World>>) -> Json<()> {
    world.clear_faults();
    Json(())
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::Malformed(error.to_string()))
}

/// Why a request has no answer.
enum Refusal {
    /// The call failed.
    Failed(DriverError),
    /// The request was not understood.
    Malformed(String),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Failed(error) => (StatusCode::UNPROCESSABLE_ENTITY, Json(error)).into_response(),
            Self::Malformed(why) => {
                let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
                (StatusCode::BAD_REQUEST, plain, why).into_response()
            }
        }
    }
}
