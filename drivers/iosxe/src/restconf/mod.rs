//! The RESTCONF client (RFC 8040) for one device: requests, and the interpretation of responses.

mod client;
mod discovery;
mod error_response;
mod exchange;
mod gate;
mod network_client;
mod requests;
#[cfg(test)]
mod tests;
mod tls;

pub(crate) use client::Restconf;
pub(crate) use network_client::{NetworkClient, NoAnswer, RequestFailure};
