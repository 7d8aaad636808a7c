//! What the program tells of itself in figures.

mod requests;

pub(crate) use requests::Requests;
