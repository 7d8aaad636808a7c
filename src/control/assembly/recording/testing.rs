//! Recorded calls as lines of text, for tests.

use std::sync::Arc;

use parking_lot::Mutex;
use staffetta_driver::Owner;
use staffetta_handler::{DryRunPlan, ObjectRef, PlannedCall};

use super::Recording;

/// The driver calls that were recorded in a test, each as one line of text. Clones share the calls.
#[derive(Clone, Default)]
pub(super) struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    /// Wraps `driver`, so that the changes that are requested of it are recorded in this value and not made.
    pub(super) fn record<D: ?Sized>(&self, driver: Arc<D>) -> Recording<D> {
        let calls = self.clone();
        let plan = DryRunPlan::new(move |object, call| calls.0.lock().push(line(object, &call)));
        Recording::new(driver, plan, "driver", "Kind")
    }

    /// Removes and returns the calls that were recorded so far.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

fn line(object: Option<ObjectRef<'_>>, call: &PlannedCall) -> String {
    let object = object.map(|object| format!("{}/{}: ", object.namespace.unwrap_or_default(), object.name));
    let with: Vec<_> = call.with.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let last = if call.last { " ..." } else { "" };
    format!("{}{}: {}{last}", object.unwrap_or_default(), call.what, with.join("; "))
}

pub(super) fn owner(name: &str) -> Owner {
    Owner { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
}
