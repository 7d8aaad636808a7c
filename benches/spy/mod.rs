//! Looks at what passes between a client and its server: when a pod is first heard of, and when its patches are answered.

#![allow(dead_code, reason = "each benchmark takes what it needs")]

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode, Uri};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;

/// What was seen, by the name of the pod.
#[derive(Clone, Default)]
pub(crate) struct Spy(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    heard: HashMap<String, Instant>,
    acknowledged: HashMap<String, Vec<Instant>>,
    others: usize,
    /// What was read once, by its path: the first list of a kind.
    listed: HashSet<String>,
}

impl Spy {
    /// The same client, looked at.
    pub(crate) fn watch(&self, client: Client) -> Client {
        let spy = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, spy) = (client.clone(), spy.clone());
            async move {
                let (method, uri) = (request.method().clone(), request.uri().clone());
                let answer = client.send(request).await?;
                spy.note(&method, &uri, answer.status());
                let reader = spy.clone();
                Ok::<_, kube::Error>(answer.map(|body| {
                    body.map_frame(move |frame| {
                        if let Some(data) = frame.data_ref() {
                            reader.read(data);
                        }
                        frame
                    })
                }))
            }
        });
        Client::new(service, "default")
    }

    fn note(&self, method: &Method, uri: &Uri, status: StatusCode) {
        let pod = uri.path().rsplit_once("/pods/").map(|(_, name)| name);
        let parameter =
            |name: &str| uri.query().is_some_and(|query| query.split('&').any(|part| part.starts_with(name)));
        let mut seen = self.seen();
        match (method, pod) {
            (&Method::PATCH, Some(name)) if status.is_success() => {
                seen.acknowledged.entry(name.to_owned()).or_default().push(Instant::now());
            }
            // Watches, the further pages of lists, and what is read for the first time: the list of a kind, discovery.
            (&Method::GET, None) if parameter("watch=") || parameter("continue=") => {}
            (&Method::GET, None) if seen.listed.insert(uri.path().to_owned()) => {}
            _ => seen.others += 1,
        }
    }

    /// The first name in each event of a pod is its own.
    fn read(&self, data: &[u8]) {
        const ADDED: &[u8] = br#"{"type":"ADDED","object":"#;
        const NAME: &[u8] = br#""name":""#;
        for line in data.split(|&byte| byte == b'\n').filter(|line| line.starts_with(ADDED)) {
            let Some(at) = line.windows(NAME.len()).position(|window| window == NAME) else { continue };
            let name = line[at + NAME.len()..].split(|&byte| byte == b'"').next().unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            self.seen().heard.entry(name).or_insert_with(Instant::now);
        }
    }

    /// Waits until each of these pods has its annotation. Answers how long that took from its event on.
    pub(crate) async fn until(&self, names: &[String]) -> Vec<Duration> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let times: Vec<_> = names.iter().filter_map(|name| self.time(name)).collect();
            if times.len() == names.len() {
                return times;
            }
            assert!(Instant::now() < deadline, "{} of {} pods were annotated", times.len(), names.len());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn time(&self, name: &str) -> Option<Duration> {
        Some(self.acknowledged(name).first()?.duration_since(self.heard(name)?))
    }

    /// When the pod was first heard of.
    pub(crate) fn heard(&self, name: &str) -> Option<Instant> {
        self.seen().heard.get(name).copied()
    }

    /// When each of its patches was answered.
    pub(crate) fn acknowledged(&self, name: &str) -> Vec<Instant> {
        self.seen().acknowledged.get(name).cloned().unwrap_or_default()
    }

    /// How many requests there were that neither watched, nor patched pods, nor listed a kind for the first time.
    pub(crate) fn others(&self) -> usize {
        self.seen().others
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
