//! Simulates several participants and one server, connected by a network that delays, loses and reorders messages. Each participant has
//! its own clock and may be stopped or killed. Two participants never act as the leader at the same time, and in the end one of them
//! does.

use std::time::Duration;

use proptest::prelude::*;

use super::super::elector::Timing;
use super::world::{Event, MAX_DELAY, World};

/// Milliseconds of simulated time, which no participant can read.
pub(super) type Time = u64;

pub(super) const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

/// Returns the simulated time by which `time` has passed on every clock.
fn within(time: Duration) -> Time {
    // Clocks may be slow by 5 %.
    Time::try_from(time.mul_f64(1.06).as_millis()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn two_participants_never_act_and_one_does_after_the_faults_end(seed: u64, nodes in 2_usize..=3) {
        let faults_end = 300_000;
        let mut world = World::new(seed, nodes, faults_end, true);
        world.run_until(faults_end + MAX_DELAY * 2);
        let calm = faults_end + MAX_DELAY * 2;
        let led = world.run_until(calm + within(TIMING.lease_duration + TIMING.retry_period * 2));
        prop_assert!(led.is_some(), "there is no leader");
    }

    #[test]
    fn after_a_leader_is_killed_another_one_takes_over_within_the_lease_duration_and_a_retry_period(
        seed: u64, nodes in 2_usize..=3, watches: bool, killed_at in 30_000_u64..80_000,
    ) {
        let mut world = World::new(seed, nodes, 0, watches);
        world.run_until(killed_at);
        let leader = world.leaders();
        prop_assert_eq!(leader.len(), 1, "without faults there is always a leader");
        world.later(0, leader[0], Event::Killed);
        world.run_until(killed_at);
        prop_assert!(world.leaders().is_empty());
        let led = world.run_until(killed_at + within(TIMING.lease_duration + TIMING.retry_period * 2));
        let most = if watches { TIMING.retry_period } else { TIMING.retry_period * 2 };
        let waited = led.expect("there is a leader again") - killed_at;
        prop_assert!(waited <= within(TIMING.lease_duration + most), "{} ms", waited);
    }
}
