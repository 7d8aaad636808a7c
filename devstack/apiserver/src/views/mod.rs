//! How a stored object looks to those who ask for it.

pub(crate) mod form;
mod printer;
