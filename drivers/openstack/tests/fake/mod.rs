//! A Neutron and an Octavia within the test: what the real ones were seen to do with networks, subnets, security groups, ports,
//! trunks, floating IPs and load balancers, and faults on demand.

mod answer;
mod floating_ips;
pub(crate) mod load_balancers;
mod networks;
mod ports;
mod query;
mod security_groups;
mod trunks;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use self::answer::{Answer, error};
use self::load_balancers::Octavia;
use self::query::Query;

/// A Neutron that listens on a port of its own. It ends when this is dropped.
pub(crate) struct Fake {
    /// Without the version.
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
    server: AbortHandle,
}

/// A fault of a request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It is refused with this status and kind; Octavia, which has no kinds, says it in words.
    Refuse(u16, &'static str),
    /// A proxy answers with a page of HTML.
    Html(u16),
    /// It is done, and the connection is closed before the answer.
    DoneThenClose,
    /// Somebody else changes the port between its being read and its being changed.
    Interfere,
    /// It is done when the test lets go of what it gets here, and not before.
    Hold(mpsc::UnboundedSender<oneshot::Sender<()>>),
}

#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that a test turns")]
pub(crate) struct State {
    pub(crate) networks: BTreeMap<String, Value>,
    pub(crate) subnets: BTreeMap<String, Value>,
    pub(crate) groups: BTreeMap<String, Value>,
    pub(crate) ports: BTreeMap<String, Value>,
    pub(crate) trunks: BTreeMap<String, Value>,
    pub(crate) floating_ips: BTreeMap<String, Value>,
    pub(crate) octavia: Octavia,
    /// No provider of load balancers serves SCTP.
    pub(crate) lacks_sctp: bool,
    pub(crate) hosts: BTreeSet<String>,
    pub(crate) extensions: BTreeSet<&'static str>,
    pub(crate) quota: Option<usize>,
    pub(crate) group_quota: Option<usize>,
    pub(crate) rule_quota: Option<usize>,
    /// Bulk answers do not show bindings yet.
    pub(crate) binds_late: bool,
    /// Lists are not filtered by descriptions.
    pub(crate) ignores_descriptions: bool,
    /// Whoever asks may not see how ports are bound.
    pub(crate) hides_bindings: bool,
    /// Whoever asks may not see the security groups of the project.
    pub(crate) hides_groups: bool,
    /// The page size.
    pub(crate) page: Option<usize>,
    /// The most address pairs of a port.
    pub(crate) pairs: usize,
    /// The maximum length of a request body.
    pub(crate) body_limit: usize,
    made: u64,
    faults: Vec<(Method, &'static str, Fault)>,
    requests: Vec<String>,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let extensions = [
            "tag-ports-during-bulk-creation",
            "standard-attr-tag",
            "trunk",
            "trunk-details",
            "revision-if-match",
        ];
        let state =
            State { extensions: extensions.into(), pairs: 10, body_limit: 112 * 1024, ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let server = tokio::spawn(serve(listener, Arc::clone(&state))).abort_handle();
        Self { url, state, server }
    }

    /// Looks into it, or changes it behind everybody's back.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The next request of this method whose path begins so gets this fault.
    pub(crate) fn inject(&self, method: Method, path: &'static str, fault: Fault) {
        self.state().faults.push((method, path, fault));
    }

    /// The requests since the last time, as `GET ports?limit=1000`, without those of the test itself.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state().requests)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) -> Infallible {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let state = Arc::clone(&state);
        let service = hyper::service::service_fn(move |request| handle(Arc::clone(&state), request));
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
        );
    }
}

async fn handle(
    state: Arc<Mutex<State>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let length = body.len();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let path = parts.uri.path().trim_start_matches("/v2.0/").to_owned();
    let query = Query::read(parts.uri.query().unwrap_or_default());
    let revision = parts.headers.get("if-match").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let of_the_test = parts.headers.contains_key("x-of-the-test");
    let fault = if of_the_test {
        None
    } else {
        let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut state = state.lock().unwrap();
        state.requests.push(format!("{} {path}{query}", parts.method));
        let hit = |(method, prefix, _): &(_, _, _)| *method == parts.method && path.starts_with(prefix);
        state.faults.iter().position(hit).map(|position| state.faults.remove(position).2)
    };
    if let Some(Fault::Hold(test)) = &fault {
        let (hold, held) = oneshot::channel();
        drop(test.send(hold));
        let _ = held.await;
    }
    let mut state = state.lock().unwrap();
    if length > state.body_limit {
        return Ok(Answer::too_large().response());
    }
    let answer = match fault {
        Some(Fault::Refuse(status, message)) if path.starts_with("/v2/") => answer::fault(status, message),
        Some(Fault::Refuse(status, kind)) => error(status, kind, "as the test wants it"),
        Some(Fault::Html(status)) => Answer::html(status),
        Some(Fault::Interfere) => {
            state.interfere(&path);
            state.answer(&parts.method, &path, &query, &body, revision.as_deref())
        }
        Some(Fault::DoneThenClose) => {
            state.answer(&parts.method, &path, &query, &body, revision.as_deref());
            return Err(std::io::Error::other("as the test wants it"));
        }
        Some(Fault::Hold(_)) | None => state.answer(&parts.method, &path, &query, &body, revision.as_deref()),
    };
    Ok(answer.response())
}

impl State {
    fn answer(
        &mut self,
        method: &Method,
        path: &str,
        query: &Query,
        body: &Value,
        revision: Option<&str>,
    ) -> Answer {
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match (method.as_str(), &*parts) {
            ("GET", [""]) => self.versions(),
            (_, ["v2", "lbaas", parts @ ..]) => self.load_balancing(method, parts, query, body),
            (_, ["floatingips", ..]) => self.floating_ips(method, &parts, query, body, revision),
            ("GET", ["extensions"]) => {
                let aliases: Vec<_> = self.extensions.iter().map(|alias| json!({ "alias": alias })).collect();
                Answer::json(200, json!({ "extensions": aliases }))
            }
            ("PUT", ["quotas", _]) => {
                for (name, quota) in [
                    ("port", &mut self.quota),
                    ("security_group", &mut self.group_quota),
                    ("security_group_rule", &mut self.rule_quota),
                ] {
                    if let Some(wish) = body["quota"][name].as_i64() {
                        *quota = usize::try_from(wish).ok();
                    }
                }
                Answer::json(200, body.clone())
            }
            ("GET", ["quotas", _, "details.json"]) => {
                let limit = self.quota.map_or(-1, |quota| i64::try_from(quota).unwrap());
                let port = json!({ "limit": limit, "used": self.ports.len(), "reserved": 0 });
                Answer::json(200, json!({ "quota": { "port": port } }))
            }
            ("GET", ["quotas", _]) => {
                let rules = self.rule_quota.map_or(-1, |quota| i64::try_from(quota).unwrap());
                Answer::json(200, json!({ "quota": { "security_group_rule": rules } }))
            }
            ("PUT", ["_agent", "host", host]) => {
                self.hosts.insert((*host).to_owned());
                Answer::empty(204)
            }
            ("PUT", ["_agent", way @ ("up" | "down"), id]) => self.agent(id, *way == "up"),
            (_, ["networks" | "subnets" | "routers", ..]) => self.networks(method, &parts, query, body),
            (_, ["security-groups" | "security-group-rules", ..]) => {
                self.security_groups(method, &parts, query, body)
            }
            (_, ["ports", ..]) => self.ports(method, &parts, query, body, revision),
            (_, ["trunks", ..]) => self.trunks(method, &parts, query, body),
            _ => error(404, "HTTPNotFound", "The resource could not be found."),
        }
    }

    /// A UUID that no other thing has.
    fn id(&mut self) -> String {
        self.made += 1;
        format!("{:08x}-0000-4000-8000-{:012x}", self.made, self.made)
    }
}
