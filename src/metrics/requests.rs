//! The requests to the API server.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::encoding::DescriptorEncoder;

use super::exposition::write;
use super::histogram::Histogram;
use super::names;

/// The methods that are told apart; the last one stands for all others, which nobody uses.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OTHER"];

/// The codes that are told apart: those by which an API server, or a proxy before it, says something of its own.
const CODES: [&str; 21] = [
    "200", "201", "202", "400", "401", "403", "404", "405", "408", "409", "410", "413", "415", "422", "429",
    "500", "502", "503", "504", "<other>", "<error>",
];

const OTHER: usize = CODES.len() - 2;
const ERROR: usize = CODES.len() - 1;

/// Counts the requests to one API server by method and by what came of them.
pub(crate) struct Requests {
    host: String,
    counts: [[AtomicU64; CODES.len()]; METHODS.len()],
    durations: [Histogram; METHODS.len()],
}

impl Requests {
    /// No request was made yet; `host` is the API server as `host:port`.
    pub(crate) fn new(host: impl Into<String>) -> Self {
        Self { host: host.into(), counts: Default::default(), durations: Default::default() }
    }

    /// A request ended after `time`: with this code, or without an answer.
    pub(crate) fn ended(&self, method: &Method, code: Option<StatusCode>, time: Duration) {
        let place = METHODS.iter().position(|known| method == known).unwrap_or(METHODS.len() - 1);
        let code = code
            .map_or(ERROR, |code| CODES.iter().position(|known| code.as_str() == *known).unwrap_or(OTHER));
        self.counts[place][code].fetch_add(1, Ordering::Relaxed);
        self.durations[place].observe(time);
    }

    /// How many requests by `method` ended with `code`.
    #[cfg(test)]
    pub(crate) fn counted(&self, method: &str, code: &str) -> u64 {
        let place = |all: &[&str], name: &str| all.iter().position(|known| *known == name).unwrap();
        self.counts[place(&METHODS, method)][place(&CODES, code)].load(Ordering::Relaxed)
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        write(encoder, &names::REST_CLIENT_REQUESTS, |series| {
            for (method, counts) in METHODS.iter().zip(&self.counts) {
                for (code, count) in CODES.iter().zip(counts) {
                    series.counter(&[code, method, &self.host], count.load(Ordering::Relaxed))?;
                }
            }
            Ok(())
        })?;
        write(encoder, &names::REST_CLIENT_DURATION, |series| {
            for (method, durations) in METHODS.iter().zip(&self.durations) {
                series.histogram(&[method, &self.host], &durations.snapshot())?;
            }
            Ok(())
        })
    }
}
