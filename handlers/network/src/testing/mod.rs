//! Test doubles that several handlers share.

pub(crate) mod api_server;
pub(crate) mod recorder;
