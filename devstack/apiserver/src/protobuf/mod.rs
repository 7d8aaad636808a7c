//! Request bodies in protobuf, as `kubectl create` sends them for built-in kinds. They are converted to JSON; responses are
//! always JSON.

mod schema;
mod wire;

use base64::Engine as _;
use serde_json::{Map, Value};

use schema::{Field, MESSAGES};
use wire::{Wire, fields, number, text};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of every body.
const MAGIC: &[u8] = b"k8s\0";

/// The object in a body. An error says what about it cannot be read.
pub(crate) fn decode(body: &[u8]) -> Result<Value, String> {
    let envelope = body.strip_prefix(MAGIC).ok_or("the body does not begin like Kubernetes' protobuf")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for (field, value) in fields(envelope)? {
        match (field, value) {
            (1, Wire::Bytes(type_meta)) => {
                for (field, value) in fields(type_meta)? {
                    match field {
                        1 => api_version = text(value)?.into(),
                        2 => kind = text(value)?.into(),
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    if !MESSAGES.iter().any(|(name, _)| *name == kind) {
        return Err(format!("protobuf of the kind {kind:?} is not read here; send JSON"));
    }
    let mut object = message(&kind, raw)?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

fn message(name: &str, bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let (_, known) = MESSAGES
        .iter()
        .find(|(message, _)| *message == name)
        .ok_or_else(|| format!("protobuf message {name} is not read here; send JSON"))?;
    let mut object = Map::new();
    for (field, value) in fields(bytes)? {
        let Some((_, json_name, content)) = known.iter().find(|(number, ..)| *number == field) else {
            if value == Wire::Bytes(&[]) {
                continue;
            }
            return Err(format!("field {field} of {name} is not read from protobuf; send JSON"));
        };
        read(&mut object, json_name, *content, value)?;
    }
    Ok(object)
}

fn read(object: &mut Map<String, Value>, name: &str, content: Field, value: Wire<'_>) -> Result<(), String> {
    let single = match content {
        Field::Ignored => return Ok(()),
        Field::Text => Value::from(text(value)?),
        Field::Number | Field::OptionalNumber => Value::from(number(value)?),
        Field::Truth | Field::OptionalTruth => Value::from(number(value)? != 0),
        Field::NumberOrText => number_or_text(value)?,
        Field::Message(message_name) => Value::Object(message(message_name, value.bytes()?)?),
        Field::Texts => return push(object, name, text(value)?.into()),
        Field::Messages(message_name) => {
            return push(object, name, Value::Object(message(message_name, value.bytes()?)?));
        }
        Field::TextMap | Field::BytesMap | Field::QuantityMap => return insert(object, name, content, value),
    };
    let kept = matches!(content, Field::OptionalNumber | Field::OptionalTruth);
    if kept || !(crate::object::is_empty(&single) || single == 0 || single == false) {
        object.insert(name.into(), single);
    }
    Ok(())
}

fn push(object: &mut Map<String, Value>, name: &str, item: Value) -> Result<(), String> {
    let list = object.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    list.as_array_mut().ok_or_else(|| format!("{name} is no list"))?.push(item);
    Ok(())
}

/// One entry of a map: a message of key and value.
fn insert(
    object: &mut Map<String, Value>,
    name: &str,
    content: Field,
    entry: Wire<'_>,
) -> Result<(), String> {
    let (mut key, mut value) = (String::new(), Value::from(""));
    for (field, part) in fields(entry.bytes()?)? {
        match (field, content) {
            (1, _) => key = text(part)?.into(),
            (2, Field::BytesMap) => {
                value = base64::engine::general_purpose::STANDARD.encode(part.bytes()?).into();
            }
            (2, Field::QuantityMap) => {
                if let Some((_, quantity)) = fields(part.bytes()?)?.first() {
                    value = text(*quantity)?.into();
                }
            }
            (2, _) => value = text(part)?.into(),
            _ => {}
        }
    }
    crate::object::map_mut(object.entry(name).or_insert(Value::Null)).insert(key, value);
    Ok(())
}

/// `IntOrString`: its type says which of the two counts.
fn number_or_text(value: Wire<'_>) -> Result<Value, String> {
    let (mut is_text, mut as_number, mut as_text) = (false, 0, "");
    for (field, part) in fields(value.bytes()?)? {
        match field {
            1 => is_text = number(part)? == 1,
            2 => as_number = number(part)?,
            3 => as_text = text(part)?,
            _ => {}
        }
    }
    Ok(if is_text { as_text.into() } else { as_number.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length], bytes].concat()
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &type_meta), &field(2, raw)].concat()
    }

    #[test]
    fn a_config_map_is_read() {
        let metadata = [field(1, b"a"), field(2, b""), field(8, b"")].concat();
        let data = [field(1, b"k"), field(2, b"v")].concat();
        let object = decode(&body("ConfigMap", &[field(1, &metadata), field(2, &data)].concat())).unwrap();
        let wanted =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
        assert_eq!(object, wanted);
    }

    #[test]
    fn zeros_are_kept_where_they_were_set() {
        // Deployment.spec.replicas = 0, minReadySeconds = 0.
        let object = decode(&body("Deployment", &field(2, &[1 << 3, 0, 5 << 3, 0]))).unwrap();
        assert_eq!(object["spec"], json!({"replicas": 0}));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        assert!(decode(&body("Strange", &[])).unwrap_err().contains("\"Strange\""));
        assert!(decode(&body("ConfigMap", &field(15, b"x"))).unwrap_err().contains("field 15 of ConfigMap"));
        assert!(decode(b"nothing").is_err());
        assert!(decode(&[MAGIC, &[2 << 3 | 2, 200]].concat()).is_err(), "cut short");
    }
}
