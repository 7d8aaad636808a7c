//! The requests to bases that wait for an answer.

use std::collections::HashMap;

use staffetta_driver::tunnel::{ContainerOperationResponseData, NodeId, SendError, TunnelSender};
use staffetta_driver::{ContainerKey, DriverError, Reason, RequestRecord};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The maximum number of modules of one base that are loaded or unloaded at the same time.
const CHANGES_PER_BASE: usize = 16;

/// A command of Arklet (the agent in a base) that this crate sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ArkletCommand {
    /// The base reports its health.
    Health,
    /// The base reports all its modules.
    QueryAllBiz,
    /// The base loads a module.
    InstallBiz,
    /// The base unloads a module.
    UninstallBiz,
}

impl ArkletCommand {
    /// Returns the name on the wire: the last part of a URL or topic, and the value of `command`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::QueryAllBiz => "queryAllBiz",
            Self::InstallBiz => "installBiz",
            Self::UninstallBiz => "uninstallBiz",
        }
    }

    /// Returns the command as an imperative, for errors.
    pub(crate) fn step(self) -> &'static str {
        match self {
            Self::Health => "ask a base for its health",
            Self::QueryAllBiz => "ask a base for its modules",
            Self::InstallBiz => "load a module",
            Self::UninstallBiz => "unload a module",
        }
    }
}

/// The requests in progress, except queries over MQTT. Requests carry no id on the wire, so an answer is matched to its request by base,
/// command, module name and version. To keep that unambiguous, a base has at most one query of each kind and one change of each module in
/// progress.
#[derive(Debug, Default)]
pub(crate) struct Operations(HashMap<(NodeId, RequestSubject), Request>);

/// The subject of a request to a base, of which one request is in progress at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum RequestSubject {
    /// The state of the base, which a query of this kind asks for.
    State(ArkletCommand),
    /// A module, which is loaded or unloaded.
    Module(ContainerKey),
}

/// A request in progress.
#[derive(Debug)]
struct Request {
    command: ArkletCommand,
    /// The time at which the request counts as unanswered; `None` if the sender limits the time itself.
    deadline: Option<Instant>,
    /// The reason why the broker did not confirm the request; `None` if it did, or if that is not known yet.
    unconfirmed: Option<Unconfirmed>,
    /// The entry of the request in the request log, which is completed when the request ends.
    record: Option<RequestRecord>,
    /// Cancels the token of the request when it ends.
    _ended: DropGuard,
}

/// A request that changes a module and gets no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) base: NodeId,
    pub(crate) command: ArkletCommand,
    pub(crate) module: ContainerKey,
    /// The reason why the broker did not confirm the request; `None` if its deadline has passed.
    pub(crate) unconfirmed: Option<Unconfirmed>,
}

/// The reason why a broker has not confirmed a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unconfirmed {
    /// The broker refused the message, for this reason.
    Refused(String),
    /// The connection ended before the broker confirmed the message. The broker may have delivered it.
    Disconnected,
}

impl RequestSubject {
    /// Returns the subject of a request. `module` is the key of the module that it changes; `None` for a query.
    fn of(command: ArkletCommand, module: Option<&ContainerKey>) -> Self {
        module.map_or(Self::State(command), |module| Self::Module(module.clone()))
    }
}

impl Operations {
    /// Records the start of a request. `module` is the key of the module that it changes; `None` for a query. After `deadline`, a change
    /// counts as [unanswered](Self::unanswered). Returns a token that is cancelled when the request ends. Fails with [`Reason::Conflict`] if
    /// the same query or any change of the module is in progress, and with [`Reason::Queued`] if [`CHANGES_PER_BASE`] modules of the base
    /// are being changed.
    pub(crate) fn begin(
        &mut self,
        base: &NodeId,
        command: ArkletCommand,
        module: Option<&ContainerKey>,
        deadline: Option<Instant>,
    ) -> Result<CancellationToken, DriverError> {
        let id = (base.clone(), RequestSubject::of(command, module));
        if let Some(earlier) = self.0.get(&id) {
            let what = module.map_or_else(
                || "the same query".to_owned(),
                |module| format!("{} of {module}", earlier.command.name()),
            );
            let error = DriverError::new(Reason::Conflict, command.step());
            return Err(error.detail(format!("{what} is under way")));
        }
        if module.is_some() && self.changes(base).count() >= CHANGES_PER_BASE {
            let error = DriverError::new(Reason::Queued, command.step());
            return Err(error.detail(format!("{CHANGES_PER_BASE} modules of the base are being changed")));
        }
        let ended = CancellationToken::new();
        let _ended = ended.clone().drop_guard();
        self.0.insert(id, Request { command, deadline, unconfirmed: None, record: None, _ended });
        Ok(ended)
    }

    /// Stores the request-log entry of a request in progress that changes a module. The entry is completed when the request ends.
    pub(crate) fn record(
        &mut self,
        base: &NodeId,
        command: ArkletCommand,
        module: &ContainerKey,
        record: RequestRecord,
    ) {
        if let Some(request) = self.request(base, command, Some(module)) {
            request.record = Some(record);
        }
    }

    /// Records the answer to a request that changes a module, and ends the request. Returns `false` if no such request is in progress, as
    /// [`end`](Self::end) does.
    pub(crate) fn answered(&mut self, base: &NodeId, command: ArkletCommand, module: &ContainerKey) -> bool {
        let request = self.request(base, command, Some(module));
        if let Some(record) = request.and_then(|request| request.record.as_mut()) {
            record.set_answered();
        }
        self.end(base, command, Some(module))
    }

    /// Ends a request. Returns `false` if it is not in progress, because its answer came too late or twice.
    pub(crate) fn end(
        &mut self,
        base: &NodeId,
        command: ArkletCommand,
        module: Option<&ContainerKey>,
    ) -> bool {
        self.request(base, command, module).is_some()
            && self.0.remove(&(base.clone(), RequestSubject::of(command, module))).is_some()
    }

    /// Ends all changes of modules of a base, without an answer.
    pub(crate) fn stop(&mut self, base: &NodeId) {
        self.0.retain(|(of, subject), _| of != base || matches!(subject, RequestSubject::State(_)));
    }

    /// Records that the broker has not confirmed a request. It is then [unanswered](Self::unanswered).
    pub(crate) fn unconfirmed(
        &mut self,
        base: &NodeId,
        command: ArkletCommand,
        module: &ContainerKey,
        reason: Unconfirmed,
    ) {
        if let Some(request) = self.request(base, command, Some(module)) {
            request.unconfirmed = Some(reason);
        }
    }

    /// Ends and returns all changes of modules that the broker has not confirmed or whose deadline is over.
    pub(crate) fn unanswered(&mut self, now: Instant) -> Vec<Unanswered> {
        let ended = self.0.extract_if(|_, request| {
            request.unconfirmed.is_some() || request.deadline.is_some_and(|deadline| deadline <= now)
        });
        let unanswered = ended.filter_map(|((base, subject), Request { command, unconfirmed, .. })| {
            let RequestSubject::Module(module) = subject else { return None };
            Some(Unanswered { base, command, module, unconfirmed })
        });
        unanswered.collect()
    }

    /// Returns the request with this command and subject.
    fn request(
        &mut self,
        base: &NodeId,
        command: ArkletCommand,
        module: Option<&ContainerKey>,
    ) -> Option<&mut Request> {
        let request = self.0.get_mut(&(base.clone(), RequestSubject::of(command, module)));
        request.filter(|request| request.command == command)
    }

    /// Returns the modules of a base that are being loaded or unloaded.
    fn changes(&self, base: &NodeId) -> impl Iterator<Item = &RequestSubject> {
        let subjects = self.0.keys().filter(move |(of, _)| of == base).map(|(_, subject)| subject);
        subjects.filter(|subject| matches!(subject, RequestSubject::Module(_)))
    }
}

/// Passes the answer to a command that changes a module on to the receiver of the tunnel.
pub(crate) fn report(
    sender: &TunnelSender,
    base: &NodeId,
    command: ArkletCommand,
    answer: ContainerOperationResponseData,
) -> Result<(), SendError> {
    match command {
        ArkletCommand::InstallBiz => sender.start_container_response(base, answer),
        _ => sender.shutdown_container_response(base, answer),
    }
}

#[cfg(test)]
mod tests {
    use super::ArkletCommand::{Health, InstallBiz, QueryAllBiz, UninstallBiz};
    use super::*;

    #[test]
    fn a_repetition_of_what_is_under_way_is_a_conflict_until_it_ends() {
        let (mut operations, base, cart) = (Operations::default(), "b".parse().unwrap(), "cart:1".into());
        for (command, module) in [(Health, None), (InstallBiz, Some(&cart))] {
            operations.begin(&base, command, module, None).unwrap();
            assert_eq!(
                operations.begin(&base, command, module, None).unwrap_err().reason(),
                Reason::Conflict
            );
        }
        let unload = operations.begin(&base, UninstallBiz, Some(&cart), None).unwrap_err();
        assert!(unload.to_string().contains("installBiz of cart:1 is under way"), "{unload}");
        operations.begin(&base, QueryAllBiz, None, None).unwrap();
        operations.begin(&base, InstallBiz, Some(&"cart:2".into()), None).unwrap();
        operations.begin(&"c".parse().unwrap(), InstallBiz, Some(&cart), None).unwrap();
        assert!(operations.end(&base, InstallBiz, Some(&cart)));
        operations.begin(&base, UninstallBiz, Some(&cart), None).unwrap();
    }

    #[test]
    fn an_answer_to_another_request_a_late_and_a_second_one_do_not_count() {
        let (mut operations, base, cart) = (Operations::default(), "b".parse().unwrap(), "cart:1".into());
        operations.begin(&base, InstallBiz, Some(&cart), None).unwrap();
        assert!(!operations.end(&base, UninstallBiz, Some(&cart)) && !operations.end(&base, Health, None));
        assert!(!operations.end(&"c".parse().unwrap(), InstallBiz, Some(&cart)));
        assert!(operations.end(&base, InstallBiz, Some(&cart)));
        assert!(!operations.end(&base, InstallBiz, Some(&cart)) && operations.0.is_empty());
    }

    #[test]
    fn a_base_that_stops_has_no_change_under_way_and_others_do() {
        let (mut operations, base, other) =
            (Operations::default(), "b".parse().unwrap(), "c".parse().unwrap());
        let cart = "cart:1".into();
        let ended = operations.begin(&base, InstallBiz, Some(&cart), None).unwrap();
        let going_on = operations.begin(&other, InstallBiz, Some(&cart), None).unwrap();
        operations.begin(&base, Health, None, None).unwrap();
        operations.stop(&base);
        assert_eq!((ended.is_cancelled(), going_on.is_cancelled()), (true, false));
        assert!(!operations.end(&base, InstallBiz, Some(&cart)), "its answer does not count");
        assert!(operations.end(&base, Health, None) && operations.end(&other, InstallBiz, Some(&cart)));
        assert!(going_on.is_cancelled() && operations.0.is_empty());
    }

    #[test]
    fn one_base_has_a_bounded_number_of_changes_and_others_are_not_affected() {
        let (mut operations, base) = (Operations::default(), "b".parse().unwrap());
        for number in 0..CHANGES_PER_BASE {
            operations.begin(&base, InstallBiz, Some(&number.to_string().into()), None).unwrap();
        }
        let error = operations.begin(&base, InstallBiz, Some(&"more".into()), None).unwrap_err();
        assert_eq!(error.reason(), Reason::Queued);
        operations.begin(&"c".parse().unwrap(), InstallBiz, Some(&"more".into()), None).unwrap();
    }

    #[test]
    fn a_change_that_is_overdue_or_unconfirmed_ends_once() {
        let (mut operations, base, cart, now) = (
            Operations::default(),
            "b".parse::<NodeId>().unwrap(),
            ContainerKey::from("cart:1"),
            Instant::now(),
        );
        let after = |seconds| now + std::time::Duration::from_secs(seconds);
        let unanswered = |command, module: &ContainerKey, refusal: Option<&str>| Unanswered {
            base: base.clone(),
            command,
            module: module.clone(),
            unconfirmed: refusal.map(|reason| Unconfirmed::Refused(reason.to_owned())),
        };
        operations.begin(&base, UninstallBiz, Some(&cart), Some(after(2))).unwrap();
        operations.begin(&base, InstallBiz, Some(&"cart:2".into()), Some(after(9))).unwrap();
        operations.begin(&base, InstallBiz, Some(&"cart:3".into()), None).unwrap();
        operations.unconfirmed(&base, InstallBiz, &cart, Unconfirmed::Disconnected);
        assert!(operations.unanswered(after(1)).is_empty());
        assert_eq!(operations.unanswered(after(2)), [unanswered(UninstallBiz, &cart, None)]);
        assert!(
            !operations.end(&base, UninstallBiz, Some(&cart)) && operations.unanswered(after(8)).is_empty()
        );
        operations.begin(&base, InstallBiz, Some(&cart), Some(after(20))).unwrap();
        assert_eq!(operations.unanswered(after(9)).len(), 1);
        operations.unconfirmed(&base, InstallBiz, &cart, Unconfirmed::Refused("QuotaExceeded".to_owned()));
        let refused = unanswered(InstallBiz, &cart, Some("QuotaExceeded"));
        assert_eq!(operations.unanswered(after(9)), [refused]);
        operations.unconfirmed(&base, InstallBiz, &cart, Unconfirmed::Disconnected);
        assert!(operations.unanswered(after(99)).is_empty());
    }
}
