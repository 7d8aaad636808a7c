//! What stands between the program and the client of the Kubernetes API.

mod rehearse;

pub(crate) use rehearse::{Echo, Echoes, rehearsed};
