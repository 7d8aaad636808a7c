//! Representations of stored objects.

pub(crate) mod form;
mod printer;
