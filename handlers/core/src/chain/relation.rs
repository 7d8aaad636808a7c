//! The relation of a newer message of an ordering key to an older one.

use crate::event::{Change, Message};

/// The relation of a newer message to an older one with the same ordering key.
///
/// The first row that applies counts. *Attempted* means that the handler was invoked for the older message and did not finish; a message
/// that is running is compared when that is known. *Final* is a deletion, or an event of an object with a `deletionTimestamp`.
///
/// | newer | older | relation |
/// |---|---|---|
/// | `Deleted` | any message of the object | replace |
/// | `Added` | attempted `Deleted` of the object | replace |
/// | not final | final | behind if of the object and both from a watch, otherwise apart |
/// | trigger | trigger of its type and object | replace |
/// | trigger | any other | apart |
/// | `Modified` | `Modified` of the object | replace |
/// | `Added` or `Modified` | attempted `Added` or `Modified` of the object | replace |
/// | watch event, by key | attempted message of the key that is not final | replace |
/// | watch event | watch event of the object | behind |
/// | any | any | apart |
///
/// *By key* applies to handlers that reconcile everything that belongs to the key together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// The newer message takes the place of the older one, with its failures, and is handled at once. An attempted `Added` stays an
    /// `Added`.
    Replace,
    /// The newer message is handled after the older one.
    Behind,
    /// Each message is handled as if the other one did not exist, though not at the same time.
    Apart,
}

/// Returns the relation of `newer` to `older`.
pub(super) fn relation<E: Message>(newer: &E, older: &E, attempted: bool, by_key: bool) -> Relation {
    use Change::{Added, Deleted, Modified};
    let same_object = newer.uid() == older.uid();
    let same_type = same_object && newer.route() == older.route();
    let both_watched = same_type && !newer.is_trigger() && !older.is_trigger();
    let replaces = match (newer.change(), older.change()) {
        (Deleted, _) => same_object,
        (Added, Deleted) if attempted => both_watched,
        _ if older.finalizing() && !newer.finalizing() => false,
        _ if newer.is_trigger() => same_type,
        (Modified, Modified) if both_watched => true,
        (_, Added | Modified) if attempted => both_watched || by_key && !older.finalizing(),
        _ => false,
    };
    if replaces {
        Relation::Replace
    } else if both_watched {
        Relation::Behind
    } else {
        Relation::Apart
    }
}
