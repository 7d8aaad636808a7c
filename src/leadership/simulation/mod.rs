//! The election as a whole: several participants and one server, joined by a network that delays, loses and reorders, with
//! clocks of their own and processes that are stopped and killed. Never two of them may act at the same time, and always
//! one does in the end.

mod world;

use std::time::Duration;

use proptest::prelude::*;

use super::election::Timing;
use world::{Event, LONGEST_WAY, World};

/// Milliseconds of the time that none of them sees.
type Time = u64;

const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

fn within(time: Duration) -> Time {
    // Clocks may be slow by a twentieth.
    Time::try_from(time.mul_f64(1.06).as_millis()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn never_two_of_them_act_and_one_does_when_the_storm_is_over(seed: u64, nodes in 2_usize..=3) {
        let storm = 300_000;
        let mut world = World::new(seed, nodes, storm, true);
        world.run_until(storm + LONGEST_WAY * 2);
        let calm = storm + LONGEST_WAY * 2;
        let led = world.run_until(calm + within(TIMING.lease_duration + TIMING.retry_period * 2));
        prop_assert!(led.is_some(), "nobody leads");
    }

    #[test]
    fn when_a_leader_is_killed_another_one_leads_within_the_lease_duration_and_a_retry_period(
        seed: u64, nodes in 2_usize..=3, watches: bool, lived in 10_000_u64..60_000,
    ) {
        let mut world = World::new(seed, nodes, 0, watches);
        world.run_until(lived);
        let leader = world.leaders();
        prop_assert_eq!(leader.len(), 1, "in calm weather somebody always leads");
        world.later(0, leader[0], Event::Killed);
        world.run_until(lived);
        prop_assert!(world.leaders().is_empty());
        let led = world.run_until(lived + within(TIMING.lease_duration + TIMING.retry_period * 2));
        let most = if watches { TIMING.retry_period } else { TIMING.retry_period * 2 };
        let waited = led.expect("somebody leads again") - lived;
        prop_assert!(waited <= within(TIMING.lease_duration + most), "{} ms", waited);
    }
}
