//! Parses the reports of bases, and decides which are dropped, for which reason.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::NodeCondition;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use staffetta_driver::ContainerKey;
use staffetta_driver::tunnel::{
    ContainerOperationResponseData, ContainerStatusData, NodeDescription, NodeId, NodeStatusData,
    QueryBaselineRequest,
};

use super::topics::ReportKind;
use crate::module;
use crate::operations::ArkletCommand;
use crate::wire::{
    ArkResponse, BaseMetadata, BaseReport, BizInfo, HealthInfo, OperationData, node_status, statuses,
};

/// The maximum size of a report, in bytes.
pub(super) const MAX_REPORT: usize = 1 << 20;

/// The type of the node condition that is true if the clocks of the base and the controller differ by at least the maximum age of a
/// report.
const CLOCK_SKEWED: &str = "ClockSkewed";

/// A parsed report of a base, with its content in the types that the virtual-node handler accepts.
#[derive(Debug)]
pub(super) enum BaseMessage {
    /// The base introduced itself, or announced that it ends.
    Discovered(NodeDescription),
    /// The base asks for the modules with which it starts.
    Baseline(QueryBaselineRequest),
    /// The health of the base.
    Health(NodeStatusData),
    /// The state of all modules of the base.
    Modules(Vec<ContainerStatusData>),
    /// The answer to a command. It is dropped unless the command is in progress.
    Operation(ArkletCommand, ContainerKey, ContainerOperationResponseData),
}

/// The reason why a report is dropped, for the log.
pub(super) type DropReason = String;

/// The JSON object around the content of each report.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportEnvelope<T> {
    /// The time at which the base sent the report, in milliseconds since 1970.
    publish_timestamp: i64,
    data: T,
}

/// The content of a report that answers a command to load or unload a module (`bizOperation`).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BizOperationResponse {
    command: String,
    biz_name: String,
    biz_version: String,
    response: ArkResponse<OperationData>,
}

/// Reads the report `payload` of the kind `kind`, whose topic names `base`, at the time `now`, and returns it with the time when it was
/// sent. Lists of modules and baseline queries that are older than `max_age` are dropped. Answers to commands are not, because each command
/// has its own time limit; neither are heartbeats and health reports, which show that the base runs even if its clock is wrong.
pub(super) fn read(
    base: &NodeId,
    kind: ReportKind,
    payload: &[u8],
    now: Timestamp,
    max_age: Duration,
) -> Result<(BaseMessage, Timestamp), DropReason> {
    if payload.len() > MAX_REPORT {
        return Err(format!("it has {} bytes, and at most {MAX_REPORT} are allowed", payload.len()));
    }
    let report = ReceivedReport { base, payload, now, max_age };
    match kind {
        ReportKind::Heart => {
            let (heart, sent) = report.content::<BaseReport>()?;
            let (id, node) = heart.read()?;
            report.is_of(id.as_str())?;
            Ok((BaseMessage::Discovered(node), sent))
        }
        ReportKind::QueryBaseline => {
            let (metadata, sent) = report.current::<BaseMetadata>()?;
            report.is_of(metadata.identity())?;
            Ok((BaseMessage::Baseline(metadata.baseline_request()), sent))
        }
        ReportKind::Health => {
            let (response, sent) = report.content()?;
            let mut status = node_status(report.data::<HealthInfo>(response)?);
            status.custom_conditions.push(clock_condition(report.age(sent), max_age));
            Ok((BaseMessage::Health(status), sent))
        }
        ReportKind::SimpleBiz => {
            let (modules, sent) = report.current::<Vec<BizInfo>>()?;
            Ok((BaseMessage::Modules(statuses(modules, sent)), sent))
        }
        ReportKind::Biz => {
            let (response, sent) = report.current()?;
            let modules = report.data::<Vec<BizInfo>>(response)?;
            Ok((BaseMessage::Modules(statuses(modules, sent)), sent))
        }
        ReportKind::BizOperation => {
            let (BizOperationResponse { command, biz_name, biz_version, response }, sent) =
                report.content()?;
            report.is_of(response.base().unwrap_or(base.as_str()))?;
            let known = [ArkletCommand::InstallBiz, ArkletCommand::UninstallBiz, ArkletCommand::SwitchBiz];
            let known = known.into_iter().find(|known| known.name().eq_ignore_ascii_case(&command));
            let command = known.ok_or_else(|| format!("the command {:?} is unknown", quoted(&command)))?;
            let key = module::key(&biz_name, &biz_version);
            let answer = response.operation(command, key.clone());
            Ok((BaseMessage::Operation(command, key, answer), sent))
        }
    }
}

/// Returns the node condition [`CLOCK_SKEWED`], derived from the age of a report. The message contains no exact age, because each change of
/// the message would cause a write of the node's status.
fn clock_condition(age: SignedDuration, max_age: Duration) -> NodeCondition {
    let skewed = age.unsigned_abs() >= max_age;
    let limit = max_age.as_secs_f32();
    let (reason, message) = match (skewed, age.is_positive()) {
        (false, _) => ("ClockSynchronized", String::new()),
        (true, true) => (
            "ClockBehind",
            format!(
                "the clock of the base is at least {limit} s behind, or its reports come late; its lists of modules are dropped until it is right"
            ),
        ),
        (true, false) => (
            "ClockAhead",
            format!(
                "the clock of the base is at least {limit} s ahead; reports of it that come late are not recognised"
            ),
        ),
    };
    NodeCondition {
        type_: CLOCK_SKEWED.to_owned(),
        status: if skewed { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        ..NodeCondition::default()
    }
}

/// A report that was received at the time `now`, with the base in its topic, and the maximum age of a report.
struct ReceivedReport<'a> {
    base: &'a NodeId,
    payload: &'a [u8],
    now: Timestamp,
    max_age: Duration,
}

impl ReceivedReport<'_> {
    /// Returns the content of the report, and the time when it was sent, whatever its age.
    fn content<T: DeserializeOwned>(&self) -> Result<(T, Timestamp), DropReason> {
        let ReportEnvelope { publish_timestamp, data } =
            serde_json::from_slice(self.payload).map_err(|error: serde_json::Error| {
                format!("it is malformed at line {}, column {}", error.line(), error.column())
            })?;
        let sent = Timestamp::from_millisecond(publish_timestamp)
            .map_err(|_| "publishTimestamp is no time".to_owned())?;
        Ok((data, sent))
    }

    /// Returns the content of the report, and the time when it was sent. Fails if the report is as old as the maximum age, or older.
    fn current<T: DeserializeOwned>(&self) -> Result<(T, Timestamp), DropReason> {
        let (content, sent) = self.content()?;
        let age = self.age(sent);
        if age.unsigned_abs() >= self.max_age && age.is_positive() {
            let age = age.as_secs();
            return Err(format!(
                "it is {age} s old; if that repeats, compare the clocks of base and controller"
            ));
        }
        Ok((content, sent))
    }

    /// Returns the time since a report was sent, negative if the clock of its base is ahead.
    fn age(&self, sent: Timestamp) -> SignedDuration {
        self.now.duration_since(sent)
    }

    /// Returns the data of `response`, the content of the report. Fails if it is of another base than the topic, or reports a failure.
    fn data<T>(&self, response: ArkResponse<T>) -> Result<T, DropReason> {
        self.is_of(response.base().unwrap_or(self.base.as_str()))?;
        response.data()
    }

    /// Checks that `body`, the id of the base in the body of a report, is that of the base in its topic.
    fn is_of(&self, body: &str) -> Result<(), DropReason> {
        if body == self.base.as_str() {
            return Ok(());
        }
        Err(format!("its topic is that of {}, and it speaks for {:?}", self.base, quoted(body)))
    }
}

/// Returns the first 64 characters of a text of a base, with a space in place of each control character.
fn quoted(text: &str) -> String {
    crate::wire::message(text).chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use staffetta_driver::tunnel::{ContainerState, NodeActivation, OperationResponseResult};

    use super::*;

    const NOW: i64 = 1_725_523_200_000;

    fn read_raw(kind: ReportKind, payload: &[u8]) -> Result<BaseMessage, String> {
        let now = Timestamp::from_millisecond(NOW).unwrap();
        let read = read(&"b-1".parse().unwrap(), kind, payload, now, Duration::from_secs(10));
        read.map(|(message, _)| message)
    }

    fn read_at(kind: ReportKind, sent: i64, data: &Value) -> Result<BaseMessage, String> {
        read_raw(kind, json!({ "publishTimestamp": sent, "data": data }).to_string().as_bytes())
    }

    fn read_now(kind: ReportKind, data: &Value) -> Result<BaseMessage, String> {
        read_at(kind, NOW, data)
    }

    #[test]
    fn each_kind_of_report_is_read_in_all_its_forms() {
        let heart =
            json!({ "baseMetadata": { "identity": "b-1" }, "localIP": "192.0.2.1", "state": "ACTIVATED" });
        let Ok(BaseMessage::Discovered(node)) = read_now(ReportKind::Heart, &heart) else {
            panic!("no heart")
        };
        assert_eq!(node.metadata.status, NodeActivation::Activated);
        let old = json!({ "deviceID": "b-1", "masterBizInfo": { "bizState": "ACTIVATED" } });
        assert!(matches!(read_now(ReportKind::Heart, &old), Ok(BaseMessage::Discovered(_))));
        let baseline = json!({ "identity": "b-1", "name": "shop" });
        assert!(
            matches!(read_now(ReportKind::QueryBaseline, &baseline), Ok(BaseMessage::Baseline(request)) if request.name == "shop")
        );
        let health = json!({ "code": "SUCCESS", "data": { "healthData": {} } });
        assert!(matches!(read_now(ReportKind::Health, &health), Ok(BaseMessage::Health(_))));
        let simple = json!([{ "name": "cart", "version": "1", "state": "ACTIVATED" }]);
        let long = json!({ "code": "SUCCESS", "data": [{ "bizName": "cart", "bizVersion": "1", "bizState": "ACTIVATED" }] });
        for (kind, data) in [(ReportKind::SimpleBiz, simple), (ReportKind::Biz, long)] {
            let Ok(BaseMessage::Modules(modules)) = read_now(kind, &data) else { panic!("no modules") };
            assert_eq!((modules[0].key.as_str(), modules[0].state), ("cart:1", ContainerState::Activated));
        }
        let operation = json!({ "command": "installBiz", "bizName": "cart", "bizVersion": "1", "response": { "code": "SUCCESS" } });
        let Ok(BaseMessage::Operation(command, key, answer)) = read_now(ReportKind::BizOperation, &operation)
        else {
            panic!("no operation")
        };
        assert_eq!(
            (command, key.as_str(), answer.result),
            (ArkletCommand::InstallBiz, "cart:1", OperationResponseResult::Success)
        );
    }

    #[test]
    fn a_base_speaks_for_itself_only() {
        let operation = |base: &str| {
            let response = json!({ "code": "SUCCESS", "baseIdentity": base });
            json!({ "command": "installBiz", "bizName": "cart", "bizVersion": "1", "response": response })
        };
        let other = json!({ "code": "SUCCESS", "data": { "healthData": {} }, "baseIdentity": "b-2" });
        for (kind, data) in [
            (ReportKind::Heart, json!({ "baseMetadata": { "identity": "b-2" }, "state": "ACTIVATED" })),
            (ReportKind::QueryBaseline, json!({ "identity": "b-2" })),
            (ReportKind::Health, other),
            (ReportKind::BizOperation, operation("b-2")),
        ] {
            let dropped = read_now(kind, &data).unwrap_err();
            assert_eq!(dropped, "its topic is that of b-1, and it speaks for \"b-2\"", "{kind:?}");
        }
        assert!(read_now(ReportKind::BizOperation, &operation("")).is_ok());
    }

    #[test]
    fn an_old_list_is_dropped_and_an_old_answer_is_not() {
        let modules = json!([]);
        assert!(read_at(ReportKind::SimpleBiz, NOW - 9_999, &modules).is_ok());
        assert!(read_at(ReportKind::SimpleBiz, NOW + 3_600_000, &modules).is_ok(), "a clock that is fast");
        assert!(read_at(ReportKind::SimpleBiz, NOW - 10_000, &modules).unwrap_err().contains("10 s old"));
        assert!(read_at(ReportKind::SimpleBiz, i64::MAX, &modules).unwrap_err().contains("no time"));
        let operation = json!({ "command": "uninstallBiz", "bizName": "cart", "bizVersion": "1", "response": { "code": "FAILED" } });
        assert!(read_at(ReportKind::BizOperation, NOW - 60_000, &operation).is_ok());
    }

    #[test]
    fn a_base_with_a_wrong_clock_lives_and_its_node_says_so() {
        let heart = json!({ "baseMetadata": { "identity": "b-1" }, "state": "ACTIVATED" });
        let health = json!({ "code": "SUCCESS", "data": { "healthData": {} } });
        let hour = 3_600_000;
        for (sent, status, reason) in [
            (NOW - 15_000, "True", "ClockBehind"),
            (NOW - hour, "True", "ClockBehind"),
            (NOW - 9_999, "False", "ClockSynchronized"),
            (NOW + 9_999, "False", "ClockSynchronized"),
            (NOW + hour, "True", "ClockAhead"),
        ] {
            assert!(matches!(read_at(ReportKind::Heart, sent, &heart), Ok(BaseMessage::Discovered(_))));
            let read = read_at(ReportKind::Health, sent, &health);
            let Ok(BaseMessage::Health(health)) = read else { panic!("{read:?}") };
            let clock = health.custom_conditions.iter().find(|one| one.type_ == "ClockSkewed").unwrap();
            assert_eq!((clock.status.as_str(), clock.reason.as_deref()), (status, Some(reason)), "{sent}");
        }
    }

    #[test]
    fn a_malformed_report_and_an_unknown_command_are_dropped_with_the_reason() {
        let large = vec![b' '; MAX_REPORT + 1];
        let operation = json!({ "command": "format\n", "bizName": "a", "bizVersion": "1", "response": { "code": "SUCCESS" } });
        let failed = json!({ "code": "FAILED", "message": "busy" });
        for (dropped, reason) in [
            (read_raw(ReportKind::Heart, b""), "malformed at line 1"),
            (read_raw(ReportKind::Heart, b"{}"), "malformed"),
            (read_raw(ReportKind::SimpleBiz, b"{\"publishTimestamp\":1,\"data\":7}"), "malformed"),
            (read_raw(ReportKind::SimpleBiz, &large), "bytes"),
            (
                read_now(
                    ReportKind::Heart,
                    &json!({ "baseMetadata": { "identity": "b-1" }, "state": "odd" }),
                ),
                "state",
            ),
            (read_now(ReportKind::Health, &failed), "busy"),
            (read_now(ReportKind::Biz, &failed), "busy"),
            (read_now(ReportKind::BizOperation, &operation), "\"format \" is unknown"),
        ] {
            let dropped = dropped.unwrap_err();
            assert!(dropped.contains(reason), "{reason} in {dropped}");
        }
    }
}
