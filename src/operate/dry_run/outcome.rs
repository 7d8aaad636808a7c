//! The result of a dry run: the plan, and everything that could not be planned. It can be shown as text for people and as JSON for
//! programs.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::plan::{ObjectPlan, PlannedObject, PlannedStep, StepDetail};

/// The number of characters after which the value of an argument of a driver call is truncated in the text.
const MAX_ARGUMENT: usize = 160;

/// The number of characters of the longest new value of a field that the text shows. A longer value, such as that of an annotation,
/// does not help a reader.
const MAX_VALUE: usize = 60;

/// The result of a dry run. `Display` writes text for people, `Serialize` JSON for programs.
#[derive(Debug, Serialize)]
pub struct DryRun {
    /// The plan of each object, sorted by kind, namespace and name.
    pub objects: Vec<ObjectPlan>,
    /// The parts that could not be read or planned, with the reasons. Failures with single objects are in `objects`.
    pub not_planned: Vec<String>,
    /// The counts of steps and failures.
    pub summary: Summary,
}

/// The counts of steps and failures in a plan.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The number of objects with a step or a failure.
    pub objects: usize,
    /// The number of planned steps by action, such as `request a VIF`.
    pub steps: BTreeMap<String, usize>,
    /// The number of failures, counted once for each handler and object.
    pub failures: usize,
    /// The number of writes that the server would reject.
    pub refused: usize,
    /// The number of writes that the server could not check in a dry run.
    pub unknown: usize,
}

impl DryRun {
    /// Makes the result from the plans of all objects, and counts their steps and failures.
    pub(super) fn new(objects: BTreeMap<PlannedObject, ObjectPlan>, not_planned: Vec<String>) -> Self {
        let plans = objects.into_iter().map(|(object, plan)| ObjectPlan { object, ..plan });
        let objects: Vec<_> = plans.collect();
        let mut summary = Summary { objects: objects.len(), ..Summary::default() };
        for planned in &objects {
            summary.failures += planned.failures.len();
            for step in &planned.steps {
                *summary.steps.entry(step.what.clone()).or_default() += 1;
                summary.refused += usize::from(step.refused.is_some());
                summary.unknown += usize::from(step.unknown.is_some());
            }
        }
        Self { objects, not_planned, summary }
    }

    /// Returns `true` if everything could be planned, no handler would fail, and no planned write would or might be rejected.
    pub fn is_complete(&self) -> bool {
        let Summary { failures, refused, unknown, .. } = self.summary;
        self.not_planned.is_empty() && failures + refused + unknown == 0
    }
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for planned in &self.objects {
            writeln!(f, "{}", planned.object)?;
            for step in &planned.steps {
                writeln!(f, "  {step}")?;
            }
            for (handler, error) in &planned.failures {
                writeln!(f, "  {handler}: would fail: {error}")?;
            }
            writeln!(f)?;
        }
        for reason in &self.not_planned {
            writeln!(f, "not planned: {reason}")?;
        }
        if !self.not_planned.is_empty() {
            writeln!(f)?;
        }
        writeln!(f, "{}", self.summary)
    }
}

impl fmt::Display for PlannedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handler, what, with, refused, unknown, last, .. } = self;
        if let Some(handler) = handler {
            write!(f, "{handler}: ")?;
        }
        write!(f, "would {what}")?;
        let mut separator = ": ";
        for detail in with {
            write!(f, "{separator}{detail}")?;
            separator = ", ";
        }
        if let Some(reason) = refused {
            write!(f, "; the server would refuse it: {reason}")?;
        }
        if let Some(reason) = unknown {
            write!(f, "; the server cannot tell whether it would refuse it: {reason}")?;
        }
        if *last {
            f.write_str("; what follows depends on its result and is not planned")?;
        }
        Ok(())
    }
}

impl fmt::Display for StepDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument { name, value } => match value.char_indices().nth(MAX_ARGUMENT) {
                Some((end, _)) => write!(f, "{name} {}...", &value[..end]),
                None => write!(f, "{name} {value}"),
            },
            Self::Change { name, from, to } => {
                let sign = match (from, to) {
                    (None, _) => '+',
                    (Some(_), None) => '-',
                    (Some(_), Some(_)) => '~',
                };
                write!(f, "{sign} {name}")?;
                match to {
                    // The name of a finalizer, whose value is `true`, says enough.
                    None | Some(Value::Bool(true)) => Ok(()),
                    Some(Value::String(text)) => show(f, text),
                    Some(other) => show(f, &other.to_string()),
                }
            }
        }
    }
}

/// Writes the new value of a field, unless it is empty or longer than [`MAX_VALUE`].
fn show(f: &mut fmt::Formatter<'_>, value: &str) -> fmt::Result {
    if value.is_empty() || value.chars().count() > MAX_VALUE { Ok(()) } else { write!(f, " {value}") }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, steps, failures, refused, unknown } = self;
        if steps.is_empty() {
            f.write_str("Nothing would be done.")?;
        } else {
            let plural = if *objects == 1 { "object" } else { "objects" };
            write!(f, "{} steps for {objects} {plural}: ", steps.values().sum::<usize>())?;
            let steps: Vec<_> = steps.iter().map(|(what, count)| format!("{count} x {what}")).collect();
            write!(f, "{}.", steps.join(", "))?;
        }
        for (count, what) in
            [(failures, "would fail"), (refused, "would be refused"), (unknown, "may be refused")]
        {
            if *count > 0 {
                write!(f, " {count} {what}.")?;
            }
        }
        f.write_str(" Nothing was written.")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dry_run(steps: Vec<PlannedStep>, failures: &[(&str, &str)], not_planned: &[&str]) -> DryRun {
        let object = PlannedObject {
            kind: "Pod".into(),
            namespace: Some("shop".into()),
            name: "web-1".into(),
            uid: "u1".into(),
        };
        let planned = ObjectPlan {
            steps: steps
                .into_iter()
                .map(|step| PlannedStep { handler: Some("vif".into()), ..step })
                .collect(),
            failures: failures.iter().map(|(handler, error)| ((*handler).into(), (*error).into())).collect(),
            ..ObjectPlan::default()
        };
        DryRun::new([(object, planned)].into(), not_planned.iter().map(|&reason| reason.to_owned()).collect())
    }

    fn step(by: &str, what: &str) -> PlannedStep {
        PlannedStep { by: by.into(), what: what.into(), ..PlannedStep::default() }
    }

    fn change(name: &str, from: Option<Value>, to: Option<Value>) -> StepDetail {
        StepDetail::Change { name: name.into(), from, to }
    }

    #[test]
    fn each_step_is_a_line_and_long_values_are_truncated() {
        let with = vec![
            change("annotation a", None, Some(json!("x".repeat(61)))),
            change("annotation b", Some(json!("1")), Some(json!("2"))),
            change("annotation c", Some(json!("1")), None),
            change("finalizer d/e", None, Some(json!(true))),
            change("status.phase", None, Some(json!(["F"]))),
        ];
        let argument =
            |name: &str, value: &str| StepDetail::Argument { name: name.into(), value: value.into() };
        let arguments = vec![argument("node", "n1"), argument("members", &"y".repeat(500))];
        let steps = vec![
            PlannedStep { with: arguments, ..step("vif_pool", "request a VIF") },
            PlannedStep { with, ..step("kubernetes", "write") },
        ];
        let expected = format!(
            "Pod shop/web-1\n  vif: would request a VIF: node n1, members {}...\n  \
             vif: would write: + annotation a, ~ annotation b 2, - annotation c, + finalizer d/e, + status.phase [\"F\"]\n\n\
             2 steps for 1 object: 1 x request a VIF, 1 x write. Nothing was written.\n",
            "y".repeat(160)
        );
        assert_eq!(dry_run(steps, &[], &[]).to_string(), expected);
    }

    #[test]
    fn refusals_and_failures_are_shown_with_their_step_and_counted() {
        let write = || step("kubernetes", "write");
        let steps = vec![
            PlannedStep { refused: Some("403 Forbidden".into()), ..write() },
            PlannedStep { unknown: Some("a webhook".into()), ..write() },
            PlannedStep { last: true, ..step("endpoints_lbaas", "adopt a load balancer") },
        ];
        let dry_run = dry_run(steps, &[("lb", "no subnet")], &["the API server does not answer"]);
        let expected = "Pod shop/web-1\n  vif: would write; the server would refuse it: 403 Forbidden\n  \
            vif: would write; the server cannot tell whether it would refuse it: a webhook\n  \
            vif: would adopt a load balancer; what follows depends on its result and is not planned\n  \
            lb: would fail: no subnet\n\n\
            not planned: the API server does not answer\n\n\
            3 steps for 1 object: 1 x adopt a load balancer, 2 x write. 1 would fail. 1 would be refused. \
            1 may be refused. Nothing was written.\n";
        assert_eq!(dry_run.to_string(), expected);
        assert!(!dry_run.is_complete());
    }

    #[test]
    fn a_plan_without_refusals_and_failures_is_complete() {
        let dry_run = dry_run(vec![step("kubernetes", "write")], &[], &[]);
        assert!(dry_run.is_complete());
        let machine = serde_json::to_value(&dry_run).unwrap();
        let expected = json!([{ "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u1",
            "steps": [{ "handler": "vif", "by": "kubernetes", "what": "write" }] }]);
        assert_eq!((&machine["objects"], &machine["summary"]["steps"]), (&expected, &json!({ "write": 1 })));
    }
}
