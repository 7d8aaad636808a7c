//! Requests of a test to the services, as their administrator.

use std::time::Duration;

use http::{Method, StatusCode};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// The name under which the requests of tests are counted.
const AGENT: &str = "staffetta-tests";
/// The time limit of an answer: a busy Neutron takes long to create many ports at once.
const PATIENCE: Duration = Duration::from_secs(120);
/// The password of everybody: it guards services on loopback, for as long as a test takes.
pub(crate) const PASSWORD: &str = "staffetta";

/// The endpoints of the services and the administrator's token.
pub(crate) struct Api {
    http: Client,
    pub(crate) keystone: String,
    pub(crate) neutron: String,
    pub(crate) octavia: String,
    token: Mutex<Option<String>>,
}

impl Api {
    /// `ports` are those of the services on loopback, in the order of the fields.
    pub(crate) fn new([keystone, neutron, octavia]: [u16; 3]) -> Self {
        // An error means that somebody installed one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = Client::builder().user_agent(AGENT).timeout(PATIENCE).no_proxy().build();
        let url = |port| format!("http://127.0.0.1:{port}");
        Self {
            http: http.expect("a client of plain HTTP needs nothing"),
            keystone: url(keystone),
            neutron: url(neutron),
            octavia: url(octavia),
            token: Mutex::new(None),
        }
    }

    /// Asks Keystone; `path` begins after the version.
    pub(crate) async fn identity(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        self.expect(method, &format!("{}/v3/{path}", self.keystone), body).await
    }

    /// Asks Neutron; `path` begins after the version.
    pub(crate) async fn network(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        self.expect(method, &format!("{}/v2.0/{path}", self.neutron), body).await
    }

    /// The status and the body of whatever Octavia answers; `path` begins after the version.
    pub(crate) async fn try_load_balancer(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        self.ask(method, &format!("{}/v2/lbaas/{path}", self.octavia), body).await
    }

    /// Asks Octavia; `path` begins after the version.
    pub(crate) async fn load_balancer(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        self.expect(method, &format!("{}/v2/lbaas/{path}", self.octavia), body).await
    }

    /// Asks something beside the services' own API.
    pub(crate) async fn beside(&self, method: Method, url: &str) -> (StatusCode, Value) {
        self.answer(self.send(method, url, None, None).await).await
    }

    /// The status and the body of whatever Neutron answers.
    pub(crate) async fn try_network(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        self.ask(method, &format!("{}/v2.0/{path}", self.neutron), body).await
    }

    async fn expect(&self, method: Method, url: &str, body: Option<Value>) -> Value {
        let words = format!("{method} {url}");
        let (status, answer) = self.ask(method, url, body).await;
        assert!(status.is_success(), "{words}: {status} {answer}");
        answer
    }

    async fn ask(&self, method: Method, url: &str, body: Option<Value>) -> (StatusCode, Value) {
        let token = self.token(None).await;
        let mut answer = self.send(method.clone(), url, Some(&token), body.as_ref()).await;
        if answer.status() == StatusCode::UNAUTHORIZED {
            let token = self.token(Some(&token)).await;
            answer = self.send(method, url, Some(&token), body.as_ref()).await;
        }
        self.answer(answer).await
    }

    async fn answer(&self, answer: Response) -> (StatusCode, Value) {
        let status = answer.status();
        let text = answer.text().await.unwrap_or_default();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    async fn send(&self, method: Method, url: &str, token: Option<&str>, body: Option<&Value>) -> Response {
        let words = format!("{method} {url}");
        let mut request = self.http.request(method, url);
        if let Some(token) = token {
            request = request.header("X-Auth-Token", token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        request.send().await.unwrap_or_else(|error| panic!("{words}: {error:?}"))
    }

    /// The administrator's token, another one where `refused` is the one that is known.
    pub(crate) async fn token(&self, refused: Option<&str>) -> String {
        let mut known = self.token.lock().await;
        if let Some(token) = known.as_deref().filter(|token| refused != Some(*token)) {
            return token.to_owned();
        }
        known.insert(self.token_of("admin").await).clone()
    }

    /// A new token of the user of this name in the project of this name.
    pub(crate) async fn token_of(&self, name: &str) -> String {
        let domain = json!({ "id": "default" });
        let user = json!({ "name": name, "domain": domain, "password": PASSWORD });
        let body = json!({ "auth": {
            "identity": { "methods": ["password"], "password": { "user": user } },
            "scope": { "project": { "name": name, "domain": domain } } } });
        let url = format!("{}/v3/auth/tokens", self.keystone);
        let answer = self.send(Method::POST, &url, None, Some(&body)).await;
        let token = answer.headers().get("X-Subject-Token").and_then(|token| token.to_str().ok());
        token.unwrap_or_else(|| panic!("Keystone does not let {name} in: {}", answer.status())).to_owned()
    }

    /// Asks Keystone as somebody else; `path` begins after the version.
    pub(crate) async fn identity_as(&self, token: &str, method: Method, path: &str, body: Value) -> Value {
        let url = format!("{}/v3/{path}", self.keystone);
        let (status, answer) = self.answer(self.send(method, &url, Some(token), Some(&body)).await).await;
        assert!(status.is_success(), "{url}: {status} {answer}");
        answer
    }

    /// Makes a token worthless. Who holds it learns of that by a 401.
    pub(crate) async fn revoke(&self, token: &str) {
        let ours = self.token(None).await;
        let request = self.http.delete(format!("{}/v3/auth/tokens", self.keystone));
        let answer = request.header("X-Auth-Token", ours).header("X-Subject-Token", token).send().await;
        let status = answer.expect("Keystone answers").status();
        assert!(status.is_success(), "the token cannot be revoked: {status}");
    }
}
