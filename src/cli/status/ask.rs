//! Asks the admin server.

use std::io;
use std::time::Duration;

use reqwest::{Client, StatusCode, Url};

use crate::state::{Document, Query};

/// How long it may take to reach the server.
const CONNECT: Duration = Duration::from_secs(5);

/// How long the whole answer may take.
const ANSWER: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AskError {
    /// The operating system refused what is needed to ask.
    #[error("nobody can be asked")]
    Prepare(#[source] io::Error),
    /// The client cannot be made.
    #[error("nobody can be asked")]
    Client(#[source] reqwest::Error),
    /// Nobody answers.
    #[error("the admin server {url} cannot be reached (--admin, or `admin.listen` of --config)")]
    Unreachable {
        /// Where.
        url: Url,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// It refused the question.
    #[error("{0}")]
    Refused(String),
    /// It answers something else.
    #[error("{url} answers {code}: this is no admin server of staffetta, or one of another version")]
    Code {
        /// Where.
        url: Url,
        /// The code.
        code: StatusCode,
    },
    /// It answers something else.
    #[error("the answer of {url} is not as it must be; is it a staffetta of another version?")]
    Answer {
        /// Where.
        url: Url,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
}

/// How the controller is whose `/debug/state` is at `url`.
pub(super) fn ask(url: Url, query: &Query) -> Result<Document, AskError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AskError::Prepare)?;
    runtime.block_on(answer(url, query))
}

async fn answer(url: Url, query: &Query) -> Result<Document, AskError> {
    // The client wants one, although it speaks no TLS here; an error means that there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A proxy for the world outside does not know the way to a port on loopback.
    let client = Client::builder().no_proxy().connect_timeout(CONNECT).timeout(ANSWER);
    let client = client.build().map_err(AskError::Client)?;
    let sent = client.get(url.clone()).query(query).send().await;
    // The error names the address too, which is said already.
    let unreachable =
        |source: reqwest::Error| AskError::Unreachable { url: url.clone(), source: source.without_url() };
    let answer = sent.map_err(unreachable)?;
    match answer.status() {
        StatusCode::OK => {
            let answered = |source: reqwest::Error| AskError::Answer { url, source: source.without_url() };
            answer.json().await.map_err(answered)
        }
        StatusCode::BAD_REQUEST => {
            let why = answer.text().await.map_err(unreachable)?;
            Err(AskError::Refused(why.trim_end().to_owned()))
        }
        code => Err(AskError::Code { url, code }),
    }
}
