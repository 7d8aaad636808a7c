//! What came of a dry run: the plan, and what could not be planned.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use staffetta_handler::{ObjectPlan, PlannedObject, Verdict};

/// What came of a dry run. `Display` writes it for people, `Serialize` for machines.
#[derive(Debug, Serialize)]
pub struct DryRun {
    /// What would be done, by kind, namespace and name of the object for which it would be.
    #[serde(serialize_with = "listed")]
    pub objects: BTreeMap<PlannedObject, ObjectPlan>,
    /// What could not be read or planned, beside the failures of single objects.
    pub troubles: Vec<String>,
    /// The figures of the plan.
    pub summary: Summary,
}

/// The figures of a plan.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// How many objects something would be done for, or failed.
    pub objects: usize,
    /// How many steps there are of each kind.
    pub steps: BTreeMap<String, usize>,
    /// How many times a handler failed with an object.
    pub failures: usize,
    /// How many writes would be refused.
    pub refused: usize,
    /// Of how many writes nobody could say whether they would be.
    pub unknown: usize,
}

impl DryRun {
    pub(super) fn new(objects: BTreeMap<PlannedObject, ObjectPlan>, troubles: Vec<String>) -> Self {
        let mut summary = Summary {
            objects: objects.len(),
            steps: BTreeMap::new(),
            failures: objects.values().map(|planned| planned.failures.len()).sum(),
            refused: 0,
            unknown: 0,
        };
        for planned in objects.values().flat_map(|planned| &planned.steps) {
            *summary.steps.entry(planned.step.what.clone()).or_default() += 1;
            match planned.step.verdict {
                Some(Verdict::Refused(_)) => summary.refused += 1,
                Some(Verdict::Unknown(_)) => summary.unknown += 1,
                None => {}
            }
        }
        Self { objects, troubles, summary }
    }

    /// Whether all was read and planned, and nothing of it would fail as far as is known.
    pub fn is_complete(&self) -> bool {
        let Summary { failures, refused, unknown, .. } = self.summary;
        self.troubles.is_empty() && failures + refused + unknown == 0
    }
}

/// Each object with its plan in it.
fn listed<S: Serializer>(
    objects: &BTreeMap<PlannedObject, ObjectPlan>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Entry<'a> {
        #[serde(flatten)]
        object: &'a PlannedObject,
        #[serde(flatten)]
        planned: &'a ObjectPlan,
    }
    serializer.collect_seq(objects.iter().map(|(object, planned)| Entry { object, planned }))
}
