//! The answer of `/debug/state`: what `staffetta status` reads, and other programs may.
//!
//! Times are RFC 3339 in UTC; beside each stands how long ago or ahead it is, in seconds.

use serde::{Deserialize, Serialize};

/// How the program is, and what it has to do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Document {
    pub(crate) version: String,
    /// The name of this process among its replicas.
    pub(crate) identity: String,
    pub(crate) leadership: Leadership,
    /// When it started.
    pub(crate) started: String,
    pub(crate) uptime_seconds: f64,
    pub(crate) ready: bool,
    /// Why it is not ready.
    pub(crate) waits: Vec<Waits>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) handlers: Vec<Handler>,
    /// The objects that are not handled yet: those in trouble first, and the oldest of each first.
    pub(crate) objects: Vec<Object>,
    /// How many more fit what was asked for.
    pub(crate) omitted: usize,
    /// The objects that cannot be decoded, which no handler gets to see; as many of them as of the others at most. Each watch says
    /// how many there are.
    pub(crate) undecodable: Vec<Undecodable>,
    /// Whether a watch knows an object of the name that was asked for. Older programs do not say.
    #[serde(default)]
    pub(crate) known: Option<bool>,
}

/// What the election of a leader says of this process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Leadership {
    /// The name of the election.
    pub(crate) name: String,
    /// Whether this process is the one that works.
    pub(crate) leads: bool,
    /// What it is: `leader`, `standby of ...`, `unopposed` where there is no election.
    pub(crate) role: String,
    /// How often it had to read its lease before it could renew it.
    pub(crate) slow_renewals: u64,
    /// How often it led and lost the lease. Older programs do not say.
    #[serde(default)]
    pub(crate) losses: u64,
}

#[cfg(test)]
impl Leadership {
    /// There is no election: this process works.
    pub(crate) fn unopposed() -> Self {
        Self { name: "staffetta".into(), leads: true, role: "unopposed".into(), slow_renewals: 0, losses: 0 }
    }
}

/// Something that must be well before the program is ready, and is not.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Waits {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// The watch of one kind.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Watch {
    pub(crate) kind: String,
    /// Whether all objects were delivered once.
    pub(crate) listed: bool,
    /// How many objects exist.
    pub(crate) objects: usize,
    /// How many of them cannot be decoded.
    pub(crate) undecodable: usize,
    pub(crate) added: u64,
    pub(crate) modified: u64,
    pub(crate) deleted: u64,
    /// How many lists were read to their end.
    pub(crate) lists: u64,
    pub(crate) errors: u64,
    /// When the API server last said anything in it, and how long ago that is.
    pub(crate) said: Option<String>,
    pub(crate) silent_seconds: Option<f64>,
    /// The last error, until the watch goes on.
    pub(crate) error: Option<String>,
}

/// One enabled handler.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Handler {
    pub(crate) name: String,
    /// Whether it gets events already.
    pub(crate) open: bool,
    /// What it waits for until then.
    pub(crate) waits: Vec<String>,
    /// How many events do or wait for what.
    pub(crate) held: usize,
    pub(crate) queued: usize,
    pub(crate) running: usize,
    pub(crate) retrying: usize,
    pub(crate) failed: usize,
}

/// An object that a handler has not handled yet.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Object {
    pub(crate) handler: String,
    pub(crate) kind: String,
    /// None for a cluster-scoped object.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// What happened to it: `added`, `modified`, `deleted`.
    pub(crate) change: String,
    /// What it does or waits for: `held`, `queued`, `running`, `retrying`, `failed`.
    pub(crate) phase: String,
    /// Since when.
    pub(crate) since: String,
    pub(crate) since_seconds: f64,
    /// When it is tried again.
    pub(crate) next: Option<String>,
    pub(crate) next_seconds: Option<f64>,
    /// What went wrong since it was last handled with success.
    pub(crate) trouble: Option<Trouble>,
}

/// What went wrong with an object.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Trouble {
    /// The last error with its causes.
    pub(crate) error: String,
    /// Its reason in one word.
    pub(crate) reason: String,
    /// How many attempts failed.
    pub(crate) attempts: u32,
    /// When the first of them failed.
    pub(crate) since: String,
    pub(crate) since_seconds: f64,
}

/// An object that is none of its kind as this program knows it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Undecodable {
    pub(crate) kind: String,
    /// None for a cluster-scoped object.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Why it cannot be decoded.
    pub(crate) error: String,
}
