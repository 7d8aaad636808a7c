//! A length of time in JSON: whole milliseconds.

use serde_with::{As, DurationMilliSeconds};

pub(crate) type Milliseconds = As<DurationMilliSeconds>;
