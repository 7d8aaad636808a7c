//! The behaviour of a base, and its faults.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::command::BaseCommand;

/// The behaviour of a base. By default, it has no fault.
#[allow(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// `true` if the base can be reached. Otherwise, it closes its connections, opens none, and reports nothing.
    pub reachable: bool,
    /// `true` if the base sends heartbeats.
    pub reports: bool,
    /// `true` if the base sends its heartbeats without a pause between them.
    pub flood: bool,
    /// The state in its heartbeats: ACTIVATED, or DEACTIVATED when the base ends.
    pub state: String,
    /// `true` if the state in its heartbeats alternates between ACTIVATED and DEACTIVATED.
    pub flaps: bool,
    /// The id in its reports and answers; `None` for its own. Its address and its topics stay its own.
    pub claims: Option<String>,
    /// The delay before the base executes a command.
    pub delay: Duration,
    /// The faults of its answers, by command.
    pub answers: BTreeMap<BaseCommand, AnswerFault>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            reachable: true,
            reports: true,
            flood: false,
            state: "ACTIVATED".to_owned(),
            flaps: false,
            claims: None,
            delay: Duration::ZERO,
            answers: BTreeMap::new(),
        }
    }
}

/// A fault of the answers to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// The command is received, and executed and answered when this fault ends.
    Hold,
    /// The command is executed, and its answer gets lost. Over HTTP, the connection is closed.
    Lose,
    /// The command is executed, and its answer is sent after this time.
    Late(Duration),
    /// The command is executed, and its answer is cut off in the middle.
    Malformed,
    /// The command is executed, and its answer has more than 2 MiB.
    Oversized,
    /// The command is executed, and answered twice. Over HTTP, where an answer belongs to its request, this is no fault.
    Duplicate,
    /// The command is executed, and its answer is sent after the next answer of the base. Over HTTP, this is no fault.
    Reorder,
    /// The command is not executed, and this is the answer. Over MQTT, it is published as it is, and `status` means nothing.
    Fixed {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: Vec<u8>,
    },
}

impl Behaviour {
    /// Makes the base receive all commands and execute none, until [`answer_all`](Self::answer_all).
    pub fn hold_all(&mut self) {
        self.answers = BaseCommand::ALL.map(|command| (command, AnswerFault::Hold)).into();
    }

    /// Ends the faults of all answers.
    pub fn answer_all(&mut self) {
        self.answers.clear();
    }

    /// Returns the state in heartbeat number `beat`.
    pub(crate) fn state_at(&self, beat: u64) -> &str {
        if self.flaps && beat % 2 == 1 { "DEACTIVATED" } else { &self.state }
    }
}
