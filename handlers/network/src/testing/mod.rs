//! Test doubles that several handlers use.

pub(crate) mod api_server;
pub(crate) mod recorder;
