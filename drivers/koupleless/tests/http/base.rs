//! A simulated base: an HTTP server that answers as a test says.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// A simulated base on loopback.
pub(crate) struct Base {
    pub(crate) id: String,
    pub(crate) port: u16,
    state: Arc<BaseState>,
    _serving: AbortOnDropHandle<()>,
}

struct BaseState {
    answers: Mutex<HashMap<String, (StatusCode, Vec<u8>)>>,
    requests: Mutex<Vec<(String, Value)>>,
    /// Each answer takes a permit.
    permits: Semaphore,
}

impl Base {
    /// Starts a base that answers every command with success.
    pub(crate) async fn start(id: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let permits = Semaphore::new(1000);
        let state = Arc::new(BaseState { answers: Mutex::default(), requests: Mutex::default(), permits });
        let router = Router::new().route("/{command}", post(command)).with_state(Arc::clone(&state));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let base = Self { id: id.to_owned(), port, state, _serving: AbortOnDropHandle::new(serving) };
        let health = json!({ "jvm": { "java max metaspace": 10240, "java committed metaspace": 1024 } });
        base.answers("health", &success(&json!({ "healthData": health })));
        base.answers("queryAllBiz", &success(&json!([])));
        for command in ["installBiz", "uninstallBiz"] {
            base.answers(command, &success(&json!({ "code": "SUCCESS", "message": "done" })));
        }
        base
    }

    /// Makes the base answer a command with this JSON from now on.
    pub(crate) fn answers(&self, command: &str, answer: &Value) {
        self.answers_raw(command, StatusCode::OK, answer.to_string().into_bytes());
    }

    /// Makes the base answer a command with this status and body from now on.
    pub(crate) fn answers_raw(&self, command: &str, status: StatusCode, body: Vec<u8>) {
        self.state.answers.lock().unwrap().insert(command.to_owned(), (status, body));
    }

    /// Makes the base receive commands and answer none.
    pub(crate) fn fall_silent(&self) {
        self.state.permits.forget_permits(1000);
    }

    /// Makes the base answer everything, the commands that wait too.
    pub(crate) fn speak(&self) {
        self.state.permits.add_permits(1000);
    }

    /// Returns the bodies of the requests with this command.
    pub(crate) fn requests(&self, command: &str) -> Vec<Value> {
        let requests = self.state.requests.lock().unwrap();
        requests.iter().filter(|(of, _)| of == command).map(|(_, body)| body.clone()).collect()
    }

    /// Returns the heartbeat of the base.
    pub(crate) fn heartbeat(&self) -> Value {
        json!({
            "baseMetadata": { "identity": self.id, "name": "shop", "version": "1.1", "clusterName": "east" },
            "localIP": "127.0.0.1", "localHostName": "shop-0", "port": self.port, "state": "ACTIVATED",
        })
    }
}

/// Returns the response of a command that succeeds.
pub(crate) fn success(data: &Value) -> Value {
    json!({ "code": "SUCCESS", "data": data, "message": "" })
}

async fn command(State(base): State<Arc<BaseState>>, Path(command): Path<String>, body: Bytes) -> Response {
    base.requests.lock().unwrap().push((command.clone(), serde_json::from_slice(&body).unwrap()));
    base.permits.acquire().await.unwrap().forget();
    match base.answers.lock().unwrap().get(&command) {
        Some((status, body)) => (*status, body.clone()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
