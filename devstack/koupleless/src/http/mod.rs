//! The base over HTTP: the endpoints of Arklet, and its reports to a controller.

mod endpoints;
mod report;

pub(crate) use endpoints::serve;
pub(crate) use report::report;
