use std::any::TypeId;
use std::io;

use futures_util::stream::pending;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::json;
use staffetta_handler::{HandlerError, Turn};

use super::*;
use crate::client::wrap;
use crate::leadership::Term;
use crate::metrics::Requests;

/// Takes all in.
struct Nobody;

impl EventHandler<AnyEvent> for Nobody {
    async fn handle(&self, _: &AnyEvent, _: &Turn<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
}

impl Sink for Nobody {
    fn listed(&self, _: TypeId) {}

    async fn room(&self) {}

    fn undecodable(&self, _: &Undecodable) {}
}

/// What is asked of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    List,
    Watch,
    /// Where in its history it is.
    Where,
}

impl Asked {
    fn of(query: &str) -> Self {
        match query {
            _ if query.contains("watch=true") => Self::Watch,
            _ if query.contains("limit=1&") || query.ends_with("limit=1") => Self::Where,
            _ => Self::List,
        }
    }
}

/// What a watch asks within ten minutes of a server that never answers the first request of the sort `unanswered`, and
/// leaves every other watch open: after how many seconds, and what.
async fn asked(unanswered: Asked) -> Vec<(u64, Asked)> {
    let (seen, begun) = (Arc::<Mutex<Vec<(u64, Asked)>>>::default(), Instant::now());
    let noted = Arc::clone(&seen);
    let server = tower::service_fn(move |request: Request<Body>| {
        let asked = Asked::of(request.uri().query().unwrap_or_default());
        let first = lock(&noted).iter().all(|(_, earlier)| *earlier != asked);
        lock(&noted).push((begun.elapsed().as_secs(), asked));
        async move {
            if first && asked == unanswered {
                std::future::pending::<()>().await;
            }
            let list = json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] });
            let body = match asked {
                // Nothing ever happens in it.
                Asked::Watch => axum::body::Body::from_stream(pending::<io::Result<Vec<u8>>>()),
                Asked::List | Asked::Where => axum::body::Body::from(list.to_string()),
            };
            Ok::<_, io::Error>(Response::new(body))
        }
    });
    let (requests, silence) = (Arc::new(Requests::new("server")), Arc::<Silence>::default());
    let client = wrap(Client::new(server, "default"), &requests, &silence, &Term::for_ever());
    let kind = Kind::of::<ConfigMap>();
    silence.listen(&kind.path);
    let watcher = Watcher::new(client, Arc::new(Nobody)).watch_timeout(Duration::from_secs(60));
    let watcher = watcher.overheard(silence);
    watcher.add(&kind);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(watcher.sights()[0].listed, "it lists in the end");
    lock(&seen).clone()
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_taken_up_is_given_up_and_all_is_listed_anew() {
    let asked = asked(Asked::Watch).await;
    assert_eq!(asked[..2], [(0, Asked::List), (0, Asked::Watch)]);
    let (second, again) = asked[2];
    assert!(again == Asked::List && (120..=122).contains(&second), "{asked:?}");
    assert_eq!(asked[3], (second, Asked::Watch));
    let lists = asked.iter().filter(|(_, asked)| *asked == Asked::List).count();
    assert_eq!(lists, 2, "a watch that was taken up is not given up: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_first_list_that_is_never_answered_is_asked_for_again_after_a_minute() {
    let asked = asked(Asked::List).await;
    assert_eq!(asked[0], (0, Asked::List));
    let (second, again) = asked[1];
    assert!(again == Asked::List && (60..=62).contains(&second), "{asked:?}");
    assert_eq!(asked[2], (second, Asked::Watch));
}
