//! A daemon that is killed, or whose kernel fails, between any two steps.

use std::sync::atomic::Ordering;

use proptest::prelude::*;
use staffetta_network::os_vif::PodState;

use super::world::{Kernel, daemon, pod, request, vif};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After each number of changes of the kernel, no further one succeeds, so that also the rollback fails: as if the daemon was
    /// killed there. The next daemon must unbind everything, or bind everything, whichever it is asked for.
    #[test]
    fn a_daemon_killed_at_any_step_leaves_only_what_the_next_one_removes(steps in 0_usize..8, vifs in 1_u8..4, again in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
            let mut state = PodState::new(vif(1));
            for number in 2..=vifs {
                state.additional_vifs.insert(format!("eth{number}"), vif(number));
            }
            kernel.left.store(steps, Ordering::Relaxed);
            let first = daemon(&kernel, folder.path());
            first.pods.put(&pod("web", "u1", &state));
            let bound = first.add(&request("web", "u1", "c1")).await.is_ok();
            prop_assert_eq!(bound, steps >= usize::from(vifs) * 2);
            drop(first);

            kernel.left.store(usize::MAX, Ordering::Relaxed);
            let second = daemon(&kernel, folder.path());
            if again {
                second.pods.put(&pod("web", "u1", &state));
                second.add(&request("web", "u1", "c2")).await.unwrap();
                prop_assert_eq!(kernel.ports().len(), usize::from(vifs));
                prop_assert!(kernel.plugged.lock().unwrap().iter().all(|(_, netns)| netns == "/run/netns/c2"));
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
