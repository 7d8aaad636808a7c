//! The view on a controller: the state that it shows, the admin server, and the checks of an installation.

pub(crate) mod admin;
pub(crate) mod check;
pub(crate) mod state;
