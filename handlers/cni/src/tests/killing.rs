//! A daemon that is killed, or whose kernel fails, between any two steps.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use staffetta_network::os_vif::PodState;

use super::world::{Kernel, daemon, pod, request, vif};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After each number of changes of the kernel, no further one succeeds, so that also the rollback fails: as if the daemon was
    /// killed there. With enough changes it is killed while the pod waits for its port. `cut` is what it was writing besides: nothing, the
    /// record in a temporary file, or a record whose VIFs are unbound already. The next daemon must unbind everything, or bind
    /// everything, whichever it is asked for.
    #[test]
    fn a_daemon_killed_at_any_step_leaves_only_what_the_next_one_removes(
        steps in 0_usize..8,
        vifs in 1_u8..4,
        active in any::<bool>(),
        cut in 0..3,
        again in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
            let mut state = PodState::new(vif(1));
            for number in 2..=vifs {
                state.additional_vifs.insert(format!("eth{number}"), vif(number));
            }
            let mut first_state = state.clone();
            first_state.default_vif.active = active;
            kernel.left.store(steps, Ordering::Relaxed);
            let first = daemon(&kernel, folder.path());
            first.pods.put(&pod("web", "u1", &first_state));
            let is_answered = first.add(&request("web", "u1", "c1")).await.is_ok();
            let is_bound = steps >= usize::from(vifs) * 2;
            prop_assert_eq!(is_answered, is_bound && active);
            drop(first);
            match cut {
                1 => std::fs::write(folder.path().join(".u1.json.1.tmp"), "{\"uid").unwrap(),
                2 => kernel.plugged.lock().clear(),
                _ => {}
            }

            kernel.left.store(usize::MAX, Ordering::Relaxed);
            let second = daemon(&kernel, folder.path());
            if again {
                second.pods.put(&pod("web", "u1", &state));
                second.add(&request("web", "u1", "c2")).await.unwrap();
                prop_assert_eq!(kernel.ports().len(), usize::from(vifs));
                prop_assert!(kernel.owners().iter().all(|owner| owner == "c2/eth0"));
                second.delete(&request("web", "u1", "c2")).await.unwrap();
            } else {
                second.delete(&request("web", "u1", "c1")).await.unwrap();
            }
            prop_assert!(kernel.ports().is_empty());
            prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            Ok(())
        })?;
    }
}
