//! `config schema`: the JSON Schema of the file, for editors. It says what is checked, no less.

use serde_json::{Map, Value, json};

use super::form::{Bounds, Form};
use super::schema::{FileSchema, OptionSchema};

impl FileSchema {
    /// The JSON Schema (2020-12) of the configuration file.
    pub fn to_json(&self) -> Value {
        let sections = self.sections.iter().map(|section| {
            let options = section.options.iter().map(|option| (option.name.clone(), option.to_json()));
            let schema = json!({
                "description": section.about,
                "type": "object",
                "properties": options.collect::<Map<_, _>>(),
                "additionalProperties": false,
            });
            (section.name.clone(), schema)
        });
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "The configuration of staffetta",
            "type": "object",
            "properties": sections.collect::<Map<_, _>>(),
            "additionalProperties": false,
        })
    }
}

impl OptionSchema {
    fn to_json(&self) -> Value {
        let mut schema = self.form.to_json();
        schema["description"] = self.about.as_str().into();
        if !self.default.is_null() && !self.secret {
            schema["default"] = self.default.clone();
        }
        if let Some(example) = &self.example {
            schema["examples"] = json!([example]);
        }
        if self.secret {
            schema["x-secret"] = true.into();
        }
        schema
    }
}

impl Form {
    fn to_json(&self) -> Value {
        let mut schema = Map::new();
        let mut put = |word: &str, value: Value| {
            if !value.is_null() {
                schema.insert(word.to_owned(), value);
            }
        };
        match self {
            Self::Boolean => put("type", json!("boolean")),
            Self::Integer { minimum, maximum } => {
                put("type", json!("integer"));
                put("minimum", integer(*minimum));
                put("maximum", integer(*maximum));
            }
            Self::Number { minimum, maximum } => {
                put("type", json!("number"));
                put("minimum", json!(minimum));
                put("maximum", json!(maximum));
            }
            Self::Span { minimum, maximum } => {
                put("type", json!(["string", "integer"]));
                put("format", json!("span"));
                put("minimum", json!(0));
                put("x-minimum", json!(minimum));
                put("x-maximum", json!(maximum));
            }
            Self::Text { format, length } => {
                put("type", json!("string"));
                put("format", json!(format.map(super::format::Format::name)));
                put_bounds(&mut put, *length, "minLength", "maxLength");
            }
            Self::Choice(choices) => {
                let choice = |choice: &super::form::Choice| json!({ "const": choice.name, "description": choice.about });
                put("type", json!("string"));
                put("oneOf", choices.iter().map(choice).collect());
            }
            Self::List { items, length, unique } => {
                put("type", json!("array"));
                put("items", items.to_json());
                put("uniqueItems", if *unique { json!(true) } else { Value::Null });
                put_bounds(&mut put, *length, "minItems", "maxItems");
            }
            Self::Map { values } => {
                put("type", json!("object"));
                put("additionalProperties", values.to_json());
            }
            Self::Table { entries, required } => {
                let entries = entries.iter().map(|(name, form)| (name.clone(), form.to_json()));
                put("type", json!("object"));
                put("properties", Value::Object(entries.collect()));
                put("additionalProperties", json!(false));
                put("required", json!(required));
            }
        }
        Value::Object(schema)
    }
}

/// The bounds of the 64-bit integers of TOML are no rule of ours.
fn integer(bound: i128) -> Value {
    let bound = i64::try_from(bound).ok().filter(|bound| ![i64::MIN, i64::MAX].contains(bound));
    json!(bound)
}

fn put_bounds(put: &mut impl FnMut(&str, Value), bounds: Bounds, minimum: &str, maximum: &str) {
    put(minimum, json!(bounds.minimum));
    put(maximum, json!(bounds.maximum));
}
