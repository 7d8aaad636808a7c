//! The query parameter `fields` (RFC 8040, section 4.8.3), which reduces a response to some descendants of the resource.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Value};

/// The descendants that are asked for; none at all means everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, Fields)>);

/// No expression of that grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadFields;

impl Fields {
    /// Reads `app(name;details/state);app-globals`. Names may carry the module.
    pub(crate) fn parse(text: &str) -> Result<Self, BadFields> {
        let mut characters = text.chars().peekable();
        let fields = Self::expression(&mut characters)?;
        if characters.next().is_some() { Err(BadFields) } else { Ok(fields) }
    }

    fn expression(text: &mut Peekable<Chars<'_>>) -> Result<Self, BadFields> {
        let mut fields = Self::default();
        loop {
            fields.add(Self::path(text)?);
            if text.next_if_eq(&';').is_none() {
                return Ok(fields);
            }
        }
    }

    fn path(text: &mut Peekable<Chars<'_>>) -> Result<(String, Self), BadFields> {
        let mut name = String::new();
        while let Some(character) = text.next_if(|character| !matches!(character, '/' | '(' | ')' | ';')) {
            name.push(character);
        }
        if name.is_empty() {
            return Err(BadFields);
        }
        let name = name.rsplit(':').next().unwrap_or_default().to_owned();
        let below = match text.next_if(|character| matches!(character, '/' | '(')) {
            None => Self::default(),
            Some('/') => Self(vec![Self::path(text)?]),
            Some(_) => {
                let below = Self::expression(text)?;
                text.next_if_eq(&')').ok_or(BadFields)?;
                below
            }
        };
        Ok((name, below))
    }

    /// One more; of two with the same name the whole of both is asked for.
    fn add(&mut self, (name, below): (String, Self)) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            None => self.0.push((name, below)),
            Some((_, known)) if known.0.is_empty() || below.0.is_empty() => known.0.clear(),
            Some((_, known)) => below.0.into_iter().for_each(|one| known.add(one)),
        }
    }

    /// The names at the top, where any are asked for.
    pub(crate) fn only(&self) -> Option<&str> {
        match self.0.as_slice() {
            [(name, _)] => Some(name),
            _ => None,
        }
    }

    /// Returns the selected part of `value`.
    pub(crate) fn of(&self, value: &Value) -> Value {
        match value {
            _ if self.0.is_empty() => value.clone(),
            Value::Array(entries) => entries.iter().map(|entry| self.of(entry)).collect(),
            Value::Object(members) => {
                let kept = self.0.iter().filter_map(|(name, below)| {
                    members.get(name).map(|value| (name.clone(), below.of(value)))
                });
                Value::Object(kept.collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(fields: &str) -> Value {
        let value = json!({
            "app": [{ "name": "a", "details": { "state": "RUNNING", "guest": 1 }, "pkg-policy": "p" }],
            "app-globals": { "iox-enabled": true },
        });
        Fields::parse(fields).unwrap().of(&value)
    }

    #[test]
    fn only_what_is_asked_for_is_left() {
        assert_eq!(of("app-globals"), json!({ "app-globals": { "iox-enabled": true } }));
        let both = json!({ "app": [{ "name": "a", "details": { "state": "RUNNING" } }] });
        assert_eq!(of("app(name;details/state)"), both);
        assert_eq!(of("app/name;app/m:details(state)"), both);
        assert_eq!(of("nothing"), json!({}));
    }

    #[test]
    fn what_is_no_such_expression_is_refused() {
        for text in ["", "app(", "app()", "app;", "app)", "/app", "app//name", "app(name)x"] {
            assert_eq!(Fields::parse(text), Err(BadFields), "{text}");
        }
    }
}
