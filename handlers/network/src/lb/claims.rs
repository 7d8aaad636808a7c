//! What this process knows of a service's things outside that the annotation does not show.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

use dashmap::DashMap;
use staffetta_driver::{LoadBalancer, Marked, PublicIp, PublicIpId, Uid};

use super::standing::Standing;

/// Where one service stands between the drivers and the annotation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Claim {
    /// A driver was asked, and what came of it is not known: the marks tell, but not of this address, which the user made
    /// and which may lead to the load balancer by now.
    Asked(Option<PublicIp>),
    /// The marks told this when they were read for all; they do not tell of what bears none.
    Marked(Standing),
    /// This stands, and the annotation does not show it yet.
    Known(Standing),
}

/// The claims of all services. A service whose annotation shows what stands has none.
#[derive(Default)]
pub(super) struct Claims {
    known: crate::claims::Claims<Claim>,
    /// Whose load balancer broke, how often in a row.
    broken: DashMap<Uid, u32>,
    /// The addresses that bore no mark when the marks were read for all.
    unmarked: Mutex<HashMap<PublicIpId, PublicIp>>,
    /// What this process wrote into the annotation of each service last, as a hash that nobody outside can foresee.
    written: DashMap<Uid, u64>,
    hasher: RandomState,
}

impl Deref for Claims {
    type Target = crate::claims::Claims<Claim>;

    fn deref(&self) -> &Self::Target {
        &self.known
    }
}

impl Claims {
    /// The load balancer broke. Answers how often it did so in a row.
    pub(super) fn breaks(&self, uid: &Uid) -> u32 {
        let mut times = self.broken.entry(uid.clone()).or_default();
        *times = times.saturating_add(1);
        *times
    }

    /// The load balancer works, or is wanted no more.
    pub(super) fn mends(&self, uid: &Uid) {
        self.broken.remove(uid);
    }

    /// This is what the annotation says: what stands, as drivers told it.
    pub(super) fn writes(&self, uid: &Uid, text: &str) {
        self.written.insert(uid.clone(), self.hasher.hash_one(text));
    }

    /// Whether the annotation says what this process wrote there. Whoever may change a service may write anything else, and
    /// name what belongs to others.
    pub(super) fn wrote(&self, uid: &Uid, text: &str) -> bool {
        self.written.get(uid).is_some_and(|written| *written == self.hasher.hash_one(text))
    }

    /// The service is gone, or its annotation does not tell all.
    pub(super) fn unwrites(&self, uid: &Uid) {
        self.written.remove(uid);
    }

    /// What stands is not what it was: the marks are to be read, unless somebody is at work there and knows better.
    pub(super) fn suspect(&self, uid: &Uid) {
        self.known.suppose(uid, Claim::Asked(None));
    }

    /// What is shown, and of an address that the user named what was seen when the marks were read for all.
    pub(super) fn seen(&self, shown: Standing) -> Standing {
        shown.seen_with(&self.unmarked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces all claims by what the marks say.
    pub(super) fn recover(&self, balancers: Vec<Marked<LoadBalancer>>, public_ips: Vec<Marked<PublicIp>>) {
        *self.unmarked.lock().unwrap_or_else(PoisonError::into_inner) = unmarked(&public_ips);
        self.written.clear();
        self.known.replace(by_owner(balancers, public_ips));
    }
}

/// The addresses that bear no mark, which users made.
pub(super) fn unmarked(public_ips: &[Marked<PublicIp>]) -> HashMap<PublicIpId, PublicIp> {
    let unmarked = public_ips.iter().filter(|marked| marked.owner.is_none());
    unmarked.map(|marked| (marked.thing.id.clone(), marked.thing.clone())).collect()
}

/// What the marks tell of each owner.
pub(super) fn by_owner(
    balancers: Vec<Marked<LoadBalancer>>,
    public_ips: Vec<Marked<PublicIp>>,
) -> HashMap<Uid, Claim> {
    let mut marked: HashMap<Uid, Claim> = HashMap::new();
    for Marked { owner, thing } in balancers {
        let Some(owner) = owner else { continue };
        let standing = Standing { load_balancer: Some(thing), ..Standing::default() };
        // A second one of the same owner is one too many: to be looked at when it is that service's turn.
        marked
            .entry(owner.uid)
            .and_modify(|claim| *claim = Claim::Asked(None))
            .or_insert(Claim::Marked(standing));
    }
    for Marked { owner, thing } in public_ips {
        let Some(owner) = owner else { continue };
        match marked.entry(owner.uid).or_insert(Claim::Marked(Standing::default())) {
            Claim::Marked(standing) if standing.public_ip.is_none() => standing.public_ip = Some(thing),
            claim => *claim = Claim::Asked(None),
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use staffetta_driver::{Allocation, Owner};

    use super::*;
    use crate::lb::testing::{load_balancer, public_ip};

    fn marked<T>(uid: &str, thing: T) -> Marked<T> {
        let owner = Owner { namespace: "default".into(), name: "web".into(), uid: uid.into() };
        Marked { owner: Some(owner), thing }
    }

    #[test]
    fn marks_of_one_owner_make_one_claim_and_surplus_ones_are_to_be_looked_at() {
        let claims = Claims::default();
        claims.set(&"old".into(), Claim::Asked(None));
        let lb = || load_balancer("default/web", "10.0.0.1");
        let ip = || public_ip(Allocation::Pool);
        let balancers = vec![marked("whole", lb()), marked("twice", lb()), marked("twice", lb())];
        claims
            .recover(balancers, vec![marked("whole", ip()), marked("address", ip()), marked("twice", ip())]);
        let whole = Standing { load_balancer: Some(lb()), public_ip: Some(ip()), unmarked: false };
        let address = Standing { public_ip: Some(ip()), ..Standing::default() };
        assert_eq!(claims.get(&"whole".into()), Some(Claim::Marked(whole)));
        assert_eq!(claims.get(&"address".into()), Some(Claim::Marked(address)));
        assert_eq!(claims.get(&"twice".into()), Some(Claim::Asked(None)));
        assert_eq!(claims.get(&"old".into()), None);
    }
}
