//! From JSON Schema to [`Form`]. A word that this module does not know is refused, so that no rule of an option is
//! silently left unchecked.

use serde_json::{Map, Value};

use super::form::{Bounds, Choice, Form};
use super::format::Format;
use super::span::Span;

/// How deep tables may stand in tables; a type that contains itself goes deeper.
const MAX_DEPTH: usize = 16;

/// Words that explain and do not restrict.
const ANNOTATIONS: [&str; 8] =
    ["$schema", "$defs", "title", "description", "default", "examples", "writeOnly", SECRET];

/// The word by which an option is never shown.
pub(super) const SECRET: &str = "x-secret";

/// How deep options stand in the schema of their section. Each is shown or not shown as a whole.
const OPTIONS: usize = 1;

/// Reads schemas; `$ref`s point into `definitions`.
pub(super) struct Reader<'a> {
    pub(super) definitions: Option<&'a Map<String, Value>>,
}

impl Reader<'_> {
    /// The form of the section that `schema` describes, or the reason why it cannot be held against it.
    pub(super) fn section(&self, schema: &Value) -> Result<Form, String> {
        self.form_at(schema, 0)
    }

    /// The same for an option.
    pub(super) fn option(&self, schema: &Value) -> Result<Form, String> {
        self.form_at(schema, OPTIONS)
    }

    /// `schema` without the indirections that schemars makes: references resolved, `null` (which TOML does not have)
    /// dropped from the alternatives.
    pub(super) fn flat(&self, schema: &Value) -> Result<Map<String, Value>, String> {
        let mut words = schema.as_object().ok_or("it allows anything or nothing")?.clone();
        for _ in 0..MAX_DEPTH {
            let next = if let Some(reference) = words.remove("$ref") {
                self.definition(&reference)?.clone()
            } else if let Some(alternatives) = words.remove("anyOf") {
                sole(&alternatives).ok_or("it has several alternatives (anyOf)")?.clone()
            } else {
                return Ok(words);
            };
            let next = next.as_object().ok_or("it refers to a schema that allows anything")?.clone();
            next.into_iter().for_each(|(word, value)| {
                words.entry(word).or_insert(value);
            });
        }
        Err("it refers to itself".to_owned())
    }

    fn definition(&self, reference: &Value) -> Result<&Value, String> {
        let name = reference.as_str().and_then(|path| path.strip_prefix("#/$defs/"));
        let found = name.and_then(|name| self.definitions?.get(name));
        found.ok_or_else(|| format!("it refers to {reference}, which is nowhere defined"))
    }

    fn form_at(&self, schema: &Value, depth: usize) -> Result<Form, String> {
        if depth > MAX_DEPTH {
            return Err("it contains itself".to_owned());
        }
        let mut words = self.flat(schema)?;
        if depth != OPTIONS && words.contains_key(SECRET) {
            return Err(format!("only an option as a whole can be secret; move {SECRET:?} there"));
        }
        words.retain(|word, _| !ANNOTATIONS.contains(&word.as_str()));
        let form = self.take_form(&mut words, depth)?;
        match words.keys().next() {
            None => Ok(form),
            Some(word) => Err(format!("it uses the word {word:?}, which is not checked")),
        }
    }

    /// Takes the words that describe the form out of `words`.
    fn take_form(&self, words: &mut Map<String, Value>, depth: usize) -> Result<Form, String> {
        if let Some(format) = Format::of_schema(words) {
            words.clear();
            return Ok(Form::Text { format: Some(format), length: Bounds::default() });
        }
        if let Some(choices) = words.remove("oneOf").or_else(|| words.remove("enum")) {
            words.remove("type");
            return choices_of(&choices).ok_or_else(|| "it is a choice between more than names".to_owned());
        }
        let types = take_types(words);
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        match types.as_slice() {
            ["boolean"] => Ok(Form::Boolean),
            ["integer"] => take_integer(words),
            ["number"] => {
                words.remove("format");
                let mut bound = |word| words.remove(word).and_then(|bound| bound.as_f64());
                Ok(Form::Number { minimum: bound("minimum"), maximum: bound("maximum") })
            }
            ["integer", "string"] => take_span(words),
            ["string"] => take_text(words),
            ["array"] => {
                let items = words.remove("items").ok_or("it is an array of anything")?;
                Ok(Form::List {
                    items: Box::new(self.form_at(&items, depth + 1)?),
                    length: Bounds {
                        minimum: take_u64(words, "minItems"),
                        maximum: take_u64(words, "maxItems"),
                    },
                    unique: words.remove("uniqueItems").is_some_and(|unique| unique == true),
                })
            }
            ["object"] => self.take_object(words, depth),
            _ => Err(format!("it may be of the types {types:?}")),
        }
    }

    fn take_object(&self, words: &mut Map<String, Value>, depth: usize) -> Result<Form, String> {
        let rest = words.remove("additionalProperties");
        let required = words.remove("required");
        let Some(properties) = words.remove("properties") else {
            let values = rest.ok_or("it is a table of anything")?;
            return Ok(Form::Map { values: Box::new(self.form_at(&values, depth + 1)?) });
        };
        if rest.is_some_and(|rest| rest != false) {
            return Err("it has both known and unknown entries".to_owned());
        }
        let properties = properties.as_object().into_iter().flatten();
        let entry = |(name, schema): (&String, &Value)| Ok((name.clone(), self.form_at(schema, depth + 1)?));
        let required = required.as_ref().and_then(Value::as_array).into_iter().flatten();
        Ok(Form::Table {
            entries: properties.map(entry).collect::<Result<_, String>>()?,
            required: required.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        })
    }
}

/// The one alternative beside `null`.
fn sole(alternatives: &Value) -> Option<&Value> {
    let mut others = alternatives.as_array()?.iter().filter(|schema| schema["type"] != "null");
    others.next().filter(|_| others.next().is_none())
}

fn choices_of(choices: &Value) -> Option<Form> {
    let mut names = Vec::new();
    for choice in choices.as_array()? {
        let about = choice["description"].as_str().unwrap_or_default();
        let several = choice["enum"].as_array().map(Vec::as_slice);
        let one = std::slice::from_ref(choice.get("const").unwrap_or(choice));
        for name in several.unwrap_or(one).iter().filter(|name| !name.is_null()) {
            names.push(Choice { name: name.as_str()?.to_owned(), about: about.to_owned() });
        }
    }
    Some(Form::Choice(names))
}

fn take_types(words: &mut Map<String, Value>) -> Vec<String> {
    let types = words.remove("type").unwrap_or_default();
    let types = types.as_array().cloned().unwrap_or_else(|| vec![types]);
    let mut types: Vec<String> = types
        .iter()
        .filter_map(|name| name.as_str())
        .filter(|name| *name != "null")
        .map(str::to_owned)
        .collect();
    types.sort();
    types
}

fn take_u64(words: &mut Map<String, Value>, word: &str) -> Option<u64> {
    words.remove(word).and_then(|value| value.as_u64())
}

fn take_format(words: &mut Map<String, Value>) -> Option<String> {
    words.remove("format").and_then(|format| format.as_str().map(str::to_owned))
}

fn take_integer(words: &mut Map<String, Value>) -> Result<Form, String> {
    let format = take_format(words);
    let (least, most): (i128, i128) = match format.as_deref() {
        Some("int8") => (i8::MIN.into(), i8::MAX.into()),
        Some("int16") => (i16::MIN.into(), i16::MAX.into()),
        Some("int32") => (i32::MIN.into(), i32::MAX.into()),
        None | Some("int64" | "int") => (i64::MIN.into(), i64::MAX.into()),
        Some("uint8") => (0, u8::MAX.into()),
        Some("uint16") => (0, u16::MAX.into()),
        Some("uint32") => (0, u32::MAX.into()),
        // TOML's own integers end there.
        Some("uint64" | "uint") => (0, i64::MAX.into()),
        Some(other) => return Err(format!("it has the format {other:?}, which is not checked")),
    };
    let mut bound = |word| words.remove(word).and_then(|bound| bound.as_i64()).map(i128::from);
    Ok(Form::Integer {
        minimum: bound("minimum").unwrap_or(least).max(least),
        maximum: bound("maximum").unwrap_or(most).min(most),
    })
}

fn take_text(words: &mut Map<String, Value>) -> Result<Form, String> {
    let format = take_format(words);
    let known = format.as_deref().map(|name| {
        Format::from_name(name).ok_or_else(|| format!("it has the format {name:?}, which is not checked"))
    });
    let length = Bounds { minimum: take_u64(words, "minLength"), maximum: take_u64(words, "maxLength") };
    Ok(Form::Text { format: known.transpose()?, length })
}

fn take_span(words: &mut Map<String, Value>) -> Result<Form, String> {
    if take_format(words).as_deref() != Some("span") {
        return Err("it may be an integer or a string".to_owned());
    }
    let mut bound = |word| {
        let text = words.remove(word);
        text.map(|text| serde_json::from_value::<Span>(text).map_err(|error| format!("its {word} {error}")))
            .transpose()
    };
    Ok(Form::Span { minimum: bound("x-minimum")?, maximum: bound("x-maximum")? })
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, schema_for};
    use serde_json::json;

    use super::*;

    fn read(schema: &Value) -> Result<Form, String> {
        Reader { definitions: schema["$defs"].as_object() }.section(schema)
    }

    #[derive(JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Everything {
        flag: bool,
        small: u8,
        big: u64,
        signed: Option<i32>,
        ratio: f64,
        wait: Option<Span>,
        address: std::net::IpAddr,
        subnet: Option<ipnet::IpNet>,
        router: ipnet::Ipv4Net,
        colour: Option<Colour>,
        names: Vec<String>,
        labels: std::collections::BTreeMap<String, u16>,
        inner: Inner,
        set: std::collections::BTreeSet<Colour>,
    }

    #[derive(JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Colour {
        /// Like blood.
        Red,
        Green,
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        /// It has a name.
        name: String,
    }

    #[test]
    fn what_schemars_writes_for_a_struct_of_options_is_understood() {
        let form = read(schema_for!(Everything).as_value()).unwrap();
        let Form::Table { entries, required } = form else { panic!("a struct is a table") };
        let colour = Form::choice([("Green", ""), ("Red", "Like blood.")]);
        let sorted = |form: &Form| match form.clone() {
            Form::Choice(mut choices) => {
                choices.sort_by(|left, right| left.name.cmp(&right.name));
                Form::Choice(choices)
            }
            other => other,
        };
        assert_eq!(entries["small"], Form::Integer { minimum: 0, maximum: 255 });
        assert_eq!(entries["signed"], Form::Integer { minimum: i32::MIN.into(), maximum: i32::MAX.into() });
        assert_eq!(entries["wait"], Form::Span { minimum: None, maximum: None });
        assert_eq!(entries["address"], Form::Text { format: Some(Format::Ip), length: Bounds::default() });
        assert_eq!(
            entries["subnet"],
            Form::Text { format: Some(Format::IpNetwork), length: Bounds::default() }
        );
        assert_eq!(
            entries["router"],
            Form::Text { format: Some(Format::Ipv4Network), length: Bounds::default() }
        );
        assert_eq!(sorted(&entries["colour"]), colour);
        assert!(matches!(&entries["set"], Form::List { items, unique: true, .. } if sorted(items) == colour));
        assert!(matches!(&entries["labels"], Form::Map { .. }));
        assert!(matches!(&entries["inner"], Form::Table { required, .. } if required == &["name"]));
        assert!(required.contains(&"flag".to_owned()) && !required.contains(&"wait".to_owned()));
    }

    #[test]
    fn a_rule_that_nobody_checks_is_refused() {
        let refused = [
            json!({"type": "string", "pattern": "^a"}),
            json!({"type": "string", "format": "uri"}),
            json!({"type": "integer", "multipleOf": 2}),
            json!({"type": ["string", "integer"]}),
            json!({"anyOf": [{"type": "string"}, {"type": "boolean"}]}),
            json!({"oneOf": [{"type": "object", "properties": {}}]}),
            json!({"type": "array"}),
            json!({"$ref": "#/$defs/Nowhere"}),
            json!({"$ref": "#/$defs/Loop", "$defs": {"Loop": {"$ref": "#/$defs/Loop"}}}),
            json!(true),
        ];
        for schema in refused {
            assert!(read(&schema).is_err(), "{schema}");
        }
    }
}
