//! The answer of a handler to an event: it takes the event, or it does not, with the reason.

/// The answer of a handler or a filter to an event: it takes the event, or does not, for a reason. `staffetta explain` shows the reason,
/// which continues `it does not take the object: ` with a clause such as `it has no node yet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// The event is taken.
    Taken,
    /// The event is taken, but something is not done for the object, for this reason.
    Limited(&'static str),
    /// The event is not taken now, for this reason, but may be later. Queued events of the object stay, and so do its retries.
    Deferred(&'static str),
    /// The event is not taken, for this reason. Nothing is left to do for the object, so its queued events and retries end.
    Declined(&'static str),
}

impl Interest {
    /// Returns `Declined` with `reason` if there is one, otherwise `Taken`.
    pub fn unless(reason: Option<&'static str>) -> Self {
        reason.map_or(Self::Taken, Self::Declined)
    }

    /// Returns `true` if the event is taken.
    pub fn is_taken(self) -> bool {
        matches!(self, Self::Taken | Self::Limited(_))
    }

    /// Returns `true` if the event is declined: nothing is left to do for the object.
    pub fn is_declined(self) -> bool {
        matches!(self, Self::Declined(_))
    }

    /// Returns the reason why the event is not taken, or why something is not done; `None` for `Taken`.
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Taken => None,
            Self::Limited(reason) | Self::Deferred(reason) | Self::Declined(reason) => Some(reason),
        }
    }

    /// Returns the stricter of two answers, in the order taken, limited, deferred, declined. `other` is not called if `self` is declined.
    #[must_use]
    pub fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Taken => other(),
            Self::Limited(_) => Some(other()).filter(|other| !other.is_taken()).unwrap_or(self),
            Self::Deferred(_) => Some(other()).filter(|other| other.is_declined()).unwrap_or(self),
            Self::Declined(_) => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Interest::{Declined, Deferred, Limited, Taken};

    #[test]
    fn the_strictest_answer_of_a_handler_and_its_filters_holds() {
        let in_order = [Taken, Limited("one"), Deferred("two"), Declined("three")];
        for (i, one) in in_order.into_iter().enumerate() {
            for (j, other) in in_order.into_iter().enumerate() {
                assert_eq!(one.and(|| other), in_order[i.max(j)], "{one:?} and {other:?}");
            }
        }
    }
}
