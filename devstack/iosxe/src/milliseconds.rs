//! Durations in JSON, as whole milliseconds.

use serde_with::{As, DurationMilliSeconds};

pub(crate) type Milliseconds = As<DurationMilliSeconds>;
