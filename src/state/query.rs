//! Which objects one asks for.

use serde::{Deserialize, Serialize};
use staffetta_handler::{Phase, Standing, Subject, Tally};

/// How many objects are told of when nothing else is asked for.
pub(crate) const DEFAULT_LIMIT: usize = 500;

/// How many objects are told of at most.
pub(crate) const MAX_LIMIT: usize = 10_000;

/// Which objects one asks for: those that fit all that is said.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Query {
    /// The namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The kind in any case: `pod`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) handler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<PhaseName>,
    /// How many objects at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
}

/// A phase by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PhaseName {
    /// The handler gets no events yet.
    Held,
    /// It waits for its turn.
    Queued,
    /// The handler is at work.
    Running,
    /// It failed for a passing reason and waits for the next attempt.
    Retrying,
    /// It failed for good and waits for another chance.
    Failed,
}

impl PhaseName {
    /// All of them, in the order in which an object goes through them.
    pub(crate) const ALL: [Self; 5] = [Self::Held, Self::Queued, Self::Running, Self::Retrying, Self::Failed];

    /// The name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Failed => "failed",
        }
    }
}

impl PhaseName {
    /// How many events are in this phase.
    pub(crate) fn count(self, tally: &Tally) -> usize {
        match self {
            Self::Held => tally.held,
            Self::Queued => tally.queued,
            Self::Running => tally.running,
            Self::Retrying => tally.retrying,
            Self::Failed => tally.failed,
        }
    }
}

impl From<Phase> for PhaseName {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Held => Self::Held,
            Phase::Queued => Self::Queued,
            Phase::Running => Self::Running,
            Phase::Retrying { .. } => Self::Retrying,
            Phase::Failed { .. } => Self::Failed,
        }
    }
}

impl Query {
    /// How many objects at most.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_LIMIT)
    }

    /// Whether every object of a handler fits.
    pub(super) fn takes_all(&self) -> bool {
        self.namespace.is_none() && self.name.is_none() && self.kind.is_none() && self.phase.is_none()
    }

    /// Whether an object fits.
    pub(super) fn fits(&self, standing: &Standing) -> bool {
        let subject = Subject {
            kind: standing.kind.clone(),
            namespace: standing.namespace.as_deref(),
            name: &standing.name,
            uid: &standing.uid,
        };
        self.names(&subject) && self.phase.is_none_or(|wanted| wanted == standing.phase.into())
    }

    /// Whether an object is called as one asks.
    pub(super) fn names(&self, subject: &Subject<'_>) -> bool {
        self.namespace.as_deref().is_none_or(|wanted| wanted == subject.namespace.unwrap_or_default())
            && self.name.as_deref().is_none_or(|wanted| wanted == subject.name)
            && self.kind.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(&subject.kind))
    }
}
