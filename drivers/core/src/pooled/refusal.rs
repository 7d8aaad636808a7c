//! Why a pod gets no VIF.

use super::state::Shelf;
use crate::error::{DriverError, Reason};
use crate::warm_pool::Wait;

pub(super) const STEP: &str = "take a VIF from the pool";

/// Why there is no VIF, and when to ask again.
pub(super) fn refusal(shelf: &Shelf, wait: Wait) -> DriverError {
    let unavailable = || DriverError::new(Reason::Unavailable, STEP);
    match wait {
        Wait::Pressed(remaining) => {
            shelf.failure.clone().unwrap_or_else(unavailable).settled().after(remaining)
        }
        Wait::Cooling(remaining) => unavailable().detail("all VIFs cool down").after(remaining),
        Wait::Draining => unavailable().detail("the node is gone"),
        Wait::Growing | Wait::Full => unavailable(),
    }
}

/// Why nothing is changed any more.
pub(super) fn not_leading() -> DriverError {
    DriverError::new(Reason::Unavailable, STEP).detail("this process does not lead any more")
}
