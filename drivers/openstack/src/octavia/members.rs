//! Changes of the members of pools, by requests that Octavia does not refuse as too large.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use staffetta_driver::{
    DriverError, Listener, ListenerPort, LoadBalancer, Member, MemberId, MemberSpec, PoolId, Reason,
};

use super::LbaasV2Driver;
use super::api::SET_MEMBERS;
use super::changes::has_well_formed_ids;
use super::features::Features;
use super::request;
use super::tree;
use super::wire::PENDING_DELETE;
use crate::error::{DriverResult, Result, is_too_large};
use crate::text::is_well_formed;

/// The length in bytes of the request for the members of a pool, without members: `{"members":[]}`.
const BARE: usize = 14;

/// One request that brings the members of a pool closer to the wanted ones.
#[derive(Debug, PartialEq)]
enum MemberChange<'a> {
    /// Makes these the only members.
    Replace(Vec<&'a MemberSpec>),
    /// Adds these members, or changes those of the same address and port.
    Add(Vec<&'a MemberSpec>),
    /// Removes the member with this id.
    Remove(MemberId),
}

impl<'a> MemberChange<'a> {
    /// Chooses the next request, whose body has at most `limit` bytes or consists of one member. `None` stands for no change.
    ///
    /// Members that fit into one request replace the present ones, and so does any number in a release that cannot add members. Otherwise
    /// missing members are added first; then the others are removed one by one, because Octavia has no request for more. If so many are to
    /// be removed that a replacement by those that fit leaves out fewer members than it removes, the present ones are replaced, and the
    /// members that were left out are added afterwards.
    fn next(present: &[Member], wanted: &[&'a MemberSpec], limit: usize, features: Features) -> Option<Self> {
        let whole = fitting(wanted.iter().copied(), limit);
        if whole.len() == wanted.len() || !features.additive_members {
            return Some(Self::Replace(wanted.to_vec()));
        }
        let wanted_at: HashSet<_> = wanted.iter().map(|spec| address(spec)).collect();
        let known: HashMap<_, _> = present.iter().map(|member| (address(&member.spec), member)).collect();
        let (kept, missing): (Vec<&MemberSpec>, Vec<_>) =
            wanted.iter().copied().partition(|spec| known.contains_key(&address(spec)));
        let surplus: Vec<_> =
            present.iter().filter(|member| !wanted_at.contains(&address(&member.spec))).collect();
        let best = fitting(kept.iter().chain(&missing).copied(), limit);
        if surplus.len() > wanted.len() - best.len() {
            return Some(Self::Replace(best));
        }
        let changed = kept.into_iter().filter(|spec| known[&address(spec)].spec != **spec);
        let added = fitting(missing.into_iter().chain(changed), limit);
        if !added.is_empty() {
            return Some(Self::Add(added));
        }
        surplus.first().map(|member| Self::Remove(member.id.clone()))
    }

    /// Returns the members after the change, or `None` if one is new, so that its id must be read.
    fn known_result(&self, present: &[Member]) -> Option<Vec<Member>> {
        let known: HashMap<_, _> = present.iter().map(|member| (address(&member.spec), &member.id)).collect();
        match self {
            Self::Replace(specs) => {
                let member = |spec: &&MemberSpec| {
                    let id = known.get(&address(spec)).filter(|id| is_well_formed(id.as_str()))?;
                    Some(Member { id: (*id).clone(), spec: (*spec).clone() })
                };
                specs.iter().map(member).collect()
            }
            Self::Add(_) => None,
            Self::Remove(gone) => Some(present.iter().filter(|member| member.id != *gone).cloned().collect()),
        }
    }
}

/// Returns the first of these members whose request has at most `limit` bytes, at least one.
fn fitting<'a>(specs: impl Iterator<Item = &'a MemberSpec>, limit: usize) -> Vec<&'a MemberSpec> {
    let mut total = BARE;
    let fits = |spec: &&MemberSpec| {
        let is_first = total == BARE;
        total += request::member(spec).to_string().len() + 1;
        is_first || total <= limit
    };
    specs.take_while(fits).collect()
}

/// Returns the address and port of a member, which are unique in a pool.
fn address(spec: &MemberSpec) -> (IpAddr, u16) {
    (spec.ip, spec.port)
}

impl LbaasV2Driver {
    /// Brings the members of a listener's pool closer to these, by one request, and reads the ids of members if one is new. Octavia never
    /// changes the subnet of a member, so a member whose subnet differs is only removed by this call, and is missing in the result. Without a
    /// listener or its pool, the error is [`Reason::NotFound`].
    pub(super) async fn set_members(
        &self,
        load_balancer: &LoadBalancer,
        at: ListenerPort,
        listener: Option<&Listener>,
        members: &[MemberSpec],
    ) -> DriverResult<Listener> {
        let missing = || DriverError::new(Reason::NotFound, SET_MEMBERS).detail(format!("the pool of {at}"));
        let mut listener =
            listener.filter(|found| has_well_formed_ids(found)).cloned().ok_or_else(missing)?;
        let pool = listener.pool.as_mut().ok_or_else(missing)?;
        let subnets: HashMap<_, _> =
            pool.members.iter().map(|member| (address(&member.spec), &member.spec.subnet)).collect();
        let keeps_subnet =
            |spec: &&MemberSpec| subnets.get(&address(spec)).is_none_or(|subnet| **subnet == spec.subnet);
        let wanted: Vec<&MemberSpec> = members.iter().filter(keeps_subnet).collect();
        let features = self.octavia.features().await?;
        let change = loop {
            let limit = self.octavia.body_limit();
            let Some(change) = MemberChange::next(&pool.members, &wanted, limit, features) else {
                return Ok(listener);
            };
            // Whatever comes of the call, the cached members may be outdated.
            self.cache.members.remove(&pool.id);
            let call = self.send_members(&pool.id, &change);
            match self.provisioning.change(&load_balancer.id, SET_MEMBERS, call).await {
                Err(error) if is_too_large(&error) && self.octavia.body_limit() < limit => {}
                result => break result.map(|()| change)?,
            }
        };
        pool.members = if let Some(known) = change.known_result(&pool.members) {
            known
        } else {
            // The members are set, and are not set again because their ids could not be read.
            let read = self.octavia.members(&pool.id).await;
            let read = read.map_err(|error| DriverError::from(error).maybe_applied())?;
            let mut bodies = read.ok_or_else(missing)?;
            // A removed member is listed until it is deleted.
            bodies.retain(|body| body.provisioning_status != PENDING_DELETE);
            tree::members(&bodies, &load_balancer.subnet)
        };
        self.cache.members.insert(pool.id.clone(), pool.members.clone());
        Ok(listener)
    }

    /// Sends the request of a change.
    async fn send_members(&self, pool: &PoolId, change: &MemberChange<'_>) -> Result<()> {
        let bodies =
            |specs: &[&MemberSpec]| specs.iter().map(|spec| request::member(spec)).collect::<Vec<_>>();
        match change {
            MemberChange::Replace(specs) => self.octavia.set_members(pool, &bodies(specs), false).await,
            MemberChange::Add(specs) => self.octavia.set_members(pool, &bodies(specs), true).await,
            MemberChange::Remove(member) => self.octavia.remove_member(pool, member).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn newest() -> Features {
        Features::of((2, 30))
    }

    fn spec(number: u8) -> MemberSpec {
        MemberSpec {
            ip: [10, 0, 0, number].into(),
            port: 80,
            name: format!("shop/web-{number}:80"),
            subnet: "s".into(),
        }
    }

    fn members(numbers: impl IntoIterator<Item = u8>) -> Vec<Member> {
        numbers
            .into_iter()
            .map(|number| Member { id: format!("m{number}").as_str().into(), spec: spec(number) })
            .collect()
    }

    /// The length of a request for so many members of the tests, whose numbers have two digits.
    fn room(count: usize) -> usize {
        BARE + count * (request::member(&spec(10)).to_string().len() + 1)
    }

    /// Does what Octavia does.
    fn apply(change: &MemberChange<'_>, present: &[Member]) -> Vec<Member> {
        let (mut members, specs) = match change {
            MemberChange::Replace(specs) => {
                let kept = present
                    .iter()
                    .filter(|member| specs.iter().any(|spec| address(spec) == address(&member.spec)));
                (kept.cloned().collect::<Vec<_>>(), &specs[..])
            }
            MemberChange::Add(specs) => (present.to_vec(), &specs[..]),
            MemberChange::Remove(gone) => {
                (present.iter().filter(|member| member.id != *gone).cloned().collect(), &[][..])
            }
        };
        for spec in specs {
            match members.iter_mut().find(|member| address(&member.spec) == address(spec)) {
                Some(member) => member.spec = (*spec).clone(),
                None => members
                    .push(Member { id: format!("new-{}", spec.ip).as_str().into(), spec: (*spec).clone() }),
            }
        }
        members
    }

    /// Makes changes until there is none. Returns the changes, and the members at the end.
    fn reach(mut present: Vec<Member>, wanted: &[MemberSpec], limit: usize) -> (Vec<String>, Vec<Member>) {
        let wanted: Vec<_> = wanted.iter().collect();
        let mut changes = Vec::new();
        while !present.iter().map(|member| &member.spec).eq(wanted.iter().copied()) {
            let change =
                MemberChange::next(&present, &wanted, limit, newest()).expect("something is missing");
            changes.push(match &change {
                MemberChange::Replace(specs) => format!("replace by {}", specs.len()),
                MemberChange::Add(specs) => format!("add {}", specs.len()),
                MemberChange::Remove(..) => "remove".to_owned(),
            });
            if let MemberChange::Replace(specs) | MemberChange::Add(specs) = &change {
                let bodies: Vec<_> = specs.iter().map(|spec| request::member(spec)).collect();
                let body = serde_json::json!({ "members": bodies }).to_string();
                assert!(body.len() <= limit || specs.len() == 1, "{} bytes", body.len());
            }
            let known = change.known_result(&present);
            present = apply(&change, &present);
            assert!(known.is_none_or(|known| known == present));
            present.sort_by(|one, other| one.spec.cmp(&other.spec));
            assert!(changes.len() < 200, "it never ends");
        }
        (changes, present)
    }

    #[test]
    fn members_that_fit_replace_the_others_by_one_request() {
        let wanted: Vec<_> = (10..20).map(spec).collect();
        let (changes, reached) = reach(members(15..40), &wanted, room(10));
        assert_eq!(changes, ["replace by 10"]);
        let kept: Vec<_> = reached[5..].iter().map(|member| member.id.as_str()).collect();
        assert_eq!(kept, ["m15", "m16", "m17", "m18", "m19"], "who stays keeps the id");
        assert_eq!(reach(members(10..20), &[], room(10)).0, ["replace by 0"]);
    }

    #[test]
    fn missing_members_are_added_before_few_others_are_removed() {
        let wanted: Vec<_> = (13..60).map(spec).collect();
        let (changes, _) = reach(members(10..40), &wanted, room(15));
        assert_eq!(changes, ["add 15", "add 5", "remove", "remove", "remove"]);
        let mut renamed: Vec<_> = (10..40).map(spec).collect();
        renamed[7].name = "shop/db-17:80".into();
        assert_eq!(reach(members(10..40), &renamed, room(15)).0, ["add 1"]);
    }

    #[test]
    fn many_others_go_together_and_then_the_rest_is_added() {
        let wanted: Vec<_> = (70..90).map(spec).collect();
        assert_eq!(reach(members(10..60), &wanted, room(15)).0, ["replace by 15", "add 5"]);
        // Those that stay are not left out.
        let wanted: Vec<_> = (50..70).map(spec).collect();
        let change =
            MemberChange::next(&members(10..60), &wanted.iter().collect::<Vec<_>>(), room(15), newest());
        let Some(MemberChange::Replace(specs)) = change else { panic!("{change:?}") };
        assert!((50..60).all(|number| specs.contains(&&spec(number))));
    }

    #[test]
    fn a_release_that_cannot_add_members_gets_all_of_them_by_one_request() {
        let wanted: Vec<_> = (10..40).map(spec).collect();
        let change =
            MemberChange::next(&[], &wanted.iter().collect::<Vec<_>>(), room(15), Features::of((2, 10)));
        assert_eq!(change, Some(MemberChange::Replace(wanted.iter().collect())));
    }

    proptest! {
        #[test]
        fn any_members_are_reached_with_any_limit(
            present in prop::collection::btree_set(10..99_u8, 0..60),
            wanted in prop::collection::btree_set(10..99_u8, 0..60),
            count in 0..70_usize,
        ) {
            let specs: Vec<_> = wanted.iter().copied().map(spec).collect();
            let (_, reached) = reach(members(present.iter().copied()), &specs, room(count));
            let is_new = |member: &&Member| member.id.as_str().starts_with("new");
            prop_assert!(reached.iter().filter(is_new).count() >= wanted.difference(&present).count());
        }
    }
}
