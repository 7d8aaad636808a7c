//! The plan of a dry run: the record of the calls by which drivers would change something.

use std::fmt;
use std::sync::Arc;

use crate::event::ObjectRef;

/// A record of the calls that drivers would make in a real run. A dry run makes none of these calls. Clones add to the same plan.
///
/// Each call is recorded for the handler that is running, and for the object that this handler is processing, unless
/// [`add_for`](Self::add_for) names another object. A driver that records from a task of its own must name the object.
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

/// The type of a function that gets each call that a driver records, with the object for which the driver recorded it; `None` if the driver
/// named no object.
type RecordFn = dyn Fn(Option<ObjectRef<'_>>, PlannedCall) + Send + Sync;

/// One call that a driver would make in a real run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCall {
    /// The [alias](crate::DriverTrait::alias) of the driver trait whose method would be called, such as `pod_vif`.
    pub by: Arc<str>,
    /// The action in the imperative, the same for all calls of the same type: `request a VIF`.
    pub what: String,
    /// The names and values of the arguments, in reading order.
    pub with: Vec<(String, String)>,
    /// `true` if the further steps depend on the result of this call, and are therefore not planned.
    pub last: bool,
}

impl PlannedCall {
    /// Makes a call of the driver trait `by` with the action `what`, without arguments.
    pub fn new(by: impl Into<Arc<str>>, what: impl Into<String>) -> Self {
        Self { by: by.into(), what: what.into(), with: Vec::new(), last: false }
    }

    /// Adds an argument, unless the value is empty.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.with.push((name.into(), value));
        }
        self
    }

    /// Marks the call as the last one in the plan of its object, because the further steps depend on its result. The driver must return
    /// an error after it has recorded the call; the plan does not show that error.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.last = true;
        self
    }
}

impl DryRunPlan {
    /// Makes a plan that passes each call to `record`, with the object that the driver named; `None` stands for the object that the
    /// handler is processing. `record` must not block.
    pub fn new(record: impl Fn(Option<ObjectRef<'_>>, PlannedCall) + Send + Sync + 'static) -> Self {
        Self(Arc::new(record))
    }

    /// Adds a call for the object that the handler is processing.
    pub fn add(&self, call: PlannedCall) {
        (self.0)(None, call);
    }

    /// Adds a call for `object`, instead of the object that the handler is processing.
    pub fn add_for(&self, object: ObjectRef<'_>, call: PlannedCall) {
        (self.0)(Some(object), call);
    }
}

impl Default for DryRunPlan {
    /// Makes a plan that discards all calls.
    fn default() -> Self {
        Self::new(|_, _| {})
    }
}
