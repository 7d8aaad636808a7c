//! A Keystone and a Neutron of which a test says what they answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use staffetta_driver::{Fence, RequestObserver, RequestOutcome};
use staffetta_openstack::{
    Access, Auth, Cloud, EndpointInterface, EndpointOverrides, Environment, NeutronOptions, TlsOptions,
};
use wiremock::matchers::{method, path};
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

/// The secret that no error and no log may tell.
pub(crate) const PASSWORD: &str = "open sesame";

/// One server that is both.
pub(crate) struct World {
    pub(crate) server: MockServer,
    pub(crate) seen: Arc<Seen>,
}

/// The requests that the observer recorded.
#[derive(Default)]
pub(crate) struct Seen(Mutex<Vec<String>>);

impl RequestObserver for Seen {
    fn ended(&self, service: &'static str, method: &'static str, outcome: RequestOutcome, _: Duration) {
        self.0.lock().unwrap().push(format!("{service} {method} {}", outcome.name()));
    }
}

impl Seen {
    pub(crate) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl World {
    /// Nobody answers anything yet.
    pub(crate) async fn silent() -> Self {
        Self { server: MockServer::start().await, seen: Arc::default() }
    }

    /// Keystone gives out tokens of an hour: `token-1`, `token-2` ...
    pub(crate) async fn new() -> Self {
        let world = Self::silent().await;
        world.keystone(3600).await;
        world
    }

    /// Keystone gives out tokens that are good for so many seconds.
    pub(crate) async fn keystone(&self, seconds: u32) {
        self.keystone_for(seconds, &["identity", "network"]).await;
    }

    /// The same, of a cloud with these services.
    pub(crate) async fn keystone_for(&self, seconds: u32, services: &[&str]) {
        let service =
            |kind: &&str| json!({ "type": kind, "name": kind, "endpoints": [endpoint(&self.server.uri())] });
        let catalogue = services.iter().map(service).collect();
        let count = Mutex::new(0);
        let answer = move |_: &Request| {
            let mut count = count.lock().unwrap();
            *count += 1;
            ResponseTemplate::new(201)
                .insert_header("X-Subject-Token", format!("token-{count}"))
                .set_body_json(token(seconds, &catalogue))
        };
        Mock::given(method("POST"))
            .and(path("/v3/auth/tokens"))
            .respond_with(answer)
            .mount(&self.server)
            .await;
    }

    /// A request of Neutron is answered so, in its turn: the last answer is given again and again.
    pub(crate) async fn answers(&self, verb: &str, at: &str, answers: Vec<ResponseTemplate>) {
        let given = Mutex::new(0);
        let answer = move |_: &Request| {
            let mut given = given.lock().unwrap();
            let answer = answers[usize::min(*given, answers.len() - 1)].clone();
            *given += 1;
            answer
        };
        Mock::given(method(verb)).and(path(at)).respond_with(answer).mount(&self.server).await;
    }

    pub(crate) fn cloud(&self) -> Cloud {
        self.cloud_with(|_| {})
    }

    pub(crate) fn cloud_with(&self, change: impl FnOnce(&mut NeutronOptions)) -> Cloud {
        self.fenced_cloud(change, Fence::default())
    }

    /// The same with a fence.
    pub(crate) fn fenced_cloud(&self, change: impl FnOnce(&mut NeutronOptions), fence: Fence) -> Cloud {
        let mut options = NeutronOptions {
            auth_url: Some(self.server.uri()),
            username: Some("kuryr".into()),
            password: Some(PASSWORD.into()),
            project_name: Some("k8s".into()),
            ..NeutronOptions::default()
        };
        change(&mut options);
        let access = options.access(&Environment::default()).unwrap();
        Cloud::fenced(access, Arc::clone(&self.seen) as _, fence).unwrap()
    }

    /// The requests at this path so far: their method, token, query and body.
    pub(crate) async fn requests(&self, at: &str) -> Vec<Asked> {
        let requests = self.server.received_requests().await.unwrap();
        requests.iter().filter(|request| request.url.path() == at).map(Asked::new).collect()
    }

    /// The number of logins.
    pub(crate) async fn logins(&self) -> usize {
        self.requests("/v3/auth/tokens").await.len()
    }
}

/// A cloud without a login, whose Neutron is at this URL.
pub(crate) fn without_login(url: &str, timeout: Duration) -> Cloud {
    let access = Access {
        auth: Auth::None,
        region: None,
        interface: EndpointInterface::Public,
        urls: EndpointOverrides {
            network: Some(url.parse().unwrap()),
            load_balancer: Some(url.parse().unwrap()),
        },
        tls: TlsOptions::default(),
        timeout,
        max_concurrency: 4,
    };
    Cloud::new(access, Arc::new(Seen::default())).unwrap()
}

/// A request that came.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) token: Option<String>,
    pub(crate) query: String,
    pub(crate) body: Value,
    pub(crate) if_match: Option<String>,
    pub(crate) agent: String,
}

impl Asked {
    fn new(request: &Request) -> Self {
        let header = |name: &str| request.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        Self {
            method: request.method.to_string(),
            token: header("x-auth-token"),
            query: request.url.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&request.body).unwrap_or_default(),
            if_match: header("if-match"),
            agent: header("user-agent").unwrap_or_default(),
        }
    }
}

pub(crate) fn ok(body: &Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

pub(crate) fn unauthorized() -> ResponseTemplate {
    let body = json!({ "error": { "code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication." } });
    ResponseTemplate::new(401).set_body_json(body).insert_header("x-openstack-request-id", "req-401")
}

/// Neutron's refusal of this type.
pub(crate) fn refused(status: u16, kind: &str) -> ResponseTemplate {
    let body = json!({ "NeutronError": { "type": kind, "message": "no", "detail": "" } });
    ResponseTemplate::new(status).set_body_json(body).insert_header("x-openstack-request-id", "req-7")
}

fn endpoint(url: &str) -> Value {
    json!({ "interface": "public", "region": "One", "region_id": "One", "url": url, "id": "e" })
}

fn token(seconds: u32, catalogue: &Value) -> Value {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    json!({ "token": { "methods": ["password"], "issued_at": "2026-01-01T00:00:00.000000Z",
        "expires_at": format!("2026-01-01T{hours:02}:{minutes:02}:{seconds:02}.000000Z"), "catalog": catalogue } })
}
