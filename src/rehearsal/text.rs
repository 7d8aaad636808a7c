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
            [(failures, "would fail"), (refused, "would be refused"), (unknown, "are not known to be taken")]
        {
            if *count > 0 {
                write!(f, " {count} {what}.")?;
            }
        }
        f.write_str(" Nothing was written.")
    }
}
