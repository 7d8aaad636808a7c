//! One simulated load balancer. The current time is an argument of its methods.

use std::time::Duration;

use tokio::time::Instant;

use super::mark::Mark;
use staffetta_driver::{
    DriverError, ListenerChange, LoadBalancer, LoadBalancerProgress, ProvisioningStatus, Reason,
};

/// A simulated load balancer with its ownership mark.
#[derive(Debug)]
pub(super) struct MemoryLoadBalancer {
    /// The ownership mark, which a load balancer of another controller does not have.
    pub(super) mark: Mark,
    /// The load balancer with its listeners, pools and members. Its status is not used.
    pub(super) tree: LoadBalancer,
    /// The time until which the load balancer is PENDING and accepts no change.
    pub(super) busy_until: Instant,
    /// `true` if the load balancer is in the state ERROR from `busy_until` on.
    pub(super) failed: bool,
}

impl MemoryLoadBalancer {
    /// Returns the load balancer as it appears at the time `now`: with its status, which depends on the time.
    pub(super) fn at(&self, now: Instant) -> LoadBalancer {
        let status = match self.progress(now) {
            LoadBalancerProgress::Active => ProvisioningStatus::Active,
            LoadBalancerProgress::Pending { .. } => ProvisioningStatus::Pending,
            LoadBalancerProgress::Error => ProvisioningStatus::Error,
        };
        LoadBalancer { status, ..self.tree.clone() }
    }

    /// Returns the progress of the last change of the load balancer.
    pub(super) fn progress(&self, now: Instant) -> LoadBalancerProgress {
        if now < self.busy_until {
            LoadBalancerProgress::Pending { poll_after: self.busy_until - now }
        } else if self.failed {
            LoadBalancerProgress::Error
        } else {
            LoadBalancerProgress::Active
        }
    }

    /// Returns an error with a retry delay while the load balancer is PENDING.
    pub(super) fn ensure_idle(&self, step: &'static str, now: Instant) -> Result<(), DriverError> {
        let LoadBalancerProgress::Pending { poll_after } = self.progress(now) else { return Ok(()) };
        let error = DriverError::new(Reason::Conflict, step).after(poll_after);
        Err(error.detail(format!("the load balancer {} is PENDING_UPDATE", self.tree.id)))
    }

    /// Changes a listener. `new_id` returns the ids of new resources. A change that has an effect makes the load balancer PENDING for
    /// `delay`; one without an effect does not. The error is [`Reason::Conflict`] while the load balancer is PENDING, [`Reason::Refused`]
    /// in the state ERROR, and [`Reason::NotFound`] if a pool is missing.
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
