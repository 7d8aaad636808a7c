//! Decodes the top level of a response: one member, whose name is prefixed with that of its module.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// Decodes the YANG container `name` of a response. With a `fields` query, some servers omit the container and put its
/// members at the top level, which is accepted too.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8], name: &str) -> Result<T, serde_json::Error> {
    let top: BTreeMap<String, &RawValue> = serde_json::from_slice(body)?;
    let container = top.iter().find(|(member, _)| local(member) == name);
    if let Some((_, container)) = container {
        return serde_json::from_str(container.get());
    }
    let members = top.into_iter().map(|(member, value)| {
        let value: Value = serde_json::from_str(value.get())?;
        Ok((local(&member).to_owned(), value))
    });
    serde_json::from_value(Value::Object(members.collect::<Result<_, serde_json::Error>>()?))
}

/// Returns a name without its module prefix.
fn local(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, local)| local)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(default)]
    struct Data {
        app: Vec<u8>,
    }

    #[test]
    fn a_container_is_read_with_its_name_with_its_module_and_taken_off() {
        for body in [
            r#"{"Some-module:data":{"app":[1,2],"other":{}}}"#,
            r#"{"data":{"app":[1,2]}}"#,
            r#"{"Some-module:app":[1,2]}"#,
            r#"{"app":[1,2]}"#,
        ] {
            assert_eq!(read::<Data>(body.as_bytes(), "data").unwrap(), Data { app: vec![1, 2] }, "{body}");
        }
        assert_eq!(read::<Data>(br#"{"m:data":{}}"#, "data").unwrap(), Data::default());
    }

    #[test]
    fn what_is_no_object_or_not_of_the_type_is_refused() {
        for body in
            ["", "[]", "<html>", r#"{"m:data":{"app":{}}}"#, r#"{"m:data":{"app":[1"#, r#"{"m:data":3}"#]
        {
            assert!(read::<Data>(body.as_bytes(), "data").is_err(), "{body}");
        }
    }
}
