//! The requests to bases that wait for an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use staffetta_driver::tunnel::{ContainerOperationResponseData, NodeId, SendError, TunnelSender};
use staffetta_driver::{ContainerKey, DriverError, Reason, RequestRecord};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::debug;

/// The maximum number of modules of one base that are loaded or unloaded at the same time.
const CHANGES_PER_BASE: usize = 16;

/// A command of Arklet (the agent in a base) that this crate sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ArkletCommand {
    /// The query for the health of the base.
    Health,
    /// The query for the state of all modules of the base.
    QueryAllBiz,
    /// The command to load a module into the base.
    InstallBiz,
    /// The command to unload a module from the base.
    UninstallBiz,
    /// The command to activate a module that is loaded, in place of its active version.
    SwitchBiz,
}

impl ArkletCommand {
    /// Returns the name on the wire: the last part of the URL or topic of the command, and the value of `command` in answers over MQTT.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::QueryAllBiz => "queryAllBiz",
            Self::InstallBiz => "installBiz",
            Self::UninstallBiz => "uninstallBiz",
            Self::SwitchBiz => "switchBiz",
        }
    }

    /// Returns the command as an imperative, for errors.
    pub(crate) fn step(self) -> &'static str {
        match self {
            Self::Health => "ask a base for its health",
            Self::QueryAllBiz => "ask a base for its modules",
            Self::InstallBiz => "load a module",
            Self::UninstallBiz => "unload a module",
            Self::SwitchBiz => "activate a module",
        }
    }

    /// Returns `true` for a command that changes a module.
    pub(crate) fn is_change(self) -> bool {
        matches!(self, Self::InstallBiz | Self::UninstallBiz | Self::SwitchBiz)
    }
}

/// The requests in progress, except queries over MQTT. Requests carry no id on the wire, so an answer is matched to its request by base,
/// command, module name and version. To keep that unambiguous, a base has at most one query of each kind and one change of each module in
/// progress. Clones share the requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operations(Arc<Mutex<BTreeMap<RequestId, OpenRequest>>>);

/// The key of a request in progress: the base and the subject. In the sorted map, the requests to one base are adjacent.
type RequestId = (NodeId, RequestSubject);

/// The subject of a request to a base. At most one request with the same subject is in progress for a base.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RequestSubject {
    /// The state of the base, which a query of this kind asks for.
    State(ArkletCommand),
    /// A module, which is loaded or unloaded.
    Module(ContainerKey),
}

/// The entry of a request in progress, in [`Operations`]. The request ends when its entry is removed.
#[derive(Debug)]
struct OpenRequest {
    command: ArkletCommand,
    /// The entry of the request in the request log, which is completed when the request ends.
    record: Option<RequestRecord>,
    /// Cancels the token of the request when it ends.
    _ended: DropGuard,
}

/// The handle of a request in progress, for the task that sends it. The request ends when this is dropped, if it has not ended before.
#[derive(Debug)]
pub(crate) struct RequestInProgress {
    operations: Operations,
    id: RequestId,
    command: ArkletCommand,
    /// Cancelled when the request has ended.
    ended: CancellationToken,
}

impl Operations {
    /// Records the start of a request. `module` is the key of the module that it changes; `None` for a query. Fails with
    /// [`Reason::Conflict`] if the same request is in progress, and with [`Reason::Queued`] if [`CHANGES_PER_BASE`] modules of the base
    /// are being changed. Another change of the module ends: the caller has seen its effect, or that it has none.
    pub(crate) fn begin(
        &self,
        base: &NodeId,
        command: ArkletCommand,
        module: Option<&ContainerKey>,
    ) -> Result<RequestInProgress, DriverError> {
        let subject =
            module.map_or(RequestSubject::State(command), |key| RequestSubject::Module(key.clone()));
        let id = (base.clone(), subject);
        let mut requests = self.0.lock();
        if requests.get(&id).is_some_and(|earlier| earlier.command == command) {
            let what = module.map_or_else(
                || "the same query".to_owned(),
                |module| format!("{} of {module}", command.name()),
            );
            let error = DriverError::new(Reason::Conflict, command.step());
            return Err(error.detail(format!("{what} is under way")));
        }
        requests.remove(&id);
        if module.is_some() && changes_of(base, &requests).count() >= CHANGES_PER_BASE {
            let error = DriverError::new(Reason::Queued, command.step());
            return Err(error.detail(format!("{CHANGES_PER_BASE} modules of the base are being changed")));
        }
        let ended = CancellationToken::new();
        let request = OpenRequest { command, record: None, _ended: ended.clone().drop_guard() };
        requests.insert(id.clone(), request);
        Ok(RequestInProgress { operations: self.clone(), id, command, ended })
    }

    /// Records the answer to a request that changes a module, and ends the request. Returns `false` if no such request is in progress,
    /// because its answer came too late or twice.
    pub(crate) fn answered(&self, base: &NodeId, command: ArkletCommand, module: &ContainerKey) -> bool {
        let id = (base.clone(), RequestSubject::Module(module.clone()));
        let mut requests = self.0.lock();
        let Some(request) = requests.get_mut(&id).filter(|request| request.command == command) else {
            return false;
        };
        if let Some(record) = &mut request.record {
            record.set_answered();
        }
        requests.remove(&id).is_some()
    }

    /// Ends the request in progress that changes a module, without an answer.
    pub(crate) fn forget(&self, base: &NodeId, module: &ContainerKey) {
        self.0.lock().remove(&(base.clone(), RequestSubject::Module(module.clone())));
    }

    /// Ends all requests in progress that change modules of a base, without an answer.
    pub(crate) fn stop(&self, base: &NodeId) {
        let mut requests = self.0.lock();
        let changes: Vec<_> = changes_of(base, &requests).cloned().collect();
        for id in changes {
            requests.remove(&id);
        }
    }
}

impl RequestInProgress {
    /// Stores the request-log entry of the request, which is completed when the request ends.
    pub(crate) fn record(&self, record: RequestRecord) {
        if let Some(request) = self.operations.0.lock().get_mut(&self.id) {
            request.record = Some(record);
        }
    }

    /// Waits until the request has ended by an answer, or because its node stopped.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Ends the request, and passes `answer` on to the virtual-node handler, unless the request has ended before. The handler may repeat
    /// the request as soon as it gets the answer.
    pub(crate) fn finish(self, sender: &TunnelSender, answer: ContainerOperationResponseData) {
        if self.end()
            && let Err(error) = report(sender, &self.id.0, self.command, answer)
        {
            debug!(base = %self.id.0, %error, "an answer is dropped; the next query will show its effect");
        }
    }

    /// Ends the request. Returns `false` if it has ended before.
    fn end(&self) -> bool {
        let mut requests = self.operations.0.lock();
        // One that has ended may have a successor.
        !self.ended.is_cancelled() && requests.remove(&self.id).is_some()
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the keys of the requests in progress that load or unload modules of `base`.
fn changes_of<'r>(
    base: &NodeId,
    requests: &'r BTreeMap<RequestId, OpenRequest>,
) -> impl Iterator<Item = &'r RequestId> {
    let first = (base.clone(), RequestSubject::Module(ContainerKey::from("")));
    let of_base = base.clone();
    requests.range(first..).map(|(id, _)| id).take_while(move |(of, _)| *of == of_base)
}

/// Passes the answer to a command that changes a module on to the virtual-node handler. Fails if its queue does not accept the
/// answer.
pub(crate) fn report(
    sender: &TunnelSender,
    base: &NodeId,
    command: ArkletCommand,
    answer: ContainerOperationResponseData,
) -> Result<(), SendError> {
    match command {
        ArkletCommand::InstallBiz | ArkletCommand::SwitchBiz => sender.start_container_response(base, answer),
        _ => sender.shutdown_container_response(base, answer),
    }
}

#[cfg(test)]
mod tests {
    use super::ArkletCommand::{Health, InstallBiz, QueryAllBiz, UninstallBiz};
    use super::*;

    fn world() -> (Operations, NodeId, NodeId, ContainerKey) {
        (Operations::default(), "b".parse().unwrap(), "c".parse().unwrap(), "cart:1".into())
    }

    #[test]
    fn a_repetition_of_what_is_under_way_is_a_conflict_until_it_ends() {
        let (operations, base, other, cart) = world();
        let begin =
            |base: &NodeId, command, module: Option<&ContainerKey>| operations.begin(base, command, module);
        let mut begun = Vec::new();
        for (command, module) in [(Health, None), (InstallBiz, Some(&cart))] {
            begun.push(begin(&base, command, module).unwrap());
            assert_eq!(begin(&base, command, module).unwrap_err().reason(), Reason::Conflict);
        }
        let load = begin(&base, InstallBiz, Some(&cart)).unwrap_err();
        assert!(load.to_string().contains("installBiz of cart:1 is under way"), "{load}");
        let _query = begin(&base, QueryAllBiz, None).unwrap();
        let _second = begin(&base, InstallBiz, Some(&"cart:2".into())).unwrap();
        let _other = begin(&other, InstallBiz, Some(&cart)).unwrap();
        drop(begun);
        let _health = begin(&base, Health, None).unwrap();
        let _unload = begin(&base, UninstallBiz, Some(&cart)).unwrap();
    }

    #[test]
    fn another_command_for_a_module_ends_the_wait_for_the_answer_to_the_one_before() {
        let (operations, base, _, cart) = world();
        let load = operations.begin(&base, InstallBiz, Some(&cart)).unwrap();
        let unload = operations.begin(&base, UninstallBiz, Some(&cart)).unwrap();
        assert!(load.ended.is_cancelled() && !operations.answered(&base, InstallBiz, &cart), "it is late");
        drop(load);
        assert!(!unload.ended.is_cancelled() && operations.answered(&base, UninstallBiz, &cart));
        let lost = operations.begin(&base, InstallBiz, Some(&cart)).unwrap();
        operations.forget(&base, &cart);
        let again = operations.begin(&base, InstallBiz, Some(&cart)).unwrap();
        assert!(lost.ended.is_cancelled() && again.end());
    }

    #[test]
    fn an_answer_to_another_request_a_late_and_a_second_one_do_not_count() {
        let (operations, base, other, cart) = world();
        let load = operations.begin(&base, InstallBiz, Some(&cart)).unwrap();
        assert!(!operations.answered(&base, UninstallBiz, &cart));
        assert!(!operations.answered(&other, InstallBiz, &cart));
        assert!(operations.answered(&base, InstallBiz, &cart));
        assert!(!operations.answered(&base, InstallBiz, &cart) && operations.0.lock().is_empty());
        let again = operations.begin(&base, InstallBiz, Some(&cart)).unwrap();
        assert!(!load.end(), "it was answered");
        drop(load);
        assert!(again.end() && !again.end(), "its successor is not ended by it");
    }

    #[test]
    fn a_base_that_stops_has_no_change_under_way_and_others_do() {
        let (operations, base, other, cart) = world();
        let ended = operations.begin(&base, InstallBiz, Some(&cart)).unwrap();
        let going_on = operations.begin(&other, InstallBiz, Some(&cart)).unwrap();
        let query = operations.begin(&base, Health, None).unwrap();
        operations.stop(&base);
        assert_eq!((ended.ended.is_cancelled(), going_on.ended.is_cancelled()), (true, false));
        assert!(!operations.answered(&base, InstallBiz, &cart), "its answer does not count");
        assert!(query.end() && operations.answered(&other, InstallBiz, &cart));
        assert!(going_on.ended.is_cancelled() && operations.0.lock().is_empty());
    }

    #[test]
    fn one_base_has_a_bounded_number_of_changes_and_others_are_not_affected() {
        let (operations, base, other, _) = world();
        let change = |number: usize| operations.begin(&base, InstallBiz, Some(&number.to_string().into()));
        let begun: Vec<_> = (0..CHANGES_PER_BASE).map(|number| change(number).unwrap()).collect();
        assert_eq!(change(begun.len()).unwrap_err().reason(), Reason::Queued);
        operations.begin(&other, InstallBiz, Some(&"more".into())).unwrap();
    }
}
