//! The bearer token in a file that is replaced while the program runs; in a pod the kubelet does that.

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use kube::client::Body;
use kube::config::AuthInfo;
use tokio::time::Instant;
use tower::Service;
use tracing::{info, warn};

use crate::lock::lock;

/// How long a token is used before the file is read again. The kubelet replaces a token when a fifth of its life is left:
/// two minutes of the shortest life that the API server grants.
const FRESH: Duration = Duration::from_secs(30);

/// The token of a file as the header of a request.
pub(super) struct TokenFile {
    path: PathBuf,
    last: Mutex<LastRead>,
}

struct LastRead {
    header: HeaderValue,
    at: Instant,
}

impl TokenFile {
    /// The file that `auth` names, unless something else goes before it. From then on `auth` names none.
    pub(super) fn take(auth: &mut AuthInfo) -> Option<PathBuf> {
        let other = auth.token.is_some() || auth.username.is_some() || auth.auth_provider.is_some();
        if other { None } else { auth.token_file.take().map(PathBuf::from) }
    }

    /// Reads the file for the first time.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let last = Mutex::new(LastRead { header: read(&path)?, at: Instant::now() });
        Ok(Self { path, last })
    }

    /// The token, at most [`FRESH`] old.
    fn header(&self) -> HeaderValue {
        let mut last = self.last();
        if last.at.elapsed() >= FRESH {
            self.read_again(&mut last);
        }
        last.header.clone()
    }

    /// The token that is in the file by now; none when it is the one that was refused.
    fn instead_of(&self, refused: &HeaderValue) -> Option<HeaderValue> {
        let mut last = self.last();
        if last.header == *refused {
            self.read_again(&mut last);
        }
        (last.header != *refused).then(|| last.header.clone())
    }

    /// Without a file, or without a token in it, the last token is as good as there is.
    fn read_again(&self, last: &mut LastRead) {
        match read(&self.path) {
            Ok(header) => last.header = header,
            Err(error) => warn!(path = %self.path.display(), %error, "the token cannot be read again"),
        }
        last.at = Instant::now();
    }

    fn last(&self) -> MutexGuard<'_, LastRead> {
        lock(&self.last)
    }
}

fn read(path: &PathBuf) -> io::Result<HeaderValue> {
    let text = std::fs::read_to_string(path)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "there is no token in it"));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "what is in it is no token"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Sends each request with the token. One that the server refuses (401) is repeated, once, if the file has another token
/// by now, so that a change of tokens is no failure of whatever was asked for.
pub(super) struct Bearer<S> {
    inner: Arc<Mutex<S>>,
    token: Arc<TokenFile>,
}

impl<S> Bearer<S> {
    pub(super) fn new(inner: S, token: Arc<TokenFile>) -> Self {
        Self { inner: Arc::new(Mutex::new(inner)), token }
    }
}

impl<S, B> Service<Request<Body>> for Bearer<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    /// Each of the two calls waits by itself until the server takes it.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let (inner, token) = (Arc::clone(&self.inner), Arc::clone(&self.token));
        Box::pin(async move {
            let header = token.header();
            let again = copy(&request);
            request.headers_mut().insert(AUTHORIZATION, header.clone());
            let answer = call(&inner, request).await?;
            if answer.status() != StatusCode::UNAUTHORIZED {
                return Ok(answer);
            }
            match (again, token.instead_of(&header)) {
                (Some(mut again), Some(newer)) => {
                    info!("the API server refused the token; the file has another one by now");
                    again.headers_mut().insert(AUTHORIZATION, newer);
                    call(&inner, again).await
                }
                _ => Ok(answer),
            }
        })
    }
}

/// Calls `inner` as soon as it is ready, and lets go of it while the answer is on its way.
async fn call<S>(inner: &Mutex<S>, request: Request<Body>) -> Result<S::Response, S::Error>
where
    S: Service<Request<Body>>,
{
    let mut request = Some(request);
    let answer = poll_fn(|context| {
        let mut inner = lock(inner);
        ready!(inner.poll_ready(context))?;
        let request = request.take().expect("this is ready once");
        Poll::Ready(Ok(inner.call(request)))
    });
    answer.await?.await
}

/// The same request once more; none where its body is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use tempfile::NamedTempFile;
    use tower::service_fn;

    use super::*;

    /// A server that takes requests with one token, and notes those that came.
    struct Server {
        file: NamedTempFile,
        takes: Arc<Mutex<&'static str>>,
        came: Arc<Mutex<Vec<(String, String)>>>,
        client: Client,
    }

    fn server() -> Server {
        let file = NamedTempFile::new().unwrap();
        std::fs::write(&file, "one\n").unwrap();
        let (takes, came) = (Arc::new(Mutex::new("one")), Arc::<Mutex<Vec<_>>>::default());
        let (token, noted) = (Arc::clone(&takes), Arc::clone(&came));
        let inner = service_fn(move |request: Request<Body>| {
            let (token, noted) = (*token.lock().unwrap(), Arc::clone(&noted));
            async move {
                let header = request.headers()[AUTHORIZATION].clone();
                assert!(header.is_sensitive());
                let header = header.to_str().unwrap().to_owned();
                let code = if header == format!("Bearer {token}") { 200 } else { 401 };
                let body = request.into_body().collect_bytes().await?;
                noted.lock().unwrap().push((header, String::from_utf8(body.to_vec()).unwrap()));
                Ok::<_, kube::Error>(Response::builder().status(code).body(Body::empty()).unwrap())
            }
        });
        let token = Arc::new(TokenFile::open(file.path().to_owned()).unwrap());
        let client = Client::new(Bearer::new(inner, token), "default");
        Server { file, takes, came, client }
    }

    impl Server {
        /// The code of the answer to `body`, and the tokens with which it came.
        async fn ask(&self, body: &'static str) -> (u16, Vec<String>) {
            let request = Request::patch("/").body(Body::from(body.as_bytes().to_vec())).unwrap();
            let code = self.client.send(request).await.unwrap().status().as_u16();
            let came = std::mem::take(&mut *self.came.lock().unwrap());
            assert!(came.iter().all(|(_, came)| came == body), "{came:?}");
            (code, came.into_iter().map(|(header, _)| header.replace("Bearer ", "")).collect())
        }
    }

    fn tokens(tokens: &[&str]) -> Vec<String> {
        tokens.iter().map(ToString::to_string).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_was_replaced_is_used_before_the_old_one_expires() {
        let server = server();
        assert_eq!(server.ask("a").await, (200, tokens(&["one"])));
        std::fs::write(&server.file, "two").unwrap();
        *server.takes.lock().unwrap() = "two";
        tokio::time::advance(FRESH).await;
        assert_eq!(server.ask("b").await, (200, tokens(&["two"])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_token_is_refused_is_repeated_with_the_one_that_is_in_the_file_by_now() {
        let server = server();
        std::fs::write(&server.file, "two").unwrap();
        *server.takes.lock().unwrap() = "two";
        assert_eq!(server.ask("a").await, (200, tokens(&["one", "two"])));
        assert_eq!(server.ask("b").await, (200, tokens(&["two"])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_not_repeated_with_the_token_that_was_refused() {
        let server = server();
        *server.takes.lock().unwrap() = "two";
        assert_eq!(server.ask("a").await, (401, tokens(&["one"])));
        std::fs::write(&server.file, "three").unwrap();
        assert_eq!(server.ask("b").await, (401, tokens(&["one", "three"])), "once, and no more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_without_a_token_leaves_the_last_one_in_use() {
        let server = server();
        for content in ["", " \n", "one\ntwo"] {
            std::fs::write(&server.file, content).unwrap();
            tokio::time::advance(FRESH).await;
            assert_eq!(server.ask("a").await, (200, tokens(&["one"])), "{content:?}");
        }
        std::fs::remove_file(server.file.path()).unwrap();
        tokio::time::advance(FRESH).await;
        assert_eq!(server.ask("a").await, (200, tokens(&["one"])));
    }

    #[test]
    fn whatever_goes_before_a_token_file_is_left_to_kube() {
        let auth = |yaml: &str| serde_saphyr::from_str::<AuthInfo>(yaml).unwrap();
        let mut file = auth("tokenFile: /t");
        assert_eq!(TokenFile::take(&mut file), Some("/t".into()));
        assert_eq!(file.token_file, None);
        let others =
            ["token: t", "{username: u, password: p}", "auth-provider: {name: oidc, config: {}}", "{}"];
        for other in others {
            let mut auth = auth(other);
            auth.token_file = (other != "{}").then(|| "/t".to_owned());
            assert_eq!(TokenFile::take(&mut auth), None, "{other}");
        }
    }
}
