//! Property tests: the invariants of a pool, for any order of events.

mod cases;
mod world;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use world::World;

/// An operation of a test case.
#[derive(Clone, Copy, Debug)]
enum Act {
    Take(u8, u8),
    Annotate(u8),
    GiveBack(u8),
    PutBack(u8),
    Pass(u64),
    SizeChange,
    /// With `more`, the same attempt goes on to create what is missing.
    Grown {
        made: u8,
        reported: u8,
        more: bool,
        shortfall: Option<Shortfall>,
    },
    Shrunk {
        left: u8,
        gone: bool,
    },
    Vanish(u8),
    Read,
    Resync,
    Drain(bool),
    Restart,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let owner = 0..12_u8;
    let shortfall = prop_oneof![
        Just(Shortfall::Exhausted),
        Just(Shortfall::Failed),
        Just(Shortfall::Refused),
        (1..90_u64).prop_map(|seconds| Shortfall::Throttled(Duration::from_secs(seconds)))
    ];
    let act = prop_oneof![
        8 => (owner.clone(), 0..3_u8).prop_map(|(owner, want)| Act::Take(owner, want)),
        4 => owner.clone().prop_map(Act::Annotate),
        5 => owner.clone().prop_map(Act::GiveBack),
        1 => owner.prop_map(Act::PutBack),
        4 => (0..15_000_u64).prop_map(Act::Pass),
        8 => Just(Act::SizeChange),
        4 => Just(Act::Grown { made: u8::MAX, reported: u8::MAX, more: false, shortfall: None }),
        3 => (0..6_u8, 0..6_u8, any::<bool>(), prop::option::of(shortfall))
            .prop_map(|(made, reported, more, shortfall)| Act::Grown { made, reported, more, shortfall }),
        3 => (0..3_u8, any::<bool>()).prop_map(|(left, gone)| Act::Shrunk { left, gone }),
        1 => any::<u8>().prop_map(Act::Vanish),
        2 => Just(Act::Read),
        2 => Just(Act::Resync),
        1 => any::<bool>().prop_map(Act::Drain),
        1 => Just(Act::Restart),
    ];
    prop::collection::vec(act, 1..150)
}

fn policies() -> impl Strategy<Value = MinMaxBatch> {
    let policy = (0..6_usize, prop::option::of(0..8_usize), 0..8_usize, prop::option::of(1..10_usize));
    policy.prop_map(|(min, more, batch, cap_groups)| {
        let max = more.map_or(0, |more| (min + more).max(1));
        MinMaxBatch { min, max, batch, cap_groups }
    })
}

fn obeys_its_laws<const SIZE: u32>(policy: MinMaxBatch, acts: Vec<Act>) {
    let mut world = World::<SIZE>::new(policy);
    for act in acts {
        world.act(act);
    }
    world.act(Act::Drain(false));
    // What was under way ends, and the listing shows the rest.
    world.act(Act::Grown { made: u8::MAX, reported: u8::MAX, more: false, shortfall: None });
    world.act(Act::Shrunk { left: 0, gone: true });
    world.act(Act::Read);
    world.act(Act::Resync);
    assert!(world.exist.keys().eq(world.pool.groups.keys()), "P2: as many as there are");
    world.rest(Duration::from_secs(1000));
    let (grew, chose) = world.rest(Duration::from_secs(1000));
    assert!(!grew && !chose, "P6: no input, no change");
    let counts = world.pool.counts(world.now);
    assert!(policy.max == 0 || SIZE > 1 || counts.warm <= policy.max, "P5: {counts:?}");
    let capped = policy.cap_groups.is_some_and(|cap| counts.groups >= cap);
    assert!(capped || counts.on_demand || counts.warm >= policy.min, "P6: {counts:?}");
    if !capped {
        world.act(Act::Take(100, 7));
        world.plan();
        world.act(Act::Grown { made: u8::MAX, reported: u8::MAX, more: false, shortfall: None });
        world.act(Act::Take(100, 7));
        assert!(world.held.contains_key(&100), "P7: it is there after one growth");
    }
    world.act(Act::Drain(true));
    for owner in world.held.clone().into_keys() {
        world.act(Act::GiveBack(owner));
    }
    world.act(Act::Grown { made: 3, reported: 3, more: false, shortfall: None });
    world.rest(Duration::from_secs(1000));
    assert_eq!((world.pool.groups.len(), world.exist.len()), (0, 0), "P12");
    assert!(world.pool.is_done());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_pool_of_single_things_obeys_its_laws(policy in policies(), acts in acts()) {
        obeys_its_laws::<1>(policy, acts);
    }

    #[test]
    fn a_pool_of_groups_obeys_its_laws(policy in policies(), acts in acts()) {
        obeys_its_laws::<4>(policy, acts);
    }
}
