//! Trees of data, and how RFC 8040 names and changes their nodes. Pure.

mod fields;
mod path;
mod tree;

pub(crate) use fields::Fields;
pub(crate) use path::{Astray, Place, percent_decoded};
pub(crate) use tree::{Change, change, get, insert, replace};
