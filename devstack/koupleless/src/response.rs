//! The JSON of Arklet's responses and reports.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::behaviour::AnswerFault;
use crate::module::InstalledModule;
use crate::options::SimulatedBaseOptions;

/// The number of bytes that are added to an oversized answer.
const PADDING: usize = 2 << 20;

/// Returns the response to a command that succeeded.
pub(crate) fn success(data: &Value) -> Value {
    json!({ "code": "SUCCESS", "data": data })
}

/// Returns the response to a command that was refused before it began.
pub(crate) fn refused(message: &str) -> Value {
    json!({ "code": "FAILED", "message": message })
}

/// Returns the response to a command that cannot be executed as it is.
pub(crate) fn invalid(message: &str) -> Value {
    let trace = "com.alipay.sofa.koupleless.arklet.core.common.exception.CommandValidationException";
    json!({ "code": "CMD_PROCESS_INTERNAL_ERROR", "message": format!("Internal Error: {message}"), "errorStackTrace": trace })
}

/// Returns the response to a command that Arklet does not know.
pub(crate) fn unknown_command() -> Value {
    json!({ "code": "CMD_NOT_FOUND", "message": "please follow the doc" })
}

/// Returns the response to an attempt to `verb` (install or uninstall) a module, with the result `code`.
pub(crate) fn operation(verb: &str, code: &str, message: &str, module: Option<&InstalledModule>) -> Value {
    let infos: Vec<_> = module.map(biz_info).into_iter().collect();
    let data = json!({ "code": code, "message": message, "bizInfos": infos, "elapsedSpace": 0 });
    if code == "SUCCESS" {
        return success(&data);
    }
    json!({ "code": "FAILED", "message": format!("{verb} biz not success!"), "data": data })
}

/// Returns the health of a base with `used` bytes of metaspace in use.
pub(crate) fn health(options: &SimulatedBaseOptions, state: &str, used: u64) -> Value {
    let jvm = json!({
        "java used metaspace": used, "java committed metaspace": used, "java max metaspace": options.max_metaspace,
        "java heap used": 64 << 20, "java heap max": 512 << 20,
    });
    let cpu = json!({ "count": 2, "total used (%)": 1.5, "type": "simulated" });
    let master = json!({ "bizName": options.name, "bizVersion": options.version, "bizState": state, "webContextPath": "/" });
    success(&json!({ "healthData": { "jvm": jvm, "cpu": cpu, "masterBizInfo": master } }))
}

/// Returns a module as `queryAllBiz` does (`ArkBizInfo`).
pub(crate) fn biz_info(module: &InstalledModule) -> Value {
    json!({
        "bizName": module.name, "bizVersion": module.version, "bizState": module.state.to_ascii_lowercase(),
        "mainClass": "com.example.Main", "webContextPath": format!("/{}", module.name),
        "bizStateRecords": [state_record(module)],
    })
}

/// Returns a module as newer versions of Arklet report it over MQTT (`SimpleBiz`).
pub(crate) fn simple_biz(module: &InstalledModule) -> Value {
    json!({
        "name": module.name, "version": module.version, "state": module.state,
        "latestStateRecord": state_record(module),
    })
}

fn state_record(module: &InstalledModule) -> Value {
    let changed = module.changed.as_millisecond();
    json!({ "changeTime": changed, "state": module.state, "reason": module.reason, "message": module.message })
}

/// Returns the metadata of a base (`BaseMetadata`).
pub(crate) fn metadata(options: &SimulatedBaseOptions, identity: &str) -> Value {
    let SimulatedBaseOptions { name, version, cluster_name, .. } = options;
    json!({ "identity": identity, "name": name, "version": version, "clusterName": cluster_name })
}

/// Returns a heartbeat (`BaseStatus`). `port` is that of the commands over HTTP.
pub(crate) fn heartbeat(
    options: &SimulatedBaseOptions,
    identity: &str,
    state: &str,
    port: Option<u16>,
) -> Value {
    let mut status = json!({
        "baseMetadata": metadata(options, identity), "localIP": options.ip,
        "localHostName": options.identity, "state": state,
    });
    if let Some(port) = port {
        status["port"] = port.into();
    }
    status
}

/// Returns a report over MQTT: `data` in its envelope.
pub(crate) fn enveloped(data: &Value) -> Value {
    json!({ "publishTimestamp": Timestamp::now().as_millisecond(), "data": data })
}

/// Converts an answer into bytes, with its fault.
pub(crate) fn encode(mut answer: Value, fault: Option<&AnswerFault>) -> Vec<u8> {
    if fault == Some(&AnswerFault::Oversized) {
        answer["message"] = "x".repeat(PADDING).into();
    }
    let mut bytes = answer.to_string().into_bytes();
    if fault == Some(&AnswerFault::Malformed) {
        bytes.truncate(bytes.len() / 2);
    }
    bytes
}
