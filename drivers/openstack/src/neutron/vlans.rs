//! The VLAN ids of one trunk: picks free ones for new subports, and keeps those in use.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// The VLAN ids that IEEE 802.1Q does not reserve.
pub(crate) const VLANS: RangeInclusive<u16> = 1..=4094;

/// The VLAN ids of one trunk. New subports get ascending free ids, from 1 again after 4094, so that the id of a deleted subport is usually
/// used again late, when the node has no packets of its former user left.
#[derive(Debug)]
pub(crate) struct VlanPool {
    /// The ids of the subports that Neutron listed, and of those that this process added since. Some of them may have been deleted since.
    used: BTreeSet<u16>,
    /// The ids that this process reserved for subports that it is adding now.
    pending: BTreeSet<u16>,
    /// The id from which the search for a free id starts.
    next: u16,
}

impl VlanPool {
    /// Creates the pool of a trunk whose subports have the ids `used`.
    pub(crate) fn new(used: impl IntoIterator<Item = u16>) -> Self {
        let used = BTreeSet::from_iter(used);
        let next = used.last().map_or(*VLANS.start(), |last| after(*last));
        Self { used, pending: BTreeSet::new(), next }
    }

    /// Reserves an id that no subport has or gets now and that is not among `reserved`. Returns `None` if there is none.
    pub(crate) fn reserve(&mut self, reserved: &BTreeSet<u16>) -> Option<u16> {
        let mut ids = (self.next..=*VLANS.end()).chain(*VLANS.start()..self.next);
        let vlan =
            ids.find(|vlan| ![&self.used, &self.pending, reserved].iter().any(|ids| ids.contains(vlan)))?;
        self.pending.insert(vlan);
        self.next = after(vlan);
        Some(vlan)
    }

    /// Records that a subport with this id was added, and ends the reservation of the id.
    pub(crate) fn set_attached(&mut self, vlan: u16) {
        self.pending.remove(&vlan);
        self.used.insert(vlan);
    }

    /// Cancels the reservation of an id that no subport got.
    pub(crate) fn cancel(&mut self, vlan: u16) {
        self.pending.remove(&vlan);
    }

    /// Replaces the set of ids that subports have by `used`. Reservations stay.
    pub(crate) fn set_used(&mut self, used: impl IntoIterator<Item = u16>) {
        self.used = used.into_iter().collect();
    }
}

/// Returns the next id. The last id is followed by the first.
fn after(vlan: u16) -> u16 {
    if VLANS.contains(&vlan) && vlan != *VLANS.end() { vlan + 1 } else { *VLANS.start() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum StepName {
        Take,
        Attach(usize),
        GiveBack(usize),
        Show(BTreeSet<u16>),
        Reserve(BTreeSet<u16>),
    }

    fn steps() -> impl Strategy<Value = Vec<StepName>> {
        // Few ids are left free by the test, so that they run out.
        let step = prop_oneof![
            4 => Just(StepName::Take),
            2 => (0..8_usize).prop_map(StepName::Attach),
            2 => (0..8_usize).prop_map(StepName::GiveBack),
            1 => prop::collection::btree_set(1..=6_u16, 0..6).prop_map(StepName::Show),
            1 => prop::collection::btree_set(1..=6_u16, 0..6).prop_map(StepName::Reserve),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn no_vlan_is_in_use_twice_and_none_is_refused_while_one_is_free(steps in steps()) {
            let foreign: BTreeSet<u16> = (7..=4094).collect();
            let mut vlans = VlanPool::new(foreign.iter().copied());
            let (mut shown, mut promised, mut reserved) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
            for step in steps {
                match step {
                    StepName::Take => {
                        let taken = vlans.reserve(&reserved);
                        let used = |vlan: &u16| shown.contains(vlan) || promised.contains(vlan) || reserved.contains(vlan);
                        prop_assert_eq!(taken.is_none(), (1..=6).all(|vlan| used(&vlan)));
                        prop_assert!(taken.is_none_or(|vlan| (1..=6).contains(&vlan) && !used(&vlan)));
                        promised.extend(taken);
                    }
                    StepName::Attach(at) if at < promised.len() => {
                        let vlan = promised.remove(at);
                        vlans.set_attached(vlan);
                        shown.insert(vlan);
                    }
                    StepName::GiveBack(at) if at < promised.len() => vlans.cancel(promised.remove(at)),
                    StepName::Show(now) => {
                        vlans.set_used(now.iter().chain(&foreign).copied());
                        shown = now;
                    }
                    StepName::Reserve(now) => reserved = now,
                    StepName::Attach(_) | StepName::GiveBack(_) => {}
                }
            }
        }
    }

    #[test]
    fn all_of_them_can_be_taken_and_no_more() {
        let (mut vlans, none) = (VlanPool::new([]), BTreeSet::new());
        let taken: BTreeSet<u16> = std::iter::from_fn(|| vlans.reserve(&none)).collect();
        assert_eq!(taken, VLANS.collect());
        vlans.cancel(100);
        assert_eq!((vlans.reserve(&none), vlans.reserve(&none)), (Some(100), None));
    }

    #[test]
    fn one_that_was_given_back_is_the_last_to_be_taken_again() {
        let (mut vlans, none) = (VlanPool::new([1, 2, 4090]), BTreeSet::new());
        let first = vlans.reserve(&none);
        assert_eq!(first, Some(4091));
        vlans.set_attached(4091);
        let round: Vec<u16> = std::iter::from_fn(|| vlans.reserve(&none)).collect();
        assert_eq!(round.len(), 4094 - 4);
        for vlan in round {
            vlans.set_attached(vlan);
        }
        vlans.set_used((1..=4094).filter(|vlan| *vlan != 4091));
        assert_eq!((vlans.reserve(&none), vlans.reserve(&none)), (Some(4091), None));
    }
}
