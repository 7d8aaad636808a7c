//! The query of the state endpoint.

use serde::{Deserialize, Serialize};
use staffetta_handler::{Message, ObjectRef, Phase, QueueEntry, Resolved};

/// The maximum number of objects in a response if the query sets no limit.
const DEFAULT_LIMIT: usize = 500;

/// The highest limit of the number of objects in a response that a query may set.
pub(crate) const MAX_LIMIT: usize = 10_000;

/// The query of the URL `/debug/state`, which selects the objects that match all fields. A field that is `None` matches every object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Query {
    /// The name of the objects to select; `None` selects any name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The namespace of the objects to select; empty for cluster-scoped objects, `None` for all objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    /// The kind of the objects to select, such as `pod` (case-insensitive); `None` selects any kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    /// The name of the handler in whose queues the objects are; `None` selects those of all handlers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) handler: Option<String>,
    /// The phase of the objects in the queues of their handlers; `None` selects any phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase: Option<PhaseName>,
    /// The maximum number of objects in the response; `None` stands for [`DEFAULT_LIMIT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<usize>,
    /// `true` to read the object with this kind and name, and to ask each handler if it wants the object.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) explain: bool,
}

/// The phases of a queued object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PhaseName {
    /// The handler does not receive events yet.
    Held,
    /// The object waits in a queue.
    Queued,
    /// The handler processes the object.
    Running,
    /// The object failed with a transient error and waits for a retry.
    Retrying,
    /// The retries of the object ended without success; it is handled again later.
    Failed,
}

impl PhaseName {
    /// All phases, in the order in which an event passes through them.
    pub(crate) const ALL: [Self; 5] = [Self::Held, Self::Queued, Self::Running, Self::Retrying, Self::Failed];

    /// Returns the name of the phase in lower case.
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
    /// Returns the maximum number of objects in the response: that of the query, otherwise [`DEFAULT_LIMIT`].
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_LIMIT)
    }

    /// Returns `true` if the query can select objects of `handler`.
    pub(super) fn selects_handler(&self, handler: &str) -> bool {
        self.handler.as_deref().is_none_or(|selected| selected == handler)
    }

    /// Returns `true` if the query selects every object of a selected handler.
    pub(crate) fn selects_all_objects(&self) -> bool {
        self.namespace.is_none() && self.name.is_none() && self.kind.is_none() && self.phase.is_none()
    }

    /// Returns `true` if the query selects this queue entry of a selected handler.
    pub(super) fn selects(&self, entry: &QueueEntry<Resolved>) -> bool {
        self.selects_object(&entry.event.object_ref())
            && self.phase.is_none_or(|selected| selected == entry.phase.into())
    }

    /// Returns `true` if the query selects an object with this kind, namespace and name.
    pub(super) fn selects_object(&self, object_ref: &ObjectRef<'_>) -> bool {
        self.namespace.as_deref().is_none_or(|selected| selected == object_ref.namespace.unwrap_or_default())
            && self.name.as_deref().is_none_or(|selected| selected == object_ref.name)
            && self.kind.as_deref().is_none_or(|selected| selected.eq_ignore_ascii_case(&object_ref.kind))
    }
}
