//! Authentication: the token of Keystone (API v3) and the service catalogue that comes with it.

mod backoff;
mod catalogue;
mod login;
mod secret;
mod session;
mod token;

pub(crate) use self::session::KeystoneSession;
pub(crate) use self::token::Token;
