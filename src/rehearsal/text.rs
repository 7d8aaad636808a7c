//! A dry run in words.

use std::fmt;

use serde_json::Value;
use staffetta_handler::{Particular, PlannedStep, Verdict};

use super::dry_run::{DryRun, Summary};

/// How many characters of a particular are shown.
const SHOWN: usize = 160;

/// Values that change are shown up to this length; the text of an annotation says nothing to a person.
const SHORT: usize = 60;

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (object, planned) in &self.objects {
            writeln!(f, "{object}")?;
            for step in &planned.steps {
                writeln!(f, "  {}", Line(step))?;
            }
            for (handler, error) in &planned.failures {
                writeln!(f, "  {handler}: would fail: {error}")?;
            }
            writeln!(f)?;
        }
        for trouble in &self.troubles {
            writeln!(f, "not planned: {trouble}")?;
        }
        if !self.troubles.is_empty() {
            writeln!(f)?;
        }
        writeln!(f, "{}", self.summary)
    }
}

/// One step in one line.
struct Line<'a>(&'a PlannedStep);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlannedStep { handler, step } = self.0;
        if let Some(handler) = handler {
            write!(f, "{handler}: ")?;
        }
        write!(f, "would {}", step.what)?;
        let mut separator = ": ";
        for particular in &step.with {
            write!(f, "{separator}{}", one(particular))?;
            separator = ", ";
        }
        match &step.verdict {
            Some(Verdict::Refused(why)) => write!(f, "; it would be refused: {why}")?,
            Some(Verdict::Unknown(why)) => write!(f, "; whether it would be refused is not known: {why}")?,
            None => {}
        }
        if step.last {
            f.write_str("; what follows depends on what comes of it")?;
        }
        Ok(())
    }
}

fn one(particular: &Particular) -> String {
    match particular {
        Particular::Is { name, value } => format!("{name} {}", cut(value)),
        Particular::Changes { name, from, to } => {
            let sign = match (from, to) {
                (None, _) => '+',
                (Some(_), None) => '-',
                (Some(_), Some(_)) => '~',
            };
            match to.as_ref().map(shown).filter(|text| !text.is_empty() && text.chars().count() <= SHORT) {
                Some(value) => format!("{sign} {name} {value}"),
                None => format!("{sign} {name}"),
            }
        }
    }
}

/// That a finalizer is there says its name already.
fn shown(value: &Value) -> String {
    match value {
        Value::Bool(true) => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
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
    use staffetta_handler::{ObjectPlan, PlannedObject, Step};

    use super::*;

    fn dry_run(steps: Vec<Step>, failures: &[(&str, &str)], troubles: &[&str]) -> DryRun {
        let object = PlannedObject {
            kind: "Pod".into(),
            namespace: Some("shop".into()),
            name: "web-1".into(),
            uid: "u1".into(),
        };
        let planned = ObjectPlan {
            steps: steps.into_iter().map(|step| PlannedStep { handler: Some("vif".into()), step }).collect(),
            failures: failures.iter().map(|(handler, error)| ((*handler).into(), (*error).into())).collect(),
        };
        let objects =
            [(object, planned)].into_iter().filter(|(_, planned)| *planned != ObjectPlan::default());
        DryRun::new(objects.collect(), troubles.iter().map(|trouble| (*trouble).to_owned()).collect())
    }

    fn change(name: &str, from: Option<Value>, to: Option<Value>) -> Particular {
        Particular::Changes { name: name.into(), from, to }
    }

    #[test]
    fn each_step_is_a_line_and_what_is_long_is_cut() {
        let with = vec![
            change("annotation a", None, Some(json!("x".repeat(61)))),
            change("annotation b", Some(json!("1")), Some(json!("2"))),
            change("annotation c", Some(json!("1")), None),
            change("finalizer d/e", None, Some(json!(true))),
            change("status.phase", None, Some(json!(["F"]))),
        ];
        let steps = vec![
            Step::new("vif_pool", "request a VIF").with("node", "n1").with("members", "y".repeat(500)),
            Step { with, ..Step::new("kubernetes", "write") },
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
    fn what_would_fail_be_refused_or_is_not_known_stands_beside_its_step_and_in_the_figures() {
        let write = |verdict| Step { verdict: Some(verdict), ..Step::new("kubernetes", "write") };
        let steps = vec![
            write(Verdict::Refused("403 Forbidden".into())),
            write(Verdict::Unknown("a webhook".into())),
            Step::new("endpoints_lbaas", "adopt a load balancer").last(),
        ];
        let dry_run = dry_run(steps, &[("lb", "no subnet")], &["the API server does not answer"]);
        let expected = "Pod shop/web-1\n  vif: would write; it would be refused: 403 Forbidden\n  \
            vif: would write; whether it would be refused is not known: a webhook\n  \
            vif: would adopt a load balancer; what follows depends on what comes of it\n  \
            lb: would fail: no subnet\n\n\
            not planned: the API server does not answer\n\n\
            3 steps for 1 object: 1 x adopt a load balancer, 2 x write. 1 would fail. 1 would be refused. \
            1 may be refused. Nothing was written.\n";
        assert_eq!(dry_run.to_string(), expected);
        assert!(!dry_run.is_complete());
    }

    #[test]
    fn a_plan_in_which_nothing_is_refused_or_fails_is_complete() {
        let dry_run = dry_run(vec![Step::new("kubernetes", "write")], &[], &[]);
        assert!(dry_run.is_complete());
        let machine = serde_json::to_value(&dry_run).unwrap();
        let expected = json!([{ "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u1",
            "steps": [{ "handler": "vif", "by": "kubernetes", "what": "write" }] }]);
        assert_eq!((&machine["objects"], &machine["summary"]["steps"]), (&expected, &json!({ "write": 1 })));
    }
}
