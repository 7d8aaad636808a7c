//! Planned calls as lines of text.

use std::sync::{Arc, Mutex};

use super::{PlannedCall, Planner};
use crate::owner::Owner;

/// The planned calls, a line each.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(super) fn planner(&self) -> Planner {
        let notes = self.clone();
        Arc::new(move |call| notes.0.lock().unwrap().push(line(&call)))
    }

    /// The calls since the last look.
    pub(super) fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn line(call: &PlannedCall) -> String {
    let owner = call.owner.as_ref().map(|owner| format!("{}/{}: ", owner.namespace, owner.name));
    let with: Vec<_> = call.with.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let last = if call.last { " ..." } else { "" };
    format!("{}{}: {}{last}", owner.unwrap_or_default(), call.what, with.join("; "))
}

pub(super) fn owner(name: &str) -> Owner {
    Owner { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
}
