//! In-memory records of external resources whose state the object's annotation does not show.

use dashmap::DashMap;
use staffetta_driver::Uid;

/// The in-memory records of the external resources of Kubernetes objects of one kind, by the
/// object's UID. An object whose annotation shows the full state of its resources has no record.
pub(crate) struct RecordMap<R>(DashMap<Uid, R>);

impl<R> Default for RecordMap<R> {
    fn default() -> Self {
        Self(DashMap::new())
    }
}

impl<R: Clone> RecordMap<R> {
    /// Returns a copy of the in-memory record of the object with this UID, or `None` if it has no record.
    pub(crate) fn get(&self, uid: &Uid) -> Option<R> {
        self.0.get(uid).map(|record| record.clone())
    }

    /// Returns `true` if there is an in-memory record of the object with this UID.
    pub(crate) fn contains(&self, uid: &Uid) -> bool {
        self.0.contains_key(uid)
    }

    /// Sets or replaces the in-memory record of the object with this UID.
    pub(crate) fn set(&self, uid: &Uid, record: R) {
        self.0.insert(uid.clone(), record);
    }

    /// Removes the in-memory record of the object with this UID, if there is one.
    pub(crate) fn remove(&self, uid: &Uid) {
        self.0.remove(uid);
    }

    /// Removes all in-memory records, and then adds `records`. A concurrent reader may see only a part of them.
    pub(crate) fn replace_all(&self, records: impl IntoIterator<Item = (Uid, R)>) {
        self.0.clear();
        for (uid, record) in records {
            self.0.insert(uid, record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_drops_old_records() {
        let records = RecordMap::default();
        records.set(&"a".into(), 1);
        records.set(&"b".into(), 3);
        assert_eq!((records.get(&"a".into()), records.get(&"b".into())), (Some(1), Some(3)));
        records.replace_all([("b".into(), 4)]);
        assert_eq!((records.contains(&"a".into()), records.get(&"b".into())), (false, Some(4)));
        records.remove(&"b".into());
        assert!(!records.contains(&"b".into()));
    }
}
