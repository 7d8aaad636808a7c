//! Operations: `/operations/Cisco-IOS-XE-rpc:NAME`.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::answer::{Answer, Problem};
use super::asked::Asked;
use crate::iox::{Operation, Refusal};
use crate::machine::Machine;
use crate::options::Accepted;

/// The top member of every input.
const INPUT: &str = "Cisco-IOS-XE-rpc:input";

/// The answer to a request below `/operations`.
pub(super) fn answer<'a>(
    machine: &mut Machine,
    asked: &Asked<'_>,
    mut segments: impl Iterator<Item = &'a str>,
    now: Instant,
) -> Result<Answer, Problem> {
    let (Some(name), None) = (segments.next(), segments.next()) else {
        return Err(Problem::not_found(asked.path));
    };
    if asked.method != "POST" {
        return Err(Problem::method());
    }
    let input = || -> Result<Map<String, Value>, Problem> {
        match asked.json()?.get_mut(INPUT).map(Value::take) {
            Some(Value::Object(input)) => Ok(input),
            _ => Err(Problem::malformed("expected namespace:input")),
        }
    };
    match name {
        "Cisco-IOS-XE-rpc:app-hosting" => {
            let operation = operation(&input()?)?;
            machine
                .operate(&operation, now)
                .map_err(|Refusal { code, tag, message }| Problem::new(code, tag, message))?;
            Ok(accepted(machine, &format!("{} of {} was accepted", operation.name(), operation.app())))
        }
        "Cisco-IOS-XE-rpc:copy" => copy(machine, &input()?),
        _ => Err(Problem::not_found(asked.path)),
    }
}

/// The name of the operation of `app-hosting` that a body asks for, if it is one.
pub(crate) fn operation_name(body: &[u8]) -> Option<&'static str> {
    let body: Value = serde_json::from_slice(body).ok()?;
    Some(operation(body.get(INPUT)?.as_object()?).ok()?.name())
}

fn operation(input: &Map<String, Value>) -> Result<Operation, Problem> {
    let mut members = input.iter();
    let (Some((name, arguments)), None) = (members.next(), members.next()) else {
        return Err(Problem::new(400, "bad-element", "one operation, and only one, is to be chosen".into()));
    };
    let text = |leaf: &str| arguments.get(leaf).and_then(Value::as_str);
    let missing = || Problem::new(400, "missing-element", format!("{name} lacks its appid or package"));
    let app = text("appid").ok_or_else(missing)?;
    match name.as_str() {
        "install" | "activate" | "start" | "stop" | "deactivate" | "uninstall" => {
            Operation::new(name, app, text("package")).ok_or_else(missing)
        }
        "upgrade" => Err(Problem::new(
            405,
            "operation-not-supported",
            "this device does not upgrade apps: uninstall and install them".into(),
        )),
        _ => Err(Problem::new(400, "unknown-element", format!("unknown element {name}"))),
    }
}

/// It answers when it is done.
fn copy(machine: &mut Machine, input: &Map<String, Value>) -> Result<Answer, Problem> {
    let text = |leaf: &str| {
        let missing = || Problem::new(400, "missing-element", format!("copy lacks {leaf}"));
        input.get(leaf).and_then(Value::as_str).ok_or_else(missing)
    };
    let (from, to) = (text("source-drop-node-name")?, text("destination-drop-node-name")?);
    if !machine.iox.copy(from, to) {
        return Err(Problem::new(500, "operation-failed", "%Error opening the source (No such file)".into()));
    }
    let after = machine.iox.options.times.copy;
    Ok(Answer { after, ..accepted(machine, "copied") })
}

fn accepted(machine: &Machine, text: &str) -> Answer {
    match machine.iox.options.style.accepted {
        Accepted::NoContent => Answer::code(204),
        Accepted::Result => Answer::json(&json!({ "Cisco-IOS-XE-rpc:output": { "result": text } })),
    }
}
