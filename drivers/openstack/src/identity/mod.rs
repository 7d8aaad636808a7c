//! Authentication by Keystone (API v3): the token, and the service catalogue that Keystone returns with the token.

mod backoff;
mod catalogue;
mod login;
mod secret;
mod session;
mod token;

pub(crate) use self::session::KeystoneSession;
pub(crate) use self::token::Token;
