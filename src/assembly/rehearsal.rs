//! How the driver traits are rehearsed: the plan of a dry run is told what the drivers tell of themselves.

use std::sync::Arc;

use staffetta_driver::Owner;
use staffetta_driver::rehearsal::{PlannedCall, Planner};
use staffetta_handler::{Plan, PlannedObject, Step};

/// Adds to `plan` what a driver of the trait `driver` would be asked to do. Whom it names as an owner is a `kind`.
pub(super) fn planner(plan: Plan, driver: &'static str, kind: &'static str) -> Planner {
    Arc::new(move |call| {
        let PlannedCall { what, owner, with, last } = call;
        let step =
            with.into_iter().fold(Step::new(driver, what), |step, (name, value)| step.with(name, value));
        let step = if last { step.last() } else { step };
        match owner {
            Some(Owner { namespace, name, uid }) => {
                let (kind, uid) = (kind.to_owned(), uid.to_string());
                let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
                plan.add_for(PlannedObject { kind, namespace, name, uid }, step);
            }
            None => plan.add(step),
        }
    })
}
