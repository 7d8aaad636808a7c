//! The plan of a dry run, as a driver trait sees it: calls that would change something are recorded there.

use std::fmt;
use std::sync::Arc;

use crate::event::ObjectRef;

/// Records the calls that a driver would make, while a dry run makes none of them. Clones record to the same plan.
///
/// A call belongs to the handler that is running, and unless [`add_for`](Self::add_for) names another object, to the object that
/// this handler is working on. A driver that records from a task of its own has to name the object.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use staffetta_handler::{DryRunPlan, PlannedCall};
///
/// let calls = Arc::new(Mutex::new(Vec::new()));
/// let recorded = Arc::clone(&calls);
/// let plan = DryRunPlan::new(move |_, call| recorded.lock().unwrap().push(call));
/// plan.add(PlannedCall::new("lamp", "switch a lamp on").with("colour", "red"));
/// assert_eq!(calls.lock().unwrap()[0].what, "switch a lamp on");
/// ```
#[derive(Clone)]
pub struct DryRunPlan(Arc<RecordFn>);

type RecordFn = dyn Fn(Option<ObjectRef<'_>>, PlannedCall) + Send + Sync;

/// One call that would be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCall {
    /// The driver trait, by the name under which it was registered.
    pub by: Arc<str>,
    /// The action in the imperative, the same for all calls of its kind: `request a VIF`.
    pub what: String,
    /// Names and values of the arguments, in reading order.
    pub with: Vec<(String, String)>,
    /// `true` if what follows depends on the result of the call, and is not planned.
    pub last: bool,
}

impl PlannedCall {
    /// A call of the driver trait `by`, without arguments.
    pub fn new(by: impl Into<Arc<str>>, what: impl Into<String>) -> Self {
        Self { by: by.into(), what: what.into(), with: Vec::new(), last: false }
    }

    /// Adds an argument. An empty value is left out.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.with.push((name.into(), value));
        }
        self
    }

    /// Ends the plan of the object with this call, because what follows depends on its result. The call must return an error
    /// after recording it; the plan does not show that error.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.last = true;
        self
    }
}

impl DryRunPlan {
    /// A plan that passes each call to `record`, with the object if one is named. `record` must not block.
    pub fn new(record: impl Fn(Option<ObjectRef<'_>>, PlannedCall) + Send + Sync + 'static) -> Self {
        Self(Arc::new(record))
    }

    /// Adds a call for the object that the handler is working on.
    pub fn add(&self, call: PlannedCall) {
        (self.0)(None, call);
    }

    /// Adds a call for `object`.
    pub fn add_for(&self, object: ObjectRef<'_>, call: PlannedCall) {
        (self.0)(Some(object), call);
    }
}

impl Default for DryRunPlan {
    /// A plan that discards all calls.
    fn default() -> Self {
        Self::new(|_, _| {})
    }
}
