//! What runs on a machine and has no owner.

use std::collections::HashMap;
use std::time::Duration;

use staffetta_driver::{Owner, Uid};
use tokio::time::Instant;

use crate::workload::Workloads;

/// Since when what runs on a machine has no owner.
#[derive(Default)]
pub(crate) struct Orphans(HashMap<Uid, Instant>);

impl Orphans {
    /// What carries our mark and has had no owner for `grace`. It is named at each look, until it is gone.
    pub(crate) fn look(
        &mut self,
        workloads: &Workloads,
        has_owner: impl Fn(&Uid) -> bool,
        now: Instant,
        grace: Duration,
    ) -> Vec<Owner> {
        let mut due = Vec::new();
        let mut still = HashMap::new();
        for workload in workloads.iter().filter(|workload| workload.ours) {
            let uid = &workload.owner.uid;
            if has_owner(uid) {
                continue;
            }
            let since = self.0.get(uid).copied().unwrap_or(now);
            if now.saturating_duration_since(since) >= grace {
                due.push(workload.owner.clone());
            }
            still.insert(uid.clone(), since);
        }
        self.0 = still;
        due
    }

    /// Whether that has had no owner for `grace`.
    pub(crate) fn holds(&self, uid: &Uid, now: Instant, grace: Duration) -> bool {
        self.0.get(uid).is_some_and(|since| now.saturating_duration_since(*since) >= grace)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::workload::Workload;

    #[tokio::test(start_paused = true)]
    async fn only_what_is_ours_and_has_long_had_no_owner_is_an_orphan() {
        let workload = |uid: &str, ours| {
            let owner = Owner { namespace: "default".into(), name: uid.into(), uid: uid.into() };
            Arc::new(Workload { owner, ours, containers: Vec::new(), ip: None })
        };
        let there: Workloads =
            [workload("lives", true), workload("gone", true), workload("theirs", false)].into();
        let (mut orphans, grace) = (Orphans::default(), Duration::from_secs(60));
        let mut look = |owned: &[&str]| {
            let has_owner = |uid: &Uid| owned.contains(&uid.as_str());
            let due = orphans.look(&there, has_owner, Instant::now(), grace);
            due.into_iter().map(|owner| owner.name).collect::<Vec<_>>()
        };
        assert!(look(&["lives"]).is_empty());
        tokio::time::advance(grace / 2).await;
        assert!(look(&["lives", "gone"]).is_empty(), "its owner was only late");
        tokio::time::advance(grace / 2).await;
        assert!(look(&["lives"]).is_empty(), "the time starts anew");
        tokio::time::advance(grace).await;
        assert_eq!(look(&["lives"]), ["gone"]);
    }
}
