//! The Leases, by which is checked who may act.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::time::Instant;

use crate::link::LEADER_LEASE;
use crate::views::text;

/// The times for which the Lease of the leader, and that of a node, are valid after a renewal, as configured.
const LEADER_LEASE_TIME: Duration = Duration::from_secs(15);
const NODE_LEASE_TIME: Duration = Duration::from_secs(40);

/// The holder of each Lease, by its name.
#[derive(Default)]
pub(crate) struct Leases(Mutex<BTreeMap<String, Holder>>);

/// The holder of a Lease, as the API server shows it.
#[derive(Clone, Default)]
enum Holder {
    /// Nobody, or somebody who has given it up.
    #[default]
    Nobody,
    /// The lease is gone. Its last holder may still act.
    Deleted(Option<(String, Instant)>),
    /// The replica that renewed it last, and the end of its tenure.
    Held(String, Instant),
}

impl Leases {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Holder>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if somebody holds the Lease of a node.
    pub(crate) fn are_held(&self) -> bool {
        self.lock().iter().any(|(name, holder)| name != LEADER_LEASE && matches!(holder, Holder::Held(..)))
    }

    /// Records that only the Leases of nodes with these names exist.
    pub(crate) fn retain(&self, names: &BTreeSet<String>) {
        for (name, holder) in &mut *self.lock() {
            if let Holder::Held(last, until) = holder
                && name != LEADER_LEASE
                && !names.contains(name)
            {
                *holder = Holder::Deleted(Some((last.clone(), *until)));
            }
        }
    }

    /// Records a change of a Lease by `who`.
    pub(crate) fn changed(&self, who: &str, method: &Method, path: &str, lease: &Value) {
        let name = lease["metadata"]["name"].as_str().or(path.rsplit('/').next()).unwrap_or_default();
        let valid = if name == LEADER_LEASE { LEADER_LEASE_TIME } else { NODE_LEASE_TIME };
        let (holder, renewed) =
            (text(&lease["spec"]["holderIdentity"]), lease["spec"]["renewTime"].is_string());
        let mut leases = self.lock();
        let last = leases.entry(name.to_owned()).or_default();
        if let Holder::Held(name, until) = last
            && *method == Method::POST
        {
            // The one before was deleted together with its node.
            *last = Holder::Deleted(Some((name.clone(), *until)));
        }
        *last = match &*last {
            Holder::Held(name, until) if *method == Method::DELETE => {
                Holder::Deleted(Some((name.clone(), *until)))
            }
            // A lease without a renewal belongs to the last holder of the one before it, or to nobody.
            deleted @ Holder::Deleted(last)
                if !renewed && (holder.is_empty() || last.as_ref().is_none_or(|(last, _)| last != who)) =>
            {
                deleted.clone()
            }
            _ if *method == Method::DELETE || holder.is_empty() => Holder::Nobody,
            _ => Holder::Held(who.to_owned(), Instant::now() + valid),
        };
    }

    /// Returns the holder of each Lease that is held.
    pub(crate) fn holders(&self) -> BTreeMap<String, String> {
        let held = |(lease, holder): (&String, &Holder)| match holder {
            Holder::Held(name, _) => Some((lease.clone(), name.clone())),
            Holder::Nobody | Holder::Deleted(_) => None,
        };
        self.lock().iter().filter_map(held).collect()
    }

    /// Returns `true` if `who` holds this Lease, and may change something now.
    pub(crate) fn permits(&self, who: &str, lease: &str) -> bool {
        match self.lock().get(lease) {
            Some(Holder::Held(holder, until) | Holder::Deleted(Some((holder, until)))) => {
                holder == who && Instant::now() <= *until
            }
            None | Some(Holder::Nobody | Holder::Deleted(None)) => false,
        }
    }
}
