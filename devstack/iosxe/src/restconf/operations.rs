//! Operations: `/operations/Cisco-IOS-XE-rpc:NAME`.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::answer::{Answer, Problem};
use super::asked::Asked;
use crate::iox::{FileError, Operation, Refusal};
use crate::machine::Machine;
use crate::options::Accepted;
use crate::schema::{Node, check, rpc};

const COPY: &str = "Cisco-IOS-XE-rpc:copy";
const DELETE: &str = "Cisco-IOS-XE-rpc:delete";

/// The locations that `copy` reads and writes, as far as simulated; the module also has the device's configurations.
const REMOTE: [&str; 9] =
    ["bootflash:", "harddisk:", "flash:", "nvram:", "ftp:", "http:", "https:", "scp:", "tftp:"];
/// The locations of `delete`; the module also has the members of a stack.
const LOCAL: [&str; 5] = ["bootflash:", "harddisk:", "crashinfo:", "flash:", "nvram:"];

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
    let input = |schema: &Node| -> Result<Map<String, Value>, Problem> {
        let input = asked.json()?.get_mut(INPUT).map(Value::take).unwrap_or_default();
        let Value::Object(members) = &input else {
            return Err(Problem::malformed("expected namespace:input"));
        };
        check(schema, &input, "")?;
        Ok(members.clone())
    };
    match name {
        "Cisco-IOS-XE-rpc:app-hosting" => {
            let operation = operation(&input(&rpc::APP_HOSTING)?)?;
            machine
                .operate(&operation, now)
                .map_err(|Refusal { code, tag, message }| Problem::new(code, tag, message))?;
            Ok(accepted(machine, &format!("{} of {} was accepted", operation.name(), operation.app())))
        }
        COPY => copy(machine, &input(&rpc::COPY)?, now),
        DELETE => delete(machine, &input(&rpc::DELETE)?, now),
        _ => Err(Problem::not_found(asked.path)),
    }
}

/// The name of the operation that a request asks for, if it is one.
pub(super) fn operation_name(path: &str, body: &[u8]) -> Option<&'static str> {
    if path.ends_with(COPY) {
        return Some("copy");
    }
    if path.ends_with(DELETE) {
        return Some("delete");
    }
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
    if let "upgrade" | "verification" | "move" = name.as_str() {
        let message = format!("this device does not offer {name}");
        return Err(Problem::new(405, "operation-not-supported", message));
    }
    Operation::new(name, text("appid").ok_or_else(missing)?, text("package")).ok_or_else(missing)
}

/// It answers when it is done.
fn copy(machine: &mut Machine, input: &Map<String, Value>, now: Instant) -> Result<Answer, Problem> {
    let from = place(input, "source-drop-node-name", &REMOTE)?;
    let to = place(input, "destination-drop-node-name", &REMOTE)?;
    match machine.iox.copy(from, to, now) {
        Ok(()) => Ok(Answer { after: machine.iox.options.times.copy, ..accepted(machine, "copied") }),
        Err(error) => failed(machine, error),
    }
}

fn delete(machine: &mut Machine, input: &Map<String, Value>, now: Instant) -> Result<Answer, Problem> {
    let file = place(input, "filename-drop-node-name", &LOCAL)?;
    match machine.iox.delete(file, now) {
        Ok(()) => Ok(accepted(machine, "deleted")),
        Err(error) => failed(machine, error),
    }
}

/// The name of a file on one of these file systems.
fn place<'a>(input: &'a Map<String, Value>, leaf: &str, systems: &[&str]) -> Result<&'a str, Problem> {
    let missing = || Problem::new(400, "missing-element", format!("{leaf} is missing"));
    let name = input.get(leaf).and_then(Value::as_str).ok_or_else(missing)?;
    if systems.iter().any(|system| name.starts_with(system)) {
        return Ok(name);
    }
    Err(Problem::new(400, "invalid-value", format!("{leaf} does not fit its pattern")))
}

/// A device that answers operations in words says in words what failed.
fn failed(machine: &Machine, FileError(message): FileError) -> Result<Answer, Problem> {
    match machine.iox.options.style.accepted {
        Accepted::NoContent => Err(Problem::new(500, "operation-failed", message)),
        Accepted::Result => Ok(accepted(machine, &message)),
    }
}

fn accepted(machine: &Machine, text: &str) -> Answer {
    match machine.iox.options.style.accepted {
        Accepted::NoContent => Answer::code(204),
        Accepted::Result => Answer::json(&json!({ "Cisco-IOS-XE-rpc:output": { "result": text } })),
    }
}
