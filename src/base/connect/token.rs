//! A bearer token in a file. The file is replaced while the program runs; in a pod, the kubelet does that.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, StatusCode};
use kube::Client;
use kube::client::Body;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::service_fn;
use tracing::{info, warn};

/// The time after which the file is read again. The kubelet replaces a token when a fifth of its lifetime is left. For the shortest
/// lifetime that the API server grants, that is two minutes.
const MAX_AGE: Duration = Duration::from_secs(30);

/// A token file, with the last token that was read.
pub(super) struct TokenFile {
    path: PathBuf,
    last: Mutex<CachedToken>,
}

/// The value of the header `Authorization` with the last token that could be read, and the time of the last attempt to read the file.
struct CachedToken {
    header: HeaderValue,
    at: Instant,
}

impl TokenFile {
    /// Removes the path of the token file from `auth` and returns it. Returns `None` if `auth` has no token file, or other credentials
    /// that take precedence. Also removes a credential plugin, over which the token file takes precedence.
    pub(super) fn take(auth: &mut AuthInfo) -> Option<PathBuf> {
        let other = auth.token.is_some() || auth.username.is_some() || auth.auth_provider.is_some();
        let path = auth.token_file.take_if(|_| !other)?;
        auth.exec = None;
        Some(path.into())
    }

    /// Reads the token file for the first time; fails if that is not possible.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let last = Mutex::new(CachedToken { header: read(&path)?, at: Instant::now() });
        Ok(Self { path, last })
    }

    /// Returns the value of the header `Authorization`. Reads the file again first if the last attempt to read it was [`MAX_AGE`] ago or
    /// earlier, or if the last token is that in `rejected`, which the server rejected. If the file cannot be read, the last token is kept.
    fn header(&self, rejected: Option<&HeaderValue>) -> HeaderValue {
        let mut last = self.last.lock();
        if last.at.elapsed() >= MAX_AGE || rejected == Some(&last.header) {
            match read(&self.path) {
                Ok(header) => last.header = header,
                Err(error) => warn!(path = %self.path.display(), %error, "cannot read the token file again"),
            }
            last.at = Instant::now();
        }
        last.header.clone()
    }
}

/// Reads the token from its file, as the value of the header `Authorization`.
fn read(path: &PathBuf) -> io::Result<HeaderValue> {
    let text = std::fs::read_to_string(path)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file contains no token"));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the content is not a valid token"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Wraps `client` so that each request contains the token. If the server rejects a request with 401 and the file contains another token
/// by then, the request is repeated once with the new token. So the replacement of a token makes no request fail.
pub(super) fn authenticated(client: Client, token: TokenFile) -> Client {
    let (namespace, token) = (client.default_namespace().to_owned(), Arc::new(token));
    let service = service_fn(move |request: Request<Body>| {
        let (client, token) = (client.clone(), Arc::clone(&token));
        async move {
            let (parts, body) = request.into_parts();
            // A body that is a stream cannot be sent twice.
            let again = body.try_clone().map(|body| Request::from_parts(parts.clone(), body));
            let header = token.header(None);
            let response = client.send(with(Request::from_parts(parts, body), &header)).await?;
            if response.status() != StatusCode::UNAUTHORIZED {
                return Ok(response);
            }
            let newer = token.header(Some(&header));
            let Some(again) = again.filter(|_| newer != header) else { return Ok(response) };
            info!("the API server rejected the token; repeating the request with the new one");
            client.send(with(again, &newer)).await
        }
    });
    Client::new(service, namespace)
}

/// Returns the request with `header` as the value of its header `Authorization`.
fn with(mut request: Request<Body>, header: &HeaderValue) -> Request<Body> {
    request.headers_mut().insert(AUTHORIZATION, header.clone());
    request
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tempfile::NamedTempFile;

    use super::*;

    /// A server that accepts one token and records all requests.
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
            let (token, noted) = (*token.lock(), Arc::clone(&noted));
            async move {
                let header = request.headers()[AUTHORIZATION].clone();
                assert!(header.is_sensitive());
                let header = header.to_str().unwrap().to_owned();
                let code = if header == format!("Bearer {token}") { 200 } else { 401 };
                let body = request.into_body().collect_bytes().await?;
                noted.lock().push((header, String::from_utf8(body.to_vec()).unwrap()));
                Ok::<_, kube::Error>(Response::builder().status(code).body(Body::empty()).unwrap())
            }
        });
        let token = TokenFile::open(file.path().to_owned()).unwrap();
        let client = authenticated(Client::new(inner, "default"), token);
        Server { file, takes, came, client }
    }

    impl Server {
        /// Sends `body` through an authenticated client. Returns the status code and the tokens of the requests.
        async fn ask(&self, body: &'static str) -> (u16, Vec<String>) {
            let request = Request::patch("/").body(Body::from(body.as_bytes().to_vec())).unwrap();
            let code = self.client.send(request).await.unwrap().status().as_u16();
            let came = std::mem::take(&mut *self.came.lock());
            assert!(came.iter().all(|(_, came)| came == body), "{came:?}");
            (code, came.into_iter().map(|(header, _)| header.replace("Bearer ", "")).collect())
        }
    }

    fn tokens(tokens: &[&str]) -> Vec<String> {
        tokens.iter().map(ToString::to_string).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_token_is_used_before_the_old_one_expires() {
        let server = server();
        assert_eq!(server.ask("a").await, (200, tokens(&["one"])));
        std::fs::write(&server.file, "two").unwrap();
        *server.takes.lock() = "two";
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(server.ask("b").await, (200, tokens(&["two"])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_token_is_rejected_is_repeated_with_the_new_token() {
        let server = server();
        std::fs::write(&server.file, "two").unwrap();
        *server.takes.lock() = "two";
        assert_eq!(server.ask("a").await, (200, tokens(&["one", "two"])));
        assert_eq!(server.ask("b").await, (200, tokens(&["two"])));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_not_repeated_with_the_rejected_token() {
        let server = server();
        *server.takes.lock() = "two";
        assert_eq!(server.ask("a").await, (401, tokens(&["one"])));
        std::fs::write(&server.file, "three").unwrap();
        assert_eq!(server.ask("b").await, (401, tokens(&["one", "three"])), "once, and no more");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_token_is_kept_if_the_file_contains_none() {
        let server = server();
        for content in ["", " \n", "one\ntwo"] {
            std::fs::write(&server.file, content).unwrap();
            tokio::time::advance(MAX_AGE).await;
            assert_eq!(server.ask("a").await, (200, tokens(&["one"])), "{content:?}");
        }
        std::fs::remove_file(server.file.path()).unwrap();
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(server.ask("a").await, (200, tokens(&["one"])));
    }

    #[test]
    fn credentials_that_precede_a_token_file_are_left_to_kube_and_a_plugin_that_it_precedes_is_not_run() {
        let auth = |yaml: &str| serde_saphyr::from_str::<AuthInfo>(yaml).unwrap();
        let mut file = auth("{tokenFile: /t, exec: {command: c}}");
        assert_eq!(TokenFile::take(&mut file), Some("/t".into()));
        assert!(file.token_file.is_none() && file.exec.is_none());
        let others =
            ["token: t", "{username: u, password: p}", "auth-provider: {name: oidc, config: {}}", "{}"];
        for other in others {
            let mut auth = auth(other);
            auth.token_file = (other != "{}").then(|| "/t".to_owned());
            assert_eq!(TokenFile::take(&mut auth), None, "{other}");
        }
    }
}
