//! The targets for the size of a node's pool, and the pool policy that follows from them.

use staffetta_pool::{PoolCounts, SizeChange, SizePolicy};

/// The numbers of addresses or blocks that a node keeps in advance for new pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// As many blocks as contain at least `warm` free addresses (`warm-ip-target`), and at least `minimum` addresses in all
    /// (`minimum-ip-target`).
    Addresses {
        /// The minimum number of free addresses of a node.
        warm: usize,
        /// The minimum number of addresses of a node, free or not.
        minimum: usize,
    },
    /// At least this number of wholly free blocks (`warm-prefix-target`).
    Blocks(usize),
}

/// The size policy of a pool of address blocks: how many to assign or to remove.
///
/// An address in its cool-down counts as used: it cannot be handed out. After a restart, all unused addresses are in their cool-down. Until
/// it ends, blocks are assigned only for pods that wait, and at most one more than these addresses would make unnecessary, so that a
/// program that restarts again and again does not assign more each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPolicy {
    /// The numbers of addresses or blocks that the pool keeps in advance for new pods.
    pub targets: Targets,
    /// The number of addresses in a block.
    pub block_size: usize,
    /// The maximum number of blocks of the pool.
    pub slots: usize,
    /// The maximum number of blocks of one assignment.
    pub largest: usize,
    /// `true` if surplus blocks have existed for long enough to be removed.
    pub may_shrink: bool,
}

impl SizePolicy for TargetPolicy {
    fn plan(&self, counts: &PoolCounts) -> SizeChange {
        let PoolCounts { used, warm, cooling, waiting, groups, wholly_free, growing, shrinking, .. } =
            *counts;
        let size = self.block_size.max(1);
        let present = groups.saturating_sub(shrinking);
        let stay = present + growing;
        let restarted = counts.on_demand && cooling > 0;
        let for_waiting = waiting.saturating_sub(warm).div_ceil(size);
        let of_addresses = |taken: usize, warm: usize, minimum: usize| {
            (taken + warm).div_ceil(size).max(minimum.div_ceil(size))
        };
        let (have, need) = match self.targets {
            Targets::Addresses { warm, minimum } if restarted => {
                (stay, (present + for_waiting).min(of_addresses(used + waiting, warm, minimum) + 1))
            }
            Targets::Blocks(target) if restarted => {
                (stay, (present + for_waiting).min(target + (used + waiting).div_ceil(size) + 1))
            }
            Targets::Addresses { warm, minimum } => {
                (stay, of_addresses(used + cooling + waiting, warm, minimum))
            }
            Targets::Blocks(target) => (wholly_free + growing, target + for_waiting),
        };
        let grow =
            need.saturating_sub(have).min(self.slots.saturating_sub(groups + growing)).min(self.largest);
        if grow > 0 {
            return SizeChange::Grow(grow);
        }
        let surplus = if restarted { 0 } else { have.saturating_sub(need).min(wholly_free) };
        if surplus == 0 || growing > 0 || !self.may_shrink {
            SizeChange::Hold
        } else {
            SizeChange::Shrink(surplus)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool whose blocks have these numbers of used addresses.
    fn pool(used: &[usize]) -> PoolCounts {
        let total: usize = used.iter().sum();
        PoolCounts {
            used: total,
            warm: used.len() * 16 - total,
            group_size: 16,
            groups: used.len(),
            wholly_free: used.iter().filter(|used| **used == 0).count(),
            ..PoolCounts::default()
        }
    }

    fn plan(targets: Targets, counts: PoolCounts) -> SizeChange {
        TargetPolicy { targets, block_size: 16, slots: 9, largest: 9, may_shrink: true }.plan(&counts)
    }

    const DEFAULT: Targets = Targets::Addresses { warm: 1, minimum: 3 };

    #[test]
    fn the_examples_of_the_reference_hold_for_targets_of_addresses() {
        let of = |warm, minimum| Targets::Addresses { warm, minimum };
        assert_eq!(plan(DEFAULT, pool(&[])), SizeChange::Grow(1));
        assert_eq!(plan(DEFAULT, pool(&[15])), SizeChange::Hold);
        assert_eq!(plan(DEFAULT, pool(&[16])), SizeChange::Grow(1));
        assert_eq!(plan(of(5, 3), pool(&[12])), SizeChange::Grow(1));
        assert_eq!(plan(of(7, 20), pool(&[])), SizeChange::Grow(2));
        assert_eq!(plan(of(7, 20), pool(&[16, 10])), SizeChange::Grow(1));
        assert_eq!(plan(DEFAULT, pool(&[3, 0, 0])), SizeChange::Shrink(2));
        assert_eq!(plan(DEFAULT, pool(&[1, 1])), SizeChange::Hold, "no block is wholly free");
        assert_eq!(
            plan(DEFAULT, PoolCounts { growing: 1, ..pool(&[16]) }),
            SizeChange::Hold,
            "one is on its way"
        );
    }

    #[test]
    fn the_examples_of_the_reference_hold_for_targets_of_prefixes() {
        assert_eq!(plan(Targets::Blocks(3), pool(&[])), SizeChange::Grow(3));
        assert_eq!(plan(Targets::Blocks(3), pool(&[1, 0, 0])), SizeChange::Grow(1));
        assert_eq!(plan(Targets::Blocks(1), pool(&[16, 1])), SizeChange::Grow(1));
        assert_eq!(
            plan(Targets::Blocks(20), pool(&[])),
            SizeChange::Grow(9),
            "an interface has no more slots"
        );
        assert_eq!(plan(Targets::Blocks(1), pool(&[0, 0, 4])), SizeChange::Shrink(1));
        assert_eq!(plan(Targets::Blocks(0), PoolCounts { waiting: 17, ..pool(&[]) }), SizeChange::Grow(2));
    }

    #[test]
    fn an_address_in_its_cool_down_is_not_available() {
        let counts = PoolCounts { used: 15, cooling: 1, warm: 0, ..pool(&[16]) };
        assert_eq!(
            plan(DEFAULT, counts),
            SizeChange::Grow(1),
            "the next pod need not wait for the cool-down"
        );
        let freed = PoolCounts { used: 0, cooling: 16, warm: 16, wholly_free: 1, ..pool(&[16, 0]) };
        assert_eq!(plan(DEFAULT, freed), SizeChange::Hold, "nothing is released before it ends");
    }

    #[test]
    fn after_a_restart_blocks_are_assigned_only_for_pods_that_wait() {
        let restarted =
            PoolCounts { used: 0, cooling: 16, warm: 0, wholly_free: 0, on_demand: true, ..pool(&[0]) };
        assert_eq!(plan(DEFAULT, restarted), SizeChange::Hold);
        assert_eq!(plan(DEFAULT, PoolCounts { waiting: 1, ..restarted }), SizeChange::Grow(1));
        assert_eq!(plan(DEFAULT, PoolCounts { waiting: 1, growing: 1, ..restarted }), SizeChange::Hold);
    }

    #[test]
    fn blocks_that_are_being_removed_keep_their_slots_and_count_for_nothing_else() {
        let leaving = PoolCounts { shrinking: 1, warm: 0, wholly_free: 0, ..pool(&[16, 0]) };
        assert_eq!(plan(DEFAULT, leaving), SizeChange::Grow(1));
        let full = TargetPolicy { targets: DEFAULT, block_size: 16, slots: 2, largest: 9, may_shrink: true };
        assert_eq!(full.plan(&leaving), SizeChange::Hold);
    }
}
