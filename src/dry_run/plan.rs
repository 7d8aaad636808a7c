//! The plan of a dry run: the steps and failures of each object.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;
use serde_json::Value;
use staffetta_handler::{DryRunPlan, ObjectRef, PlannedCall};

use crate::lock::lock;

/// Collects steps and failures by object. Clones share them.
#[derive(Clone, Default)]
pub(super) struct PlanLog(Arc<Mutex<BTreeMap<PlannedObject, ObjectPlan>>>);

/// The object that a step is for. All fields are empty for a step that is for no single object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PlannedObject {
    /// The kind, as in the field `kind`.
    pub kind: String,
    /// The namespace; `None` for a cluster-scoped object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The UID; empty for an object that does not exist yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// The plan for one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ObjectPlan {
    /// The object.
    #[serde(flatten)]
    pub object: PlannedObject,
    /// The steps, in order.
    pub steps: Vec<PlannedStep>,
    /// The last error of each handler that failed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<Arc<str>, String>,
}

/// One driver call or one write to the Kubernetes API that would be made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlannedStep {
    /// The handler; `None` for a step that is taken outside of all handlers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<Arc<str>>,
    /// The driver trait by its name in the configuration, or `kubernetes` for a write.
    pub by: Arc<str>,
    /// The action in the imperative, the same for all steps of its kind: `request a VIF`.
    pub what: String,
    /// Arguments of a call, or changes of a write, in reading order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<StepDetail>,
    /// The reason for which the server refuses the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The reason for which the server cannot tell whether it would refuse the write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// `true` if what follows depends on the result of this step, and is not planned.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// An argument of a call, or a change of a write.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum StepDetail {
    /// An argument.
    Argument {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A changed field. `None` stands for a field that is absent.
    Change {
        /// Its name, such as `annotation example.com/key` or `status.phase`.
        name: String,
        /// The current value.
        from: Option<Value>,
        /// The new value.
        to: Option<Value>,
    },
}

tokio::task_local! {
    /// The handler invocation that the current task runs.
    static CURRENT: Arc<CurrentInvocation>;
}

struct CurrentInvocation {
    handler: Arc<str>,
    object: PlannedObject,
    /// Set after a step that ends the plan of the object.
    ended: AtomicBool,
}

impl PlanLog {
    /// The plan as drivers see it.
    pub(super) fn for_drivers(&self) -> DryRunPlan {
        let log = self.clone();
        DryRunPlan::new(move |object, call| {
            let PlannedCall { by, what, with, last } = call;
            let with = with.into_iter().map(|(name, value)| StepDetail::Argument { name, value }).collect();
            let step = PlannedStep { by, what, with, last, ..PlannedStep::default() };
            log.add(object.map(PlannedObject::from), step);
        })
    }

    /// Adds a step for `object`, by default the object of the running handler. An equal step of the same handler is not added
    /// twice: an attempt that is repeated records its steps again.
    pub(super) fn add(&self, object: Option<PlannedObject>, step: PlannedStep) {
        let current = CURRENT.try_with(Arc::clone).ok();
        if let Some(current) = current.as_ref().filter(|_| step.last) {
            current.ended.store(true, Ordering::Relaxed);
        }
        let object = object.or_else(|| Some(current.as_ref()?.object.clone())).unwrap_or_default();
        let step = PlannedStep { handler: current.map(|current| Arc::clone(&current.handler)), ..step };
        let mut objects = self.objects();
        let steps = &mut objects.entry(object).or_default().steps;
        if !steps.contains(&step) {
            steps.push(step);
        }
    }

    /// Runs `work` as an invocation of `handler` with `object`. An earlier failure of both is removed.
    pub(super) async fn during<T>(
        &self,
        handler: Arc<str>,
        object: PlannedObject,
        work: impl Future<Output = T>,
    ) -> T {
        if let Entry::Occupied(mut entry) = self.objects().entry(object.clone()) {
            entry.get_mut().failures.remove(&handler);
            if *entry.get() == ObjectPlan::default() {
                entry.remove();
            }
        }
        let ended = AtomicBool::new(false);
        CURRENT.scope(Arc::new(CurrentInvocation { handler, object, ended }), work).await
    }

    /// Records that the running handler failed, unless the plan of its object ended before.
    pub(super) fn failed(&self, error: String) {
        let Ok(current) = CURRENT.try_with(Arc::clone) else { return };
        if !current.ended.load(Ordering::Relaxed) {
            let mut objects = self.objects();
            let failures = &mut objects.entry(current.object.clone()).or_default().failures;
            failures.insert(Arc::clone(&current.handler), error);
        }
    }

    /// Removes and returns all that was recorded.
    pub(super) fn take(&self) -> BTreeMap<PlannedObject, ObjectPlan> {
        std::mem::take(&mut self.objects())
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<PlannedObject, ObjectPlan>> {
        lock(&self.0)
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
        match &self.namespace {
            _ if self.kind.is_empty() => f.write_str("For no single object"),
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

#[cfg(test)]
mod tests {
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

    /// One line for each step and failure.
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
        for _ in 0..2 {
            log.during("vif".into(), pod("web"), async { log.add(None, step("first")) }).await;
        }
        log.during("lb".into(), pod("web"), async { log.add(None, step("first")) }).await;
        assert_eq!(lines(&log), ["Pod shop/web: vif: first", "Pod shop/web: lb: first"]);
    }

    #[tokio::test]
    async fn a_failure_remains_until_the_same_handler_succeeds_with_the_object() {
        let log = PlanLog::default();
        for handler in ["lb", "vif"] {
            log.during(handler.into(), pod("web"), async { log.failed("refused".into()) }).await;
        }
        log.during("vif".into(), pod("web"), async {}).await;
        assert_eq!(lines(&log), ["Pod shop/web: lb: refused"]);
        log.during("lb".into(), pod("web"), async { log.failed("refused".into()) }).await;
        log.during("lb".into(), pod("web"), async {}).await;
        assert!(log.take().is_empty(), "an object without steps and failures is not in the plan");
    }

    #[tokio::test]
    async fn a_failure_after_the_last_step_is_not_recorded() {
        let log = PlanLog::default();
        let work = async {
            log.add(None, PlannedStep { last: true, ..step("adopt") });
            log.failed("unknown".into());
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
