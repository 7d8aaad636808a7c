//! The plan of a dry run: what would be done is written down instead.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;

use crate::message::Subject;

/// The plan of a dry run. Copies share it.
///
/// Whoever would do something adds a [`Step`]. One that is added while a handler is at work, within
/// [`during`](Self::during), is that handler's; unless it names another object, it is about the one in hand. A driver that
/// adds steps from a task of its own has to name the object.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use staffetta_handler::{Plan, PlannedObject, Step};
///
/// let plan = Plan::default();
/// let pod = PlannedObject { kind: "Pod".into(), namespace: Some("shop".into()), name: "web".into(), uid: "u1".into() };
/// let work = async { plan.add(Step::new("lamp", "switch a lamp on").with("colour", "red")) };
/// plan.during("night-light".into(), pod.clone(), work).await;
/// let planned = &plan.take()[&pod].steps[0];
/// assert_eq!((planned.handler.as_deref(), &*planned.step.what), (Some("night-light"), "switch a lamp on"));
/// # });
/// ```
#[derive(Clone, Default)]
pub struct Plan(Arc<Mutex<BTreeMap<PlannedObject, ObjectPlan>>>);

/// Whom a step is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PlannedObject {
    /// The kind, as in the field `kind`.
    pub kind: String,
    /// The namespace; none for a cluster-scoped object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The UID; empty for an object that is not there yet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// What would be done for one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ObjectPlan {
    /// In order.
    pub steps: Vec<PlannedStep>,
    /// The last error of each handler that failed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<Arc<str>, String>,
}

/// A step with the handler whose step it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedStep {
    /// The handler; none for what is done beside all handlers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<Arc<str>>,
    /// What it would do.
    #[serde(flatten)]
    pub step: Step,
}

/// One thing that would be done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Who would do it: `kubernetes`, or a driver trait by the name under which it was registered.
    pub by: Arc<str>,
    /// What, as an imperative that is the same for all steps of its kind: `request a VIF`.
    pub what: String,
    /// The particulars, in reading order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Particular>,
    /// What is known against it.
    #[serde(flatten)]
    pub verdict: Option<Verdict>,
    /// Whether what follows depends on what would come of it, and is not planned.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub last: bool,
}

/// What is known against a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It would be refused, for this reason.
    Refused(String),
    /// Nobody could say whether it would be refused, for this reason.
    Unknown(String),
}

/// A particular of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Particular {
    /// A value under its name.
    Is {
        /// The name.
        name: String,
        /// The value.
        value: String,
    },
    /// A value that would change. None stands for one that is not there.
    Changes {
        /// The name.
        name: String,
        /// What it is.
        from: Option<Value>,
        /// What it would be.
        to: Option<Value>,
    },
}

impl Step {
    /// `what`, done by `by`, without particulars.
    pub fn new(by: impl Into<Arc<str>>, what: impl Into<String>) -> Self {
        Self { by: by.into(), what: what.into(), with: Vec::new(), verdict: None, last: false }
    }

    /// Adds a value under its name.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl fmt::Display) -> Self {
        self.with.push(Particular::Is { name: name.into(), value: value.to_string() });
        self
    }

    /// Says that what follows depends on what would come of it. Whoever adds such a step fails; that failure is none of the
    /// plan's, which ends there for the object in hand.
    #[must_use]
    pub fn last(mut self) -> Self {
        self.last = true;
        self
    }
}

impl From<Subject<'_>> for PlannedObject {
    fn from(subject: Subject<'_>) -> Self {
        Self {
            kind: subject.kind.into_owned(),
            namespace: subject.namespace.map(str::to_owned),
            name: subject.name.to_owned(),
            uid: subject.uid.to_owned(),
        }
    }
}

impl fmt::Display for PlannedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

tokio::task_local! {
    /// Whose turn it is.
    static SCENE: Arc<Scene>;
}

/// A handler at work on an object.
struct Scene {
    handler: Arc<str>,
    object: PlannedObject,
    /// A step was added after which nothing is known.
    ended: AtomicBool,
}

impl Plan {
    /// Adds a step about the object in hand.
    pub fn add(&self, step: Step) {
        let object = SCENE.try_with(|scene| scene.object.clone()).unwrap_or_default();
        self.add_for(object, step);
    }

    /// Adds a step about this object. What was added before by the same handler is not added twice: whoever is interrupted
    /// plans it again.
    pub fn add_for(&self, object: PlannedObject, step: Step) {
        let scene = SCENE.try_with(Arc::clone).ok();
        if let Some(scene) = scene.as_ref().filter(|_| step.last) {
            scene.ended.store(true, Ordering::Relaxed);
        }
        let step = PlannedStep { handler: scene.map(|scene| Arc::clone(&scene.handler)), step };
        let mut objects = self.objects();
        let steps = &mut objects.entry(object).or_default().steps;
        if !steps.contains(&step) {
            steps.push(step);
        }
    }

    /// Does `work` as `handler` at work on `object`. An earlier failure of both is forgotten: this is another attempt.
    pub async fn during<T>(
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
        SCENE.scope(Arc::new(Scene { handler, object, ended: AtomicBool::new(false) }), work).await
    }

    /// The handler at work failed with this error, unless the plan for its object ends here anyhow.
    pub fn failed(&self, error: &str) {
        let Ok(scene) = SCENE.try_with(Arc::clone) else { return };
        if !scene.ended.load(Ordering::Relaxed) {
            let mut objects = self.objects();
            let failures = &mut objects.entry(scene.object.clone()).or_default().failures;
            failures.insert(Arc::clone(&scene.handler), error.to_owned());
        }
    }

    /// Takes out all that was planned so far: the objects for which something would be done or has failed, by kind,
    /// namespace and name.
    pub fn take(&self) -> BTreeMap<PlannedObject, ObjectPlan> {
        std::mem::take(&mut self.objects())
    }

    fn objects(&self) -> MutexGuard<'_, BTreeMap<PlannedObject, ObjectPlan>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn step(what: &str) -> Step {
        Step::new("lamp", what)
    }

    /// The plan, a line a step or failure.
    fn lines(plan: &Plan) -> Vec<String> {
        let lines = plan.take().into_iter().flat_map(|(object, ObjectPlan { steps, failures })| {
            let of = object.to_string();
            let steps = steps.into_iter().map({
                let of = of.clone();
                move |planned| {
                    let handler = planned.handler.as_deref().unwrap_or("-").to_owned();
                    format!("{of}: {handler}: {}", planned.step.what)
                }
            });
            let failures =
                failures.into_iter().map(move |(handler, error)| format!("{of}: {handler}: {error}"));
            steps.chain(failures).collect::<Vec<_>>()
        });
        lines.collect()
    }

    #[tokio::test]
    async fn a_step_belongs_to_the_handler_and_the_object_in_hand_unless_it_names_another() {
        let plan = Plan::default();
        let work = |other: &'static str| {
            let plan = plan.clone();
            async move {
                plan.add(step("first"));
                tokio::task::yield_now().await;
                plan.add(step("second"));
                plan.add_for(pod(other), step("third"));
            }
        };
        let (web, db) = (work("a"), work("b"));
        tokio::join!(plan.during("vif".into(), pod("web"), web), plan.during("lb".into(), pod("db"), db));
        plan.add_for(pod("db"), step("beside"));
        let expected = [
            "Pod shop/a: vif: third",
            "Pod shop/b: lb: third",
            "Pod shop/db: lb: first",
            "Pod shop/db: lb: second",
            "Pod shop/db: -: beside",
            "Pod shop/web: vif: first",
            "Pod shop/web: vif: second",
        ];
        assert_eq!(lines(&plan), expected);
    }

    #[tokio::test]
    async fn what_is_planned_again_stands_there_once() {
        let plan = Plan::default();
        for _ in 0..2 {
            plan.during("vif".into(), pod("web"), async { plan.add(step("first")) }).await;
        }
        plan.during("lb".into(), pod("web"), async { plan.add(step("first")) }).await;
        assert_eq!(lines(&plan), ["Pod shop/web: vif: first", "Pod shop/web: lb: first"]);
    }

    #[tokio::test]
    async fn a_failure_stands_until_the_same_handler_succeeds_with_the_object() {
        let plan = Plan::default();
        for handler in ["lb", "vif"] {
            plan.during(handler.into(), pod("web"), async { plan.failed("refused") }).await;
        }
        plan.during("vif".into(), pod("web"), async {}).await;
        assert_eq!(lines(&plan), ["Pod shop/web: lb: refused"]);
        plan.during("lb".into(), pod("web"), async { plan.failed("refused") }).await;
        plan.during("lb".into(), pod("web"), async {}).await;
        assert!(plan.take().is_empty(), "an object without anything is none of the plan's");
    }

    #[tokio::test]
    async fn a_failure_after_the_last_step_is_none() {
        let plan = Plan::default();
        let work = async {
            plan.add(step("adopt").last());
            plan.failed("unknown");
        };
        plan.during("lb".into(), pod("web"), work).await;
        assert_eq!(lines(&plan), ["Pod shop/web: lb: adopt"]);
    }

    #[test]
    fn what_is_not_said_is_not_written() {
        let refused = Step { verdict: Some(Verdict::Refused("no".into())), ..step("first") };
        let expected = serde_json::json!({ "by": "lamp", "what": "first", "refused": "no" });
        assert_eq!(serde_json::to_value(refused).unwrap(), expected);
        let written = serde_json::to_value(step("first").with("colour", "red")).unwrap();
        let expected = serde_json::json!({ "by": "lamp", "what": "first", "with": [{ "name": "colour", "value": "red" }] });
        assert_eq!(written, expected);
    }
}
