//! What shows the state of a controller: the admin server, and the checks of an installation.

pub(crate) mod admin;
pub(crate) mod check;
pub(crate) mod state;
