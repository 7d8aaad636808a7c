//! What this process knows of each object's things outside, beside what the object shows.

use dashmap::DashMap;
use staffetta_driver::Uid;

/// The claims of all objects of a kind, by UID. An object that shows all that is known has none.
pub(crate) struct Claims<C>(DashMap<Uid, C>);

impl<C> Default for Claims<C> {
    fn default() -> Self {
        Self(DashMap::new())
    }
}

impl<C: Clone> Claims<C> {
    pub(crate) fn get(&self, uid: &Uid) -> Option<C> {
        self.0.get(uid).map(|claim| claim.clone())
    }

    pub(crate) fn is_there(&self, uid: &Uid) -> bool {
        self.0.contains_key(uid)
    }

    pub(crate) fn set(&self, uid: &Uid, claim: C) {
        self.0.insert(uid.clone(), claim);
    }

    /// Sets this one where there is none.
    pub(crate) fn suppose(&self, uid: &Uid, claim: C) {
        self.0.entry(uid.clone()).or_insert(claim);
    }

    pub(crate) fn forget(&self, uid: &Uid) {
        self.0.remove(uid);
    }

    /// These, and no others.
    pub(crate) fn replace(&self, claims: impl IntoIterator<Item = (Uid, C)>) {
        self.0.clear();
        for (uid, claim) in claims {
            self.0.insert(uid, claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_replaced_leaves_nothing_of_before_and_a_supposition_changes_nothing() {
        let claims = Claims::default();
        claims.set(&"a".into(), 1);
        claims.suppose(&"a".into(), 2);
        claims.suppose(&"b".into(), 3);
        assert_eq!((claims.get(&"a".into()), claims.get(&"b".into())), (Some(1), Some(3)));
        claims.replace([("b".into(), 4)]);
        assert_eq!((claims.is_there(&"a".into()), claims.get(&"b".into())), (false, Some(4)));
        claims.forget(&"b".into());
        assert!(!claims.is_there(&"b".into()));
    }
}
