//! Lists in which everybody's applications stand: an entry of somebody else is no reason to refuse the whole answer.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The entries one by one, as `keep` makes them of each and of what was read of it: nothing of one that is not as it should be.
pub(super) fn each<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    list: D,
    keep: impl Fn(&Value, Option<T>) -> Option<T>,
) -> Result<Vec<T>, D::Error> {
    let entries = Vec::<Value>::deserialize(list)?;
    Ok(entries.iter().filter_map(|entry| keep(entry, T::deserialize(entry).ok())).collect())
}
