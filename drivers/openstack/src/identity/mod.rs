//! Who we are to the services: the token of Keystone (API v3), and the catalogue that comes with it.

mod catalogue;
mod hold_off;
mod login;
mod secret;
mod session;
mod token;

pub(crate) use self::session::Session;
pub(crate) use self::token::Token;
