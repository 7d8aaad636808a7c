use std::any::TypeId;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Takes all in, and is never at its end where it does not settle.
struct Nobody {
    settles: bool,
}

impl EventHandler<AnyEvent> for Nobody {
    async fn handle(&self, _: &AnyEvent, _: &Turn<'_>) -> Result<(), HandlerError> {
        Ok(())
    }
}

impl Sink for Nobody {
    fn listed(&self, _: TypeId) {}

    async fn room(&self) {}

    async fn settled(&self) {
        if !self.settles {
            std::future::pending::<()>().await;
        }
    }

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

/// The answer of a server, and after which time it comes; none where it never does.
type Answer = Option<(Duration, Response<axum::body::Body>)>;

/// How long an answer takes at least: no server is faster than the clock.
const SOON: Duration = Duration::from_millis(1);

#[expect(clippy::unnecessary_wraps, reason = "it is one of the answers")]
fn at_once(body: impl Into<axum::body::Body>) -> Answer {
    Some((SOON, Response::new(body.into())))
}

/// The answer of a server that is well, and in whose watches nothing ever happens.
fn well(asked: Asked) -> Answer {
    at_once(match asked {
        Asked::Watch => axum::body::Body::from_stream(pending::<io::Result<Vec<u8>>>()),
        Asked::List | Asked::Where => list("").into(),
    })
}

/// A list of one object, which goes on at `next`.
fn list(next: &str) -> String {
    let metadata = json!({ "resourceVersion": "1", "continue": next });
    let item =
        json!({ "metadata": { "namespace": "default", "name": "a", "uid": "u", "resourceVersion": "1" } });
    json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [item] }).to_string()
}

#[expect(clippy::unnecessary_wraps, reason = "it is one of the answers")]
fn refused(code: u16) -> Answer {
    Some((SOON, Response::builder().status(code).body(axum::body::Body::empty()).unwrap()))
}

/// What a watch asks within ten minutes, and how it is then.
struct TenMinutes {
    /// After how many seconds, and what.
    asked: Vec<(u64, Asked)>,
    sight: Sight,
}

impl TenMinutes {
    /// Of a server that gives this answer to what is asked by a query.
    async fn of(answer: impl Fn(Asked, &str) -> Answer + Send + 'static) -> Self {
        Self::for_sink(Nobody { settles: true }, answer).await
    }

    /// For somebody to whom it delivers.
    async fn for_sink(sink: Nobody, answer: impl Fn(Asked, &str) -> Answer + Send + 'static) -> Self {
        let (seen, begun) = (Arc::<Mutex<Vec<(u64, Asked)>>>::default(), Instant::now());
        let noted = Arc::clone(&seen);
        let server = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let asked = Asked::of(query);
            lock(&noted).push((begun.elapsed().as_secs(), asked));
            // Who asks without end would keep the clock from going on.
            let answer = answer(asked, query).filter(|_| lock(&noted).len() < 10_000);
            async move {
                let Some((time, answer)) = answer else { return std::future::pending().await };
                tokio::time::sleep(time).await;
                Ok::<_, io::Error>(answer)
            }
        });
        let (requests, silence) = (Arc::new(Requests::new("server")), Arc::<Silence>::default());
        let client = wrap(Client::new(server, "default"), &requests, &silence, &Term::for_ever());
        let kind = Kind::of::<ConfigMap>();
        silence.listen(&kind.path);
        let watcher = Watcher::new(client, Arc::new(sink)).watch_timeout(Duration::from_secs(60));
        let watcher = watcher.overheard(silence);
        watcher.add(&kind);
        tokio::time::sleep(Duration::from_secs(600)).await;
        Self { asked: lock(&seen).clone(), sight: watcher.sights().remove(0) }
    }

    /// Of a server that never answers the first request of this sort, and is well apart from that.
    async fn without_an_answer(unanswered: Asked) -> Vec<(u64, Asked)> {
        let first = AtomicBool::new(true);
        let answer = move |asked, _: &str| {
            if asked == unanswered && first.swap(false, Ordering::Relaxed) { None } else { well(asked) }
        };
        let Self { asked, sight } = Self::of(answer).await;
        assert!(sight.listed, "it lists in the end");
        asked
    }

    /// How many requests of this sort there were.
    fn count(&self, sort: Asked) -> usize {
        self.asked.iter().filter(|(_, asked)| *asked == sort).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_taken_up_is_given_up_and_all_is_listed_anew() {
    let asked = TenMinutes::without_an_answer(Asked::Watch).await;
    assert_eq!(asked[..2], [(0, Asked::List), (0, Asked::Watch)]);
    let (second, again) = asked[2];
    assert!(again == Asked::List && (120..=122).contains(&second), "{asked:?}");
    assert_eq!(asked[3], (second, Asked::Watch));
    let lists = asked.iter().filter(|(_, asked)| *asked == Asked::List).count();
    assert_eq!(lists, 2, "a watch that was taken up is not given up: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_first_list_that_is_never_answered_is_asked_for_again_after_a_minute() {
    let asked = TenMinutes::without_an_answer(Asked::List).await;
    assert_eq!(asked[0], (0, Asked::List));
    let (second, again) = asked[1];
    assert!(again == Asked::List && (60..=62).contains(&second), "{asked:?}");
    assert_eq!(asked[2], (second, Asked::Watch));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_each_time_is_an_error_that_is_waited_out() {
    for said in ["", "{\"type\":\"ADDED\",\"obj"] {
        let answer = move |asked| match asked {
            Asked::Watch => at_once(said),
            Asked::List | Asked::Where => well(asked),
        };
        let seen = TenMinutes::of(move |asked, _| answer(asked)).await;
        let watches = seen.count(Asked::Watch);
        assert!((15..=40).contains(&watches), "{watches} watches in ten minutes: {said:?}");
        assert!(seen.count(Asked::List) >= 8, "what happens is found by lists: {:?}", seen.asked);
        let SoFar { errors, trouble, .. } = seen.sight.so_far;
        assert!(errors >= 15, "{errors} errors");
        assert!(trouble.is_some_and(|trouble| trouble.contains("the watch ended at once")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_be_listed_and_not_watched_is_listed_less_and_less_often() {
    let seen =
        TenMinutes::of(|asked, _| if asked == Asked::Watch { refused(403) } else { well(asked) }).await;
    let (lists, watches) = (seen.count(Asked::List), seen.count(Asked::Watch));
    assert!((8..=20).contains(&lists) && (15..=40).contains(&watches), "{lists} lists, {watches} watches");
    assert!(seen.sight.so_far.trouble.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_first_watch_does_not_wait_for_ever_for_what_is_never_done() {
    let seen = TenMinutes::for_sink(Nobody { settles: false }, |asked, _| well(asked)).await;
    assert_eq!(seen.asked[..2], [(0, Asked::List), (10, Asked::Watch)]);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_second_page_fails_each_time_is_asked_for_less_and_less_often() {
    let answer = |query: &str| match query {
        _ if query.contains("continue=") => refused(500),
        _ => at_once(list("there is more")),
    };
    let seen = TenMinutes::of(move |_, query| answer(query)).await;
    let pages = seen.count(Asked::List);
    assert!((30..=80).contains(&pages), "{pages} pages in ten minutes");
    assert!(!seen.sight.listed);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_follows_a_long_list_after_an_error_has_its_time_to_be_taken_up() {
    let first = AtomicBool::new(true);
    let later = |seconds, answer: Answer| answer.map(|(_, answer)| (Duration::from_secs(seconds), answer));
    let answer = move |asked, query: &str| match asked {
        Asked::List if first.swap(false, Ordering::Relaxed) => refused(500),
        Asked::List if !query.contains("continue=") => later(40, at_once(list("there is more"))),
        Asked::List => later(40, at_once(list(""))),
        Asked::Watch => later(5, well(asked)),
        Asked::Where => well(asked),
    };
    let seen = TenMinutes::of(answer).await;
    assert_eq!(seen.count(Asked::List), 3, "{:?}", seen.asked);
    assert_eq!(seen.sight.so_far.trouble, None);
}
