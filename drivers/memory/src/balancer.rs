//! One simulated load balancer, with the clock passed in.

use std::time::Duration;

use tokio::time::Instant;

use staffetta_driver::{
    ClusterId, DriverError, ListenerChange, LoadBalancer, LoadBalancerProgress, Owner, ProvisioningStatus,
    Reason,
};

/// A load balancer with its mark.
#[derive(Debug)]
pub(super) struct MemoryLoadBalancer {
    pub(super) cluster: Option<ClusterId>,
    pub(super) owner: Option<Owner>,
    pub(super) tree: LoadBalancer,
    /// The time until which it takes no change.
    pub(super) busy_until: Instant,
    /// `true` if it is in the state ERROR after that time.
    pub(super) failed: bool,
}

impl MemoryLoadBalancer {
    /// Returns the load balancer at the time `now`.
    pub(super) fn at(&self, now: Instant) -> LoadBalancer {
        let status = match self.progress(now) {
            LoadBalancerProgress::Active => ProvisioningStatus::Active,
            LoadBalancerProgress::Pending { .. } => ProvisioningStatus::Pending,
            LoadBalancerProgress::Error => ProvisioningStatus::Error,
        };
        LoadBalancer { status, ..self.tree.clone() }
    }

    /// Returns the progress of its last change.
    pub(super) fn progress(&self, now: Instant) -> LoadBalancerProgress {
        if now < self.busy_until {
            LoadBalancerProgress::Pending { poll_after: self.busy_until - now }
        } else if self.failed {
            LoadBalancerProgress::Error
        } else {
            LoadBalancerProgress::Active
        }
    }

    pub(super) fn is_of(&self, cluster: &ClusterId, owner: Option<&Owner>) -> bool {
        let marked_for = |owner: &Owner| self.owner.as_ref().is_some_and(|marked| marked.uid == owner.uid);
        self.cluster.as_ref() == Some(cluster) && owner.is_none_or(marked_for)
    }

    /// Fails while it takes no change.
    pub(super) fn ensure_idle(&self, step: &'static str, now: Instant) -> Result<(), DriverError> {
        let LoadBalancerProgress::Pending { poll_after } = self.progress(now) else { return Ok(()) };
        let error = DriverError::new(Reason::Conflict, step).after(poll_after);
        Err(error.detail(format!("the load balancer {} is PENDING_UPDATE", self.tree.id)))
    }

    /// Changes a listener, with new ids of `new_id`. A call without effect does not make the load balancer PENDING; any other
    /// does, for `delay`.
    pub(super) fn change(
        &mut self,
        step: &'static str,
        change: &ListenerChange,
        new_id: impl FnMut(String) -> String,
        now: Instant,
        delay: Duration,
    ) -> Result<LoadBalancer, DriverError> {
        self.ensure_idle(step, now)?;
        if self.failed {
            let detail = format!("the load balancer {} is in the state ERROR", self.tree.id);
            return Err(DriverError::new(Reason::Refused, step).detail(detail));
        }
        let no_pool = || DriverError::new(Reason::NotFound, step).detail(format!("pool of {}", change.at()));
        let changed = self.tree.changed(change, new_id).ok_or_else(no_pool)?;
        if changed.listeners != self.tree.listeners {
            self.tree = changed;
            self.busy_until = now + delay;
        }
        Ok(self.at(now))
    }
}
