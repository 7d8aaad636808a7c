//! Looks at what passes between a client and its server: when a pod is first heard of, and when its patches are answered.

#![allow(dead_code, reason = "each benchmark takes what it needs")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode};
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
}

impl Spy {
    /// The same client, looked at.
    pub(crate) fn watch(&self, client: Client) -> Client {
        let spy = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, spy) = (client.clone(), spy.clone());
            async move {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                let answer = client.send(request).await?;
                spy.note(&method, &path, answer.status());
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

    fn note(&self, method: &Method, path: &str, status: StatusCode) {
        let pod = path.rsplit_once("/pods/").map(|(_, name)| name);
        match (method, pod) {
            (&Method::PATCH, Some(name)) if status.is_success() => {
                self.seen().acknowledged.entry(name.to_owned()).or_default().push(Instant::now());
            }
            // Lists, watches and discovery.
            (&Method::GET, None) => {}
            _ => self.seen().others += 1,
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

    /// How many requests there were that neither listed, watched nor patched pods.
    pub(crate) fn others(&self) -> usize {
        self.seen().others
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
