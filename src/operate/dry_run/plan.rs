//! The plan of a dry run: the steps and failures of each object.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use staffetta_handler::{DryRunPlan, HandlerError, ObjectRef, PlannedCall, causes, full_name};

/// A collection of the planned steps and the failures of each object. Clones share the collection.
#[derive(Clone, Default)]
pub(super) struct PlanLog(Arc<Mutex<BTreeMap<PlannedObject, ObjectPlan>>>);

/// The object to which a step belongs. All fields are empty for a step that belongs to no single object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PlannedObject {
    /// The kind of the object, as in its field `kind`.
    pub kind: String,
    /// The namespace of the object; `None` for a cluster-scoped object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// The UID of the object; empty if it does not exist yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The planned steps and the failures of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ObjectPlan {
    /// The object that the steps concern.
    #[serde(flatten)]
    pub object: PlannedObject,
    /// The steps in the order in which a real run would make them.
    pub steps: Vec<PlannedStep>,
    /// The last error of each handler that would fail for the object, by the name of the handler.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<Arc<str>, String>,
}

/// One driver call, or one write to the Kubernetes API, that a real run would make.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlannedStep {
    /// The name of the handler that makes the step; `None` for a step that no handler makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<Arc<str>>,
    /// The name of the driver trait in the configuration, or `kubernetes` for a write to the API server.
    pub by: Arc<str>,
    /// The action in the imperative, the same for all steps of the same type: `request a VIF`.
    pub what: String,
    /// The arguments of a call, or the changed fields of a write, in reading order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<StepDetail>,
    /// The reason why the server would reject the write; `None` if the server would accept it, if that is not known, and for a driver call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The reason why the server could not check the write in a dry run; `None` if it could, and for a driver call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// `true` if the further steps depend on the result of this step, and are therefore not planned.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// An argument of a driver call, or a changed field of a write.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum StepDetail {
    /// An argument of a driver call.
    Argument {
        /// The name of the argument.
        name: String,
        /// The value of the argument.
        value: String,
    },
    /// A changed field of a write. `None` represents a field that is absent.
    Change {
        /// The name of the field, such as `annotation example.com/key` or `status.phase`.
        name: String,
        /// The current value of the field; `None` if it is absent.
        from: Option<Value>,
        /// The new value of the field; `None` if the write removes it.
        to: Option<Value>,
    },
}

tokio::task_local! {
    /// The handler invocation that the current task runs.
    static CURRENT: Arc<CurrentInvocation>;
}

/// The handler that is running, and the object that it processes.
struct CurrentInvocation {
    handler: Arc<str>,
    object: PlannedObject,
    /// `true` after a step that ends the plan of the object.
    ended: AtomicBool,
}

impl PlanLog {
    /// Returns a [`DryRunPlan`] for drivers that records in this collection.
    pub(super) fn for_drivers(&self) -> DryRunPlan {
        let log = self.clone();
        DryRunPlan::new(move |object, call| {
            let PlannedCall { by, what, with, last } = call;
            let with = with.into_iter().map(|(name, value)| StepDetail::Argument { name, value }).collect();
            let step = PlannedStep { by, what, with, last, ..PlannedStep::default() };
            log.add(object.map(PlannedObject::from), step);
        })
    }

    /// Adds a step for `object`, or if that is `None` for the object of the running handler. A step that is equal to an earlier one of
    /// the same handler is not added again, because a retry records its steps again.
    pub(super) fn add(&self, object: Option<PlannedObject>, step: PlannedStep) {
        let current = CURRENT.try_with(Arc::clone).ok();
        if let Some(current) = current.as_ref().filter(|_| step.last) {
            current.ended.store(true, Ordering::Relaxed);
        }
        let object = object.or_else(|| Some(current.as_ref()?.object.clone())).unwrap_or_default();
        let step = PlannedStep { handler: current.map(|current| Arc::clone(&current.handler)), ..step };
        let mut objects = self.0.lock();
        let steps = &mut objects.entry(object).or_default().steps;
        if !steps.contains(&step) {
            steps.push(step);
        }
    }

    /// Runs `work` as an invocation of `handler` for `object`. If it fails, its error replaces an earlier one of this handler with this
    /// object. If it succeeds, or a [last](PlannedStep::last) step has ended the plan of the object, the earlier error is removed.
    pub(super) async fn during(
        &self,
        handler: Arc<str>,
        object: PlannedObject,
        work: impl Future<Output = Result<(), HandlerError>>,
    ) {
        let current = Arc::new(CurrentInvocation { handler, object, ended: AtomicBool::new(false) });
        let result = CURRENT.scope(Arc::clone(&current), work).await;
        let CurrentInvocation { handler, object, ended } = &*current;
        let mut objects = self.0.lock();
        let plan = objects.entry(object.clone()).or_default();
        match result {
            Err(error) if !ended.load(Ordering::Relaxed) => {
                plan.failures.insert(Arc::clone(handler), causes(&*error));
            }
            _ => drop(plan.failures.remove(handler)),
        }
        if *plan == ObjectPlan::default() {
            objects.remove(object);
        }
    }

    /// Removes and returns the plans of all objects.
    pub(super) fn take(&self) -> BTreeMap<PlannedObject, ObjectPlan> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl From<ObjectRef<'_>> for PlannedObject {
    fn from(object: ObjectRef<'_>) -> Self {
        Self {
            kind: object.kind.into_owned(),
            namespace: object.namespace.map(str::to_owned),
            name: object.name.to_owned(),
            uid: object.uid.to_owned(),
        }
    }
}

impl fmt::Display for PlannedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind.is_empty() {
            return f.write_str("For no single object");
        }
        write!(f, "{} {}", self.kind, full_name(self.namespace.as_deref(), &self.name))
    }
}

#[cfg(test)]
mod tests {
    use staffetta_handler::testing::Fault;

    use super::*;

    fn pod(name: &str) -> PlannedObject {
        PlannedObject {
            kind: "Pod".into(),
            namespace: Some("shop".into()),
            name: name.into(),
            uid: format!("uid-{name}"),
        }
    }

    fn step(what: &str) -> PlannedStep {
        PlannedStep { by: "lamp".into(), what: what.into(), ..PlannedStep::default() }
    }

    fn refused() -> Result<(), HandlerError> {
        Err(Fault::permanent("refused").into())
    }

    /// Returns one line for each step and failure.
    fn lines(log: &PlanLog) -> Vec<String> {
        let mut lines = Vec::new();
        for (object, ObjectPlan { steps, failures, .. }) in log.take() {
            for PlannedStep { handler, what, .. } in steps {
                lines.push(format!("{object}: {}: {what}", handler.as_deref().unwrap_or("-")));
            }
            lines
                .extend(failures.into_iter().map(|(handler, error)| format!("{object}: {handler}: {error}")));
        }
        lines
    }

    #[tokio::test]
    async fn a_step_belongs_to_the_running_handler_and_its_object_unless_it_names_another() {
        let log = PlanLog::default();
        let work = |other: &'static str| {
            let log = log.clone();
            async move {
                log.for_drivers().add(PlannedCall::new("lamp", "first"));
                tokio::task::yield_now().await;
                log.add(None, step("second"));
                log.add(Some(pod(other)), step("third"));
                Ok(())
            }
        };
        let (web, db) = (work("a"), work("b"));
        tokio::join!(log.during("vif".into(), pod("web"), web), log.during("lb".into(), pod("db"), db));
        log.add(Some(pod("db")), step("beside"));
        let expected = [
            "Pod shop/a: vif: third",
            "Pod shop/b: lb: third",
            "Pod shop/db: lb: first",
            "Pod shop/db: lb: second",
            "Pod shop/db: -: beside",
            "Pod shop/web: vif: first",
            "Pod shop/web: vif: second",
        ];
        assert_eq!(lines(&log), expected);
    }

    #[tokio::test]
    async fn an_equal_step_of_the_same_handler_is_recorded_once() {
        let log = PlanLog::default();
        for handler in ["vif", "vif", "lb"] {
            let work = async {
                log.add(None, step("first"));
                Ok(())
            };
            log.during(handler.into(), pod("web"), work).await;
        }
        assert_eq!(lines(&log), ["Pod shop/web: vif: first", "Pod shop/web: lb: first"]);
    }

    #[tokio::test]
    async fn a_failure_remains_until_the_same_handler_succeeds_with_the_object() {
        let log = PlanLog::default();
        for handler in ["lb", "vif"] {
            log.during(handler.into(), pod("web"), async { refused() }).await;
        }
        log.during("vif".into(), pod("web"), async { Ok(()) }).await;
        assert_eq!(lines(&log), ["Pod shop/web: lb: refused"]);
        log.during("lb".into(), pod("web"), async { refused() }).await;
        log.during("lb".into(), pod("web"), async { Ok(()) }).await;
        assert!(log.take().is_empty(), "an object without steps and failures is not in the plan");
    }

    #[tokio::test]
    async fn a_failure_after_the_last_step_is_not_recorded() {
        let log = PlanLog::default();
        let work = async {
            log.add(None, PlannedStep { last: true, ..step("adopt") });
            refused()
        };
        log.during("lb".into(), pod("web"), work).await;
        assert_eq!(lines(&log), ["Pod shop/web: lb: adopt"]);
    }

    #[test]
    fn empty_fields_are_not_serialized() {
        let refused = PlannedStep { refused: Some("no".into()), ..step("first") };
        let expected = serde_json::json!({ "by": "lamp", "what": "first", "refused": "no" });
        assert_eq!(serde_json::to_value(refused).unwrap(), expected);
        let detail = StepDetail::Argument { name: "colour".into(), value: "red".into() };
        let written = serde_json::to_value(PlannedStep { with: vec![detail], ..step("first") }).unwrap();
        let expected = serde_json::json!({ "by": "lamp", "what": "first", "with": [{ "name": "colour", "value": "red" }] });
        assert_eq!(written, expected);
    }
}
