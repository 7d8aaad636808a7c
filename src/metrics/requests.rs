//! The requests to the API server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};

/// The methods that are told apart.
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// The codes that are told apart: those by which an API server, or a proxy before it, says something of its own.
const CODES: [u16; 20] =
    [200, 201, 202, 400, 401, 403, 404, 405, 406, 408, 409, 410, 413, 415, 422, 429, 500, 502, 503, 504];

/// Any other code.
const OTHER: usize = CODES.len();

/// No answer at all.
const ERROR: usize = OTHER + 1;

/// Counts the requests by method and by what came of them.
#[derive(Default)]
pub(crate) struct Requests {
    counts: [[AtomicU64; ERROR + 1]; METHODS.len() + 1],
    seconds: AtomicU64,
}

impl Requests {
    /// A request ended after `time`: with this code, or without an answer.
    pub(crate) fn ended(&self, method: &Method, code: Option<StatusCode>, time: Duration) {
        let method = METHODS.iter().position(|known| known == method).unwrap_or(METHODS.len());
        let code = code.map_or(ERROR, |code| CODES.iter().position(|known| code == *known).unwrap_or(OTHER));
        self.counts[method][code].fetch_add(1, Ordering::Relaxed);
        self.seconds.fetch_add(time.as_secs(), Ordering::Relaxed);
    }
}
