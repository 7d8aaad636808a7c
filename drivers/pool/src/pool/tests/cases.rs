//! Tests of individual cases.

use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use super::world::{COOL_DOWN, Of};

fn pool(min: usize, max: usize) -> WarmPool<Of<1>> {
    WarmPool::new(Arc::new(MinMaxBatch { min, max, batch: 10, cap_groups: None }), COOL_DOWN)
}

fn grow(pool: &mut WarmPool<Of<1>>, groups: std::ops::Range<u32>, now: Duration) {
    let Some(Action::Grow { op, count, .. }) = pool.plan(now) else { panic!("it wants more") };
    assert_eq!(count, groups.len());
    pool.grown(op, Grown { got: groups.collect(), rest: 0, shortfall: None }, now);
}

const NOW: Duration = Duration::from_secs(1000);

#[test]
fn waiters_share_one_growth_and_the_refill_comes_with_it() {
    let mut pool = pool(5, 0);
    for owner in 0..20 {
        assert_eq!(pool.take(&owner, &0, NOW), Take::Wait(Wait::Growing));
    }
    grow(&mut pool, 0..30, NOW);
    assert_eq!(pool.plan(NOW), None);
    assert_eq!(pool.tick(NOW), (0..20).map(|owner| (owner, 0)).collect::<Vec<_>>());
    let got = (0..20).filter(|owner| matches!(pool.take(owner, &0, NOW), Take::Got(_)));
    assert_eq!(got.count(), 20);
}

#[test]
fn one_that_fits_comes_before_one_that_must_be_adapted_and_that_is_the_longest_free() {
    let mut pool = pool(0, 0);
    let existing = |config| Existing { config, ready: false };
    let found = [(30, existing(1)), (10, existing(1)), (20, existing(2))].into();
    pool.resync(pool.epoch(), &found, NOW.saturating_sub(COOL_DOWN * 2));
    pool.confirm(NOW, NOW, |_| true);
    assert_eq!(pool.take(&3, &2, NOW), Take::Got((20, 0)));
    assert_eq!(pool.adopt(&5, &(10, 0)), Adopted::Held);
    pool.give_back(&5, &(10, 0), NOW);
    let later = NOW + COOL_DOWN;
    assert_eq!(pool.take(&4, &3, later), Take::Adapt((30, 0)));
    assert_eq!(pool.take(&4, &3, later), Take::Adapt((30, 0)), "nobody said that it was adapted");
    pool.changed(&30, Some(&3));
    assert_eq!(pool.take(&4, &3, later), Take::Got((30, 0)));
}

#[test]
fn a_found_item_is_free_once_its_cool_down_is_over_and_a_later_read_confirms_it() {
    let mut pool = pool(0, 0);
    let existing = || Existing { config: 0, ready: false };
    pool.resync(pool.epoch(), &[(10, existing()), (20, existing())].into(), NOW);
    let (end, later) = (NOW + COOL_DOWN, NOW + COOL_DOWN * 2);
    pool.confirm(NOW + COOL_DOWN / 2, end, |_| true);
    assert_eq!((pool.counts(end).warm, pool.counts(end).cooling), (0, 2), "the read began before");
    pool.confirm(end, end, |item| item.0 == 10);
    assert_eq!(pool.take(&1, &0, end), Take::Got((10, 0)));
    let again = pool.confirm_at().unwrap();
    assert!(again >= end + Duration::from_secs(30), "{again:?}");
    pool.confirm(again, again, |_| true);
    assert_eq!((pool.take(&2, &0, again), pool.confirm_at()), (Take::Got((20, 0)), None));
    assert!(pool.give_back(&2, &(20, 0), again));
    pool.mark_unconfirmed(&(20, 0));
    assert!(pool.tick(again + later).is_empty() && pool.counts(again + later).cooling == 1);
    assert_eq!(pool.confirm_at(), Some(again + COOL_DOWN));
}

#[test]
fn an_item_in_two_hands_is_free_when_both_have_let_go() {
    let mut pool = pool(0, 0);
    pool.take(&1, &0, NOW);
    grow(&mut pool, 0..10, NOW);
    assert_eq!(pool.take(&1, &0, NOW), Take::Got((0, 0)));
    assert_eq!(pool.adopt(&2, &(0, 0)), Adopted::Shared(1));
    assert!(pool.give_back(&1, &(0, 0), NOW));
    assert_eq!(pool.counts(NOW).cooling, 0);
    assert!(pool.give_back(&2, &(0, 0), NOW));
    assert_eq!(pool.counts(NOW).cooling, 1);
    assert_eq!(pool.adopt(&3, &(99, 0)), Adopted::Unknown);
    assert!(matches!(pool.take(&3, &0, NOW), Take::Got(_)), "an owner that learnt of nothing has nothing");
}

#[test]
fn after_a_start_nothing_is_made_ahead_of_demand_until_what_was_found_has_cooled_down() {
    let mut pool = pool(5, 0);
    let found = [(7, Existing { config: 0, ready: true })].into();
    assert_eq!(pool.resync(pool.epoch(), &found, NOW).found, [7]);
    assert_eq!(pool.plan(NOW), None);
    assert_eq!(pool.take(&1, &0, NOW), Take::Wait(Wait::Growing));
    grow(&mut pool, 0..1, NOW);
    assert_eq!(pool.take(&1, &0, NOW), Take::Got((0, 0)));
    assert_eq!((pool.next(NOW), pool.confirm_at()), (Some(NOW + COOL_DOWN), Some(NOW + COOL_DOWN)));
    assert_eq!(pool.plan(NOW + COOL_DOWN), None, "what was found may be free");
    pool.postpone(NOW + COOL_DOWN, NOW + COOL_DOWN);
    assert_eq!(pool.plan(NOW + COOL_DOWN), None, "the read failed");
    let again = pool.confirm_at().unwrap();
    pool.confirm(again, again, |_| false);
    assert!(matches!(pool.plan(again), Some(Action::Grow { count: 10, .. })));
}

#[test]
fn a_waiting_owner_learns_the_reason() {
    let mut pool = pool(0, 0);
    assert_eq!(pool.take(&1, &0, NOW), Take::Wait(Wait::Growing));
    let Some(Action::Grow { op, .. }) = pool.plan(NOW) else { panic!("it waits") };
    assert!(pool.tick(NOW).is_empty(), "it waits for what is being made");
    pool.grown(op, Grown { got: vec![], rest: 0, shortfall: Some(Shortfall::Exhausted) }, NOW);
    assert_eq!(pool.tick(NOW), [(1, 0)], "nothing is being made");
    assert_eq!(pool.reason(NOW), Wait::BackingOff(Duration::from_secs(1)));
    pool.drain();
    assert_eq!(pool.reason(NOW), Wait::Draining);
    let mut full = WarmPool::<Of<1>>::new(
        Arc::new(MinMaxBatch { min: 0, max: 0, batch: 1, cap_groups: Some(1) }),
        COOL_DOWN,
    );
    full.take(&1, &0, NOW);
    grow(&mut full, 0..1, NOW);
    full.take(&1, &0, NOW);
    assert_eq!(full.take(&2, &0, NOW), Take::Wait(Wait::Full));
    full.give_back(&1, &(0, 0), NOW);
    assert_eq!(full.take(&2, &0, NOW), Take::Wait(Wait::Cooling(COOL_DOWN)));
}

#[test]
fn what_changed_while_it_was_read_is_left_to_the_next_time() {
    let mut pool = pool(0, 0);
    pool.take(&1, &0, NOW);
    let epoch = pool.epoch();
    grow(&mut pool, 0..10, NOW);
    let drift = pool.resync(epoch, &[(77, Existing { config: 0, ready: false })].into(), NOW);
    assert_eq!((drift.found, drift.lost), (vec![], vec![]));
    let drift = pool.resync(pool.epoch(), &[(77, Existing { config: 0, ready: false })].into(), NOW);
    assert_eq!((drift.found, drift.lost.len()), (vec![77], 10));
}

#[test]
fn a_pool_of_ten_thousand_decides_as_fast_as_a_small_one() {
    const MANY: u32 = 10_000;
    let mut pool = pool(MANY as usize, 0);
    pool.take(&1, &0, NOW);
    let Some(Action::Grow { op, .. }) = pool.plan(NOW) else { panic!("it waits") };
    pool.grown(op, Grown { got: (0..MANY).collect(), rest: 0, shortfall: None }, NOW);
    pool.leave(&1);
    for round in 0..MANY {
        let counts = pool.counts(NOW);
        assert_eq!((counts.wholly_free, counts.shrinking), (MANY as usize, 0), "round {round}");
        pool.plan(NOW);
        assert!(pool.next(NOW).is_none());
    }
    for round in 0..300 {
        let Take::Got(item) = pool.take(&1, &0, NOW) else { panic!("round {round}") };
        assert_eq!(pool.undo_take(&1, NOW), Some(item));
    }
}
