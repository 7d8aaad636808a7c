use std::any::TypeId;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::stream::pending;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::json;
use staffetta_handler::{Action, Context, HandlerError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;

/// A sink that ignores all events. Unless `drains` is set, its events never count as handled.
struct Ignore {
    drains: bool,
}

impl EventHandler<AnyEvent> for Ignore {
    async fn handle(&self, _: &AnyEvent, _: &Context<'_>) -> Result<Action, HandlerError> {
        Ok(Action::done())
    }
}

impl EventSink for Ignore {
    fn listed(&self, _: TypeId) {}

    async fn capacity(&self) {}

    async fn drained(&self) {
        if !self.drains {
            std::future::pending::<()>().await;
        }
    }

    fn undecodable(&self, _: &Undecodable) {}
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    List,
    Watch,
    /// A request for the current resourceVersion of the server.
    Version,
}

impl RequestKind {
    fn of(query: &str) -> Self {
        match query {
            _ if query.contains("watch=true") => Self::Watch,
            _ if query.contains("limit=1&") || query.ends_with("limit=1") => Self::Version,
            _ => Self::List,
        }
    }
}

/// A response and its delay; `None` if the server never responds.
type Reply = Option<(Duration, Response<axum::body::Body>)>;

/// The delay of an immediate response, at the resolution of the clock.
const SOON: Duration = Duration::from_millis(1);

#[expect(clippy::unnecessary_wraps, reason = "all replies have one type")]
fn at_once(body: impl Into<axum::body::Body>) -> Reply {
    Some((SOON, Response::new(body.into())))
}

/// Returns the response of a healthy server without changes.
fn healthy(asked: RequestKind) -> Reply {
    at_once(match asked {
        RequestKind::Watch => axum::body::Body::from_stream(pending::<io::Result<Vec<u8>>>()),
        RequestKind::List | RequestKind::Version => list("").into(),
    })
}

/// Returns a list of one object with the continue token `next`.
fn list(next: &str) -> String {
    let metadata = json!({ "resourceVersion": "1", "continue": next });
    let item =
        json!({ "metadata": { "namespace": "default", "name": "a", "uid": "u", "resourceVersion": "1" } });
    json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": [item] }).to_string()
}

#[expect(clippy::unnecessary_wraps, reason = "all replies have one type")]
fn refused(code: u16) -> Reply {
    Some((SOON, Response::builder().status(code).body(axum::body::Body::empty()).unwrap()))
}

/// The requests of a watch within ten minutes, and its status after them.
struct TenMinutes {
    /// Each request with its time.
    asked: Vec<(Duration, RequestKind)>,
    status: WatchStatus,
}

impl TenMinutes {
    /// Runs a watch at a server that responds to a query with `answer`.
    async fn of(answer: impl Fn(RequestKind, &str) -> Reply + Send + 'static) -> Self {
        Self::of_kind(&Kind::of::<ConfigMap>(), Ignore { drains: true }, answer).await
    }

    /// Runs a watch of `kind` at a server that responds to a query with `answer`, and delivers to `sink`.
    async fn of_kind(
        kind: &Kind,
        sink: Ignore,
        answer: impl Fn(RequestKind, &str) -> Reply + Send + 'static,
    ) -> Self {
        let (seen, begun) = (Arc::<Mutex<Vec<(Duration, RequestKind)>>>::default(), Instant::now());
        let noted = Arc::clone(&seen);
        let server = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let asked = RequestKind::of(query);
            noted.lock().push((begun.elapsed(), asked));
            // Requests without end would keep the paused clock from advancing.
            let answer = answer(asked, query).filter(|_| noted.lock().len() < 10_000);
            async move {
                let Some((time, answer)) = answer else { return std::future::pending().await };
                tokio::time::sleep(time).await;
                Ok::<_, io::Error>(answer)
            }
        });
        let client = Client::new(server, "default");
        let watcher = Watcher::new(client, Arc::new(sink)).watch_timeout(Duration::from_secs(60));
        watcher.add(kind);
        tokio::time::sleep(Duration::from_secs(600)).await;
        Self { asked: seen.lock().clone(), status: watcher.statuses().remove(0) }
    }

    /// Runs a watch at a healthy server that never responds to the first request of one kind.
    async fn without_an_answer(unanswered: RequestKind) -> Vec<(Duration, RequestKind)> {
        let first = AtomicBool::new(true);
        let answer = move |asked, _: &str| {
            if asked == unanswered && first.swap(false, Ordering::Relaxed) { None } else { healthy(asked) }
        };
        let Self { asked, status } = Self::of(answer).await;
        assert!(status.listed, "it lists at last");
        asked
    }

    /// Returns the number of requests of one kind.
    fn count(&self, sort: RequestKind) -> usize {
        self.asked.iter().filter(|(_, asked)| *asked == sort).count()
    }
}

/// Returns `true` if the request with this index is of this kind, and was sent as soon as the one before was answered. The delays before
/// both are random, so the second in which each was sent says nothing.
fn follows(asked: &[(Duration, RequestKind)], index: usize, kind: RequestKind) -> bool {
    let (time, of) = asked[index];
    of == kind && time <= asked[index - 1].0 + SOON * 2
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_never_accepted_is_listed_again() {
    let asked = TenMinutes::without_an_answer(RequestKind::Watch).await;
    assert_eq!(asked[0], (Duration::ZERO, RequestKind::List));
    assert!(follows(&asked, 1, RequestKind::Watch), "{asked:?}");
    let (time, again) = asked[2];
    assert!(again == RequestKind::List && (120..=122).contains(&time.as_secs()), "{asked:?}");
    assert!(follows(&asked, 3, RequestKind::Watch), "{asked:?}");
    let lists = asked.iter().filter(|(_, asked)| *asked == RequestKind::List).count();
    assert_eq!(lists, 2, "a watch that was taken up is not given up: {asked:?}");
}

#[tokio::test(start_paused = true)]
async fn an_initial_list_without_a_response_is_retried_after_a_minute() {
    let asked = TenMinutes::without_an_answer(RequestKind::List).await;
    assert_eq!(asked[0], (Duration::ZERO, RequestKind::List));
    let (time, again) = asked[1];
    assert!(again == RequestKind::List && (60..=62).contains(&time.as_secs()), "{asked:?}");
    assert!(follows(&asked, 2, RequestKind::Watch), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_at_once_each_time_is_an_error_that_is_backed_off() {
    for said in ["", "{\"type\":\"ADDED\",\"obj"] {
        let answer = move |asked| match asked {
            RequestKind::Watch => at_once(said),
            RequestKind::List | RequestKind::Version => healthy(asked),
        };
        let seen = TenMinutes::of(move |asked, _| answer(asked)).await;
        let watches = seen.count(RequestKind::Watch);
        assert!((15..=40).contains(&watches), "{watches} watches in ten minutes: {said:?}");
        assert!(seen.count(RequestKind::List) >= 8, "changes are found by lists: {:?}", seen.asked);
        let WatchCounts { errors, last_error, .. } = seen.status.counts;
        assert!(errors >= 15, "{errors} errors");
        assert!(last_error.is_some_and(|last_error| last_error.contains("the watch ended at once")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_be_listed_and_not_watched_is_listed_with_back_off() {
    let seen =
        TenMinutes::of(|asked, _| if asked == RequestKind::Watch { refused(403) } else { healthy(asked) })
            .await;
    let (lists, watches) = (seen.count(RequestKind::List), seen.count(RequestKind::Watch));
    assert!((8..=20).contains(&lists) && (15..=40).contains(&watches), "{lists} lists, {watches} watches");
    assert!(seen.status.counts.last_error.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_first_watch_waits_for_the_list_for_a_limited_time_only() {
    let seen =
        TenMinutes::of_kind(&Kind::of::<ConfigMap>(), Ignore { drains: false }, |asked, _| healthy(asked))
            .await;
    let asked: Vec<_> = seen.asked[..2].iter().map(|(time, asked)| (time.as_secs(), *asked)).collect();
    assert_eq!(asked, [(0, RequestKind::List), (10, RequestKind::Watch)]);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_second_page_fails_each_time_is_retried_with_back_off() {
    let answer = |query: &str| match query {
        _ if query.contains("continue=") => refused(500),
        _ => at_once(list("there is more")),
    };
    let seen = TenMinutes::of(move |_, query| answer(query)).await;
    let pages = seen.count(RequestKind::List);
    assert!((200..=270).contains(&pages), "{pages} pages in ten minutes: two every five seconds");
    assert!(!seen.status.listed);
}

#[tokio::test(start_paused = true)]
async fn a_watch_after_a_long_list_after_an_error_has_the_full_time_to_be_accepted() {
    let first = AtomicBool::new(true);
    let later = |seconds, answer: Reply| answer.map(|(_, answer)| (Duration::from_secs(seconds), answer));
    let answer = move |asked, query: &str| match asked {
        RequestKind::List if first.swap(false, Ordering::Relaxed) => refused(500),
        RequestKind::List if !query.contains("continue=") => later(40, at_once(list("there is more"))),
        RequestKind::List => later(40, at_once(list(""))),
        RequestKind::Watch => later(5, healthy(asked)),
        RequestKind::Version => healthy(asked),
    };
    let seen = TenMinutes::of(answer).await;
    assert_eq!(seen.count(RequestKind::List), 3, "{:?}", seen.asked);
    assert_eq!(seen.status.counts.last_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_selected_watch_requests_nothing_beyond_its_selectors() {
    let mut kind = Kind::of::<ConfigMap>();
    kind.field_selector = Some("metadata.name=a".to_owned());
    kind.label_selector = Some("app=web".to_owned());
    let (again, fails) = (AtomicBool::new(true), AtomicBool::new(true));
    let minutes = TenMinutes::of_kind(&kind, Ignore { drains: true }, move |asked, query| {
        let selected = |selector: &str| query.contains(selector);
        if !selected("fieldSelector=metadata.name%3Da") || !selected("labelSelector=app%3Dweb") {
            return refused(403);
        }
        // One watch that ends with an error, so that what follows an error is requested too.
        match asked {
            RequestKind::Watch
                if !again.swap(false, Ordering::Relaxed) && fails.swap(false, Ordering::Relaxed) =>
            {
                refused(500)
            }
            _ => healthy(asked),
        }
    })
    .await;
    assert!(minutes.count(RequestKind::Version) >= 4, "{:?}", minutes.asked);
    assert_eq!(minutes.status.counts.last_error, None);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_requested_at_once_and_the_next_one_after_a_pause() {
    use watch_task::{RELIST_PAUSE, relist_requested};

    let (requested, began) = (Notify::new(), Instant::now());
    requested.notify_one();
    relist_requested(&requested, None).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    for _ in 0..100 {
        requested.notify_one();
    }
    relist_requested(&requested, Some(began)).await;
    assert_eq!(began.elapsed(), RELIST_PAUSE);
    let further =
        tokio::time::timeout(RELIST_PAUSE * 2, relist_requested(&requested, Some(Instant::now()))).await;
    assert!(further.is_err(), "one list serves all requests before it");
}

#[tokio::test(start_paused = true)]
async fn a_known_object_is_read_by_a_list_of_its_namespace_and_an_unknown_one_by_no_request() {
    let paths = Arc::<Mutex<Vec<String>>>::default();
    let noted = Arc::clone(&paths);
    let server = tower::service_fn(move |request: Request<Body>| {
        noted.lock().push(request.uri().to_string());
        let asked = RequestKind::of(request.uri().query().unwrap_or_default());
        async move { Ok::<_, io::Error>(healthy(asked).expect("it always answers").1) }
    });
    let watcher = Watcher::new(Client::new(server, "default"), Arc::new(Ignore { drains: true }));
    watcher.add(&Kind::of::<ConfigMap>());
    watcher.until_listed().await;
    let reads = || {
        let is_read = |path: &&String| path.contains("/namespaces/default/configmaps?");
        paths.lock().iter().filter(is_read).cloned().collect::<Vec<_>>()
    };
    let read = watcher.read("configmap", Some("default"), "a").await.unwrap();
    assert_eq!(read.iter().map(|object| object.meta().name.as_deref()).collect::<Vec<_>>(), [Some("a")]);
    assert!(reads().len() == 1 && reads()[0].contains("fieldSelector=metadata.name%3Da"), "{:?}", reads());
    assert!(watcher.read("ConfigMap", Some("default"), "b").await.unwrap().is_empty());
    assert_eq!(reads().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_without_a_namespace_is_read_where_it_is_unless_several_namespaces_have_it() {
    let server = tower::service_fn(|request: Request<Body>| async move {
        if RequestKind::of(request.uri().query().unwrap_or_default()) == RequestKind::Watch {
            return std::future::pending().await;
        }
        let all = [("shop", "a"), ("blog", "a"), ("shop", "b")];
        let of_namespace =
            |namespace: &str| request.uri().path().contains(&format!("/namespaces/{namespace}/"));
        let is_all = all.iter().all(|(namespace, _)| !of_namespace(namespace));
        let query = request.uri().query().unwrap_or_default();
        let items = all.iter().filter(|(namespace, name)| {
            is_all || of_namespace(namespace) && query.contains(&format!("metadata.name%3D{name}"))
        });
        let items = items.map(|(namespace, name)| {
            json!({ "metadata": { "namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"), "resourceVersion": "1" } })
        });
        let list = json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" },
            "items": items.collect::<Vec<_>>() });
        Ok::<_, io::Error>(Response::new(Body::from(list.to_string().into_bytes())))
    });
    let watcher = Watcher::new(Client::new(server, "default"), Arc::new(Ignore { drains: true }));
    watcher.add(&Kind::of::<ConfigMap>());
    watcher.until_listed().await;
    let read = async |namespace: Option<&str>, name: &str| {
        let read = watcher.read("configmap", namespace, name).await.map_err(|error| error.to_string());
        read.map(|objects| {
            objects.iter().map(|object| object.meta().uid.clone().unwrap()).collect::<Vec<_>>()
        })
    };
    assert_eq!(read(None, "b").await, Ok(vec!["shop-b".to_owned()]));
    assert_eq!(read(Some("blog"), "a").await, Ok(vec!["blog-a".to_owned()]));
    assert_eq!(read(None, "a").await, Err("it exists in several namespaces: blog, shop".to_owned()));
    assert_eq!(read(None, "c").await, Ok(Vec::new()));
}
