//! The VLAN ids of one trunk: which are free, as far as Neutron shows and this process knows.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The ids that IEEE 802.1Q leaves for use.
pub(crate) const VLANS: RangeInclusive<u16> = 1..=4094;

/// The VLAN ids of one trunk.
///
/// Each trunk has all of them for itself. One that is given back is the last to be taken again: what still travels with
/// it on the node has died out by then.
#[derive(Debug)]
pub(crate) struct Vlans {
    /// Those of the trunk's subports, as Neutron showed them.
    shown: BTreeSet<u16>,
    /// Those of subports that are on their way to the trunk.
    promised: BTreeSet<u16>,
    /// Those that are meant for ports which somebody left without their trunk.
    reserved: Arc<BTreeSet<u16>>,
    /// From here on a free one is looked for.
    next: u16,
}

impl Vlans {
    /// Of a trunk whose subports have these.
    pub(crate) fn new(shown: impl IntoIterator<Item = u16>) -> Self {
        let shown = BTreeSet::from_iter(shown);
        let next = shown.last().map_or(*VLANS.start(), |last| after(*last));
        Self { shown, promised: BTreeSet::new(), reserved: Arc::default(), next }
    }

    /// Promises one that is free; none when all are in use.
    pub(crate) fn take(&mut self) -> Option<u16> {
        let vlan =
            (self.next..=*VLANS.end()).chain(*VLANS.start()..self.next).find(|vlan| self.free(*vlan))?;
        self.promised.insert(vlan);
        self.next = after(vlan);
        Some(vlan)
    }

    /// Just these are kept for the ports for which they are meant.
    pub(crate) fn reserve(&mut self, reserved: Arc<BTreeSet<u16>>) {
        self.reserved = reserved;
    }

    /// The subport with this one is at the trunk.
    pub(crate) fn attached(&mut self, vlan: u16) {
        self.promised.remove(&vlan);
        self.shown.insert(vlan);
    }

    /// No subport will have this one that was promised.
    pub(crate) fn withdraw(&mut self, vlan: u16) {
        self.promised.remove(&vlan);
    }

    /// The subport with this one is gone.
    pub(crate) fn give_back(&mut self, vlan: u16) {
        self.shown.remove(&vlan);
    }

    /// The trunk's subports have these now; what is promised stays so.
    pub(crate) fn show(&mut self, shown: impl IntoIterator<Item = u16>) {
        self.shown = shown.into_iter().collect();
    }

    fn free(&self, vlan: u16) -> bool {
        ![&self.shown, &self.promised, &*self.reserved].iter().any(|used| used.contains(&vlan))
    }
}

/// The next one, in a circle.
fn after(vlan: u16) -> u16 {
    if VLANS.contains(&vlan) && vlan != *VLANS.end() { vlan + 1 } else { *VLANS.start() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Take,
        Attach(usize),
        GiveBack(usize),
        Show(BTreeSet<u16>),
        Reserve(BTreeSet<u16>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Few ids are left free by the test, so that they run out.
        let step = prop_oneof![
            4 => Just(Step::Take),
            2 => (0..8_usize).prop_map(Step::Attach),
            2 => (0..8_usize).prop_map(Step::GiveBack),
            1 => prop::collection::btree_set(1..=6_u16, 0..6).prop_map(Step::Show),
            1 => prop::collection::btree_set(1..=6_u16, 0..6).prop_map(Step::Reserve),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn no_vlan_is_in_use_twice_and_none_is_refused_while_one_is_free(steps in steps()) {
            let foreign: BTreeSet<u16> = (7..=4094).collect();
            let mut vlans = Vlans::new(foreign.iter().copied());
            let (mut shown, mut promised, mut reserved) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Take => {
                        let taken = vlans.take();
                        let used = |vlan: &u16| shown.contains(vlan) || promised.contains(vlan) || reserved.contains(vlan);
                        prop_assert_eq!(taken.is_none(), (1..=6).all(|vlan| used(&vlan)));
                        prop_assert!(taken.is_none_or(|vlan| (1..=6).contains(&vlan) && !used(&vlan)));
                        promised.extend(taken);
                    }
                    Step::Attach(at) if at < promised.len() => {
                        let vlan = promised.remove(at);
                        vlans.attached(vlan);
                        shown.insert(vlan);
                    }
                    Step::GiveBack(at) if at < promised.len() => vlans.withdraw(promised.remove(at)),
                    Step::GiveBack(at) => {
                        if let Some(vlan) = shown.iter().copied().nth(at % 6) {
                            vlans.give_back(vlan);
                            shown.remove(&vlan);
                        }
                    }
                    Step::Show(now) => {
                        vlans.show(now.iter().chain(&foreign).copied());
                        shown = now;
                    }
                    Step::Reserve(now) => {
                        vlans.reserve(Arc::new(now.clone()));
                        reserved = now;
                    }
                    Step::Attach(_) => {}
                }
            }
        }
    }

    #[test]
    fn all_of_them_can_be_taken_and_no_more() {
        let mut vlans = Vlans::new([]);
        let taken: BTreeSet<u16> = std::iter::from_fn(|| vlans.take()).collect();
        assert_eq!(taken, VLANS.collect());
        vlans.withdraw(100);
        assert_eq!((vlans.take(), vlans.take()), (Some(100), None));
    }

    #[test]
    fn one_that_was_given_back_is_the_last_to_be_taken_again() {
        let mut vlans = Vlans::new([1, 2, 4090]);
        let first = vlans.take();
        assert_eq!(first, Some(4091));
        vlans.attached(4091);
        vlans.give_back(4091);
        let round: Vec<u16> = (0..4094 - 3).filter_map(|_| vlans.take()).collect();
        assert_eq!(round.last(), Some(&4091));
    }
}
