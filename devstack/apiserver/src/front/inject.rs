//! Responses that a fault changes on their way to the client.

use std::io;

use axum::body::{Body, BodyDataStream, Bytes, to_bytes};
use futures_util::{Stream, StreamExt as _, stream};
use serde_json::Value;

use super::fault::Fault;

const GARBAGE: &str = "<this is no JSON>\n";

/// The answer to a request for objects; None where the one who answers has broken off.
pub(super) async fn answer(body: Body, fault: &Fault) -> Option<Body> {
    let bytes = to_bytes(body, usize::MAX).await.ok()?;
    Some(match fault {
        Fault::CutMid => half(&bytes),
        Fault::Garbage => Body::from(GARBAGE),
        Fault::Replace { name, pointer, value } => {
            Body::from(rewritten(bytes, |answer| each_object(answer, &|o| replace(o, name, pointer, value))))
        }
        _ => Body::from(bytes),
    })
}

/// The chunks of a watch, with the fault in them.
pub(super) fn watch(
    body: Body,
    fault: Option<Fault>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + Unpin {
    let injected = FaultyBody { body: body.into_data_stream(), fault, unread: Vec::new(), cut: false };
    Box::pin(stream::unfold(injected, FaultyBody::step))
}

/// Sends half of it, then breaks off.
fn half(bytes: &Bytes) -> Body {
    let first = bytes.slice(..bytes.len() / 2);
    Body::from_stream(stream::once(async { Ok(first) }).chain(stream::once(broken())))
}

/// Breaks off once what came before has left.
async fn broken() -> io::Result<Bytes> {
    // What is not flushed when the error comes would never be sent.
    tokio::task::yield_now().await;
    Err(io::Error::other("the answer was cut"))
}

struct FaultyBody {
    body: BodyDataStream,
    fault: Option<Fault>,
    /// The beginning of a line that is still to come.
    unread: Vec<u8>,
    /// The last line was cut off.
    cut: bool,
}

impl FaultyBody {
    async fn step(mut self) -> Option<(io::Result<Bytes>, Self)> {
        loop {
            if self.cut {
                return Some((broken().await, self));
            }
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(end + 1);
                let line = std::mem::replace(&mut self.unread, rest);
                return Some((Ok(self.inject(line)), self));
            }
            match self.body.next().await {
                Some(Ok(chunk)) if self.fault.is_none() && self.unread.is_empty() => {
                    return Some((Ok(chunk), self));
                }
                Some(Ok(chunk)) => self.unread.extend_from_slice(&chunk),
                Some(Err(error)) => return Some((Err(io::Error::other(error)), self)),
                None if self.unread.is_empty() => return None,
                None => return Some((Ok(Bytes::from(std::mem::take(&mut self.unread))), self)),
            }
        }
    }

    fn inject(&mut self, line: Vec<u8>) -> Bytes {
        let mut event: Value = serde_json::from_slice(&line).unwrap_or_default();
        if event["type"] == "BOOKMARK" {
            return Bytes::from(line);
        }
        match &self.fault {
            Some(Fault::CutMid) => {
                self.cut = true;
                let middle = line.len() / 2;
                Bytes::from(line).slice(..middle)
            }
            Some(Fault::Garbage) => {
                self.fault = None;
                Bytes::from(GARBAGE)
            }
            Some(Fault::Replace { name, pointer, value }) if event.is_object() => {
                each_object(&mut event["object"], &|object| replace(object, name, pointer, value));
                // As every server does it: first of what type the event is.
                Bytes::from(format!("{{\"type\":{},\"object\":{}}}\n", event["type"], event["object"]))
            }
            _ => Bytes::from(line),
        }
    }
}

/// The text after a change of what it says; what is no JSON stays as it is.
fn rewritten(text: Bytes, change: impl FnOnce(&mut Value)) -> Bytes {
    let Ok(mut json) = serde_json::from_slice(&text) else { return text };
    change(&mut json);
    let mut rewritten = json.to_string();
    if text.ends_with(b"\n") {
        rewritten.push('\n');
    }
    rewritten.into()
}

/// Visits the objects of an answer: those of a list, those in the rows of a table, or the one that it is.
fn each_object(answer: &mut Value, visit: &dyn Fn(&mut Value)) {
    if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(visit);
    } else if let Some(rows) = answer.get_mut("rows").and_then(Value::as_array_mut) {
        rows.iter_mut().filter_map(|row| row.get_mut("object")).for_each(visit);
    } else {
        visit(answer);
    }
}

fn replace(object: &mut Value, name: &str, pointer: &str, value: &Value) {
    let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
    if object["metadata"]["name"] != name {
        return;
    }
    if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
        fields.insert(field.replace("~1", "/").replace("~0", "~"), value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_replaced_wherever_an_answer_shows_it_and_no_other_is() {
        let pod = |name: &str| json!({"metadata": {"name": name, "annotations": {"a/b": "c"}}, "spec": {}});
        let rows = [pod("x"), pod("y")].map(|object| json!({"object": object}));
        let table = json!({"kind": "Table", "rows": rows});
        for mut answer in [json!({"items": [pod("x"), pod("y")]}), table, pod("x")] {
            let before = answer.clone();
            each_object(&mut answer, &|o| replace(o, "x", "/metadata/annotations/a~1b", &json!(7)));
            let changed = answer.to_string();
            assert_eq!(changed, before.to_string().replacen(r#""a/b":"c""#, r#""a/b":7"#, 1));
        }
    }

    /// Returns what a client receives of a watch with these chunks; the last one is how it ends.
    async fn watched(chunks: &[&'static str], fault: Fault) -> Vec<Result<String, String>> {
        let chunks: Vec<_> = chunks.iter().map(|chunk| Ok::<_, io::Error>(*chunk)).collect();
        let mut reported = watch(Body::from_stream(stream::iter(chunks)), Some(fault));
        let mut seen = Vec::new();
        while let Some(chunk) = reported.next().await {
            let failed = chunk.is_err();
            seen.push(chunk.map(|b| String::from_utf8_lossy(&b).into_owned()).map_err(|e| e.to_string()));
            if failed {
                break;
            }
        }
        seen
    }

    #[tokio::test]
    async fn a_fault_hits_the_first_event_of_a_watch_and_no_bookmark() {
        let bookmark = "{\"type\":\"BOOKMARK\"}\n";
        let chunks = ["{\"type\":\"BOOK", "MARK\"}\n{\"type\"", ":\"ADDED\"}\n", "{\"type\":\"DELETED\"}\n"];
        let seen = watched(&chunks, Fault::CutMid).await;
        assert_eq!(seen, [Ok(bookmark.into()), Ok("{\"type\":".into()), Err("the answer was cut".into())]);
        let seen = watched(&chunks, Fault::Garbage).await;
        assert_eq!(seen, [bookmark, GARBAGE, "{\"type\":\"DELETED\"}\n"].map(|line| Ok(line.into())));
    }

    #[tokio::test]
    async fn an_event_that_is_rewritten_says_first_of_what_type_it_is() {
        let event = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"x\"}}}\n";
        let seen = watched(&[event], Fault::undecodable("x", "/metadata/uid")).await;
        let [Ok(line)] = &seen[..] else { panic!("one event: {seen:?}") };
        assert!(line.starts_with("{\"type\":\"ADDED\",\"object\":{") && line.contains("\"uid\":"), "{line}");
    }

    #[test]
    fn what_is_no_json_or_lacks_the_place_stays_as_it_is() {
        let text = Bytes::from_static(b"k8s\0 protobuf");
        assert_eq!(rewritten(text.clone(), |_| panic!("there is nothing to change")), text);
        let mut pod = json!({"metadata": {"name": "x"}});
        replace(&mut pod, "x", "/spec/containers", &json!("none"));
        assert_eq!(pod, json!({"metadata": {"name": "x"}}));
    }
}
