//! The maximum number of security group rules of the network policies of a namespace.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use staffetta_driver::Uid;

use super::terms::ParsedPolicy;

/// The maximum number of security group rules of all policies of one namespace together, and the policies that exceed it.
#[derive(Default)]
pub(super) struct RuleLimit {
    /// The maximum number of rules of a namespace; `None` for any number.
    max: Option<usize>,
    /// The number of rules of each policy that has been counted since the policy's last change.
    counts: HashMap<Uid, usize>,
    /// The namespaces whose number of rules must be compared with the maximum.
    unchecked: BTreeSet<String>,
    /// The UIDs of the policies that exceed the maximum, by namespace. A namespace without such policies has no entry.
    excessive: HashMap<String, BTreeSet<Uid>>,
}

impl RuleLimit {
    /// Sets the maximum number of rules of a namespace. If it differs, the namespaces of `policies` (all policies) are checked again.
    pub(super) fn set_max(&mut self, max: Option<usize>, policies: &HashMap<Uid, Arc<ParsedPolicy>>) {
        if self.max != max {
            self.max = max;
            self.unchecked.extend(policies.values().map(|terms| terms.owner.namespace.clone()));
        }
    }

    /// Records that the number of rules of a policy may have changed, so that [`check`](Self::check) counts them again.
    pub(super) fn changed(&mut self, terms: &ParsedPolicy) {
        self.counts.remove(&terms.owner.uid);
        self.unchecked.insert(terms.owner.namespace.clone());
    }

    /// Returns the maximum number of rules of a namespace if the policy, counted after older policies, exceeds it; otherwise `None`.
    pub(super) fn exceeded_by(&self, terms: &ParsedPolicy) -> Option<usize> {
        let excessive = self.excessive.get(&terms.owner.namespace);
        self.max.filter(|_| excessive.is_some_and(|policies| policies.contains(&terms.owner.uid)))
    }

    /// Compares the rules of each changed namespace with the maximum. Older policies have precedence. `rules` counts the rules of a policy.
    /// Returns the policies that begin or cease to exceed the maximum.
    pub(super) fn check(
        &mut self,
        policies: &HashMap<Uid, Arc<ParsedPolicy>>,
        rules: impl Fn(&ParsedPolicy) -> usize,
    ) -> Vec<Uid> {
        let mut differing = Vec::new();
        for namespace in std::mem::take(&mut self.unchecked) {
            let mut excessive = BTreeSet::new();
            if let Some(mut left) = self.max {
                let here = policies.values().filter(|terms| terms.owner.namespace == namespace);
                let mut here: Vec<_> = here.collect();
                here.sort_by_cached_key(|terms| (terms.created.clone(), terms.owner.uid.clone()));
                for terms in here {
                    let uid = &terms.owner.uid;
                    let count = *self.counts.entry(uid.clone()).or_insert_with(|| rules(terms));
                    match left.checked_sub(count) {
                        Some(rest) => left = rest,
                        None => drop(excessive.insert(uid.clone())),
                    }
                }
            }
            let before = self.excessive.remove(&namespace).unwrap_or_default();
            differing.extend(excessive.symmetric_difference(&before).cloned());
            if !excessive.is_empty() {
                self.excessive.insert(namespace, excessive);
            }
        }
        differing
    }
}
