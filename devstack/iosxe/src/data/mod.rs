//! Trees of data, with the naming and the changes of nodes of RFC 8040. Pure.

mod fields;
mod path;
mod tree;

pub(crate) use fields::Fields;
pub(crate) use path::{Astray, Place, percent_decoded};
pub(crate) use tree::{Change, change, get, insert, replace};
