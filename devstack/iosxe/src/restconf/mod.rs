//! RESTCONF (RFC 8040) on a device: it interprets requests and creates responses. Pure.

mod answer;
mod asked;
mod data;
mod operations;
mod query;
mod write;

pub(crate) use answer::{Answer, Problem};
pub(crate) use asked::Asked;

use std::time::Instant;

use serde_json::json;

use crate::fault::Fault;
use crate::machine::Machine;

/// The media type of data.
pub(crate) const YANG_JSON: &str = "application/yang-data+json";
const XRD: &str = "application/xrd+xml";

/// The fault that this request meets.
pub(crate) fn fault(machine: &mut Machine, asked: &Asked<'_>) -> Option<Fault> {
    let operation = if asked.path.contains("/operations/") {
        operations::operation_name(asked.path, asked.body)
    } else {
        None
    };
    machine.counts.request(asked.method, asked.path, operation);
    machine.plan.take(asked.method, asked.path, operation)
}

/// The answer to a request.
pub(crate) fn answer(machine: &mut Machine, asked: &Asked<'_>, now: Instant) -> Answer {
    machine.advance(now);
    let answered = if machine.account.admits(asked.authorization, now) {
        route(machine, asked, now)
    } else {
        Err(Problem::denied())
    };
    let answer = answered.unwrap_or_else(|problem| problem.answer(machine.iox.options.style.error));
    machine.counts.answered(answer.code);
    answer
}

fn route(machine: &mut Machine, asked: &Asked<'_>, now: Instant) -> Result<Answer, Problem> {
    let root = machine.iox.options.api_root.clone();
    if asked.path == "/.well-known/host-meta" {
        return host_meta(asked, &root);
    }
    let below = asked.path.strip_prefix(&root).ok_or_else(|| Problem::not_found(asked.path))?;
    asked.accepts(YANG_JSON)?;
    let mut segments = below.split('/').filter(|segment| !segment.is_empty());
    match segments.next() {
        None if asked.method == "GET" => Ok(Answer::json(&json!({
            "ietf-restconf:restconf": { "data": {}, "operations": {}, "yang-library-version": "2016-06-21" }
        }))),
        None => Err(Problem::method()),
        Some("data") => data::answer(machine, asked, segments, now),
        Some("operations") => operations::answer(machine, asked, segments, now),
        Some(_) => Err(Problem::not_found(asked.path)),
    }
}

/// RFC 8040, section 3.1.
fn host_meta(asked: &Asked<'_>, root: &str) -> Result<Answer, Problem> {
    if asked.method != "GET" {
        return Err(Problem::method());
    }
    asked.accepts(XRD)?;
    let body = format!(
        "<XRD xmlns='http://docs.oasis-open.org/ns/xri/xrd-1.0'>\n    <Link rel='restconf' href='{root}'/>\n</XRD>\n"
    );
    Ok(Answer { content_type: Some(XRD), body, ..Answer::code(200) })
}
