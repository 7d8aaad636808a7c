//! The layers of which the configuration is made, for the crate `config`, which lays one over the other.

use config::{Config, ConfigError, Map, Source, Value, ValueKind};
use serde_json::Value as Json;

/// One layer: the defaults, a file, the environment.
#[derive(Clone, Debug)]
struct Layer(Json);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(table(&self.0))
    }
}

/// Lays each layer over those before it: an option of a later one takes the place of an earlier one's.
pub(super) fn merge(layers: impl IntoIterator<Item = Json>) -> Result<Json, ConfigError> {
    let add = |builder: config::ConfigBuilder<config::builder::DefaultState>, layer| {
        builder.add_source(Layer(layer))
    };
    layers.into_iter().fold(Config::builder(), add).build()?.try_deserialize()
}

fn table(layer: &Json) -> Map<String, Value> {
    let entries = layer.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), Value::new(None, kind(value)))).collect()
}

fn kind(value: &Json) -> ValueKind {
    match value {
        Json::Null => ValueKind::Nil,
        Json::Bool(value) => ValueKind::Boolean(*value),
        Json::Number(number) => {
            let integer = number.as_i64().map(ValueKind::I64).or_else(|| number.as_u64().map(ValueKind::U64));
            integer.unwrap_or_else(|| ValueKind::Float(number.as_f64().unwrap_or(f64::NAN)))
        }
        Json::String(text) => ValueKind::String(text.clone()),
        Json::Array(items) => {
            ValueKind::Array(items.iter().map(|item| Value::new(None, kind(item))).collect())
        }
        Json::Object(_) => ValueKind::Table(table(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_later_layer_wins_option_by_option() {
        let defaults = json!({"a": {"x": 1, "y": [1, 2], "z": null}, "b": {"on": true}});
        let file = json!({"a": {"y": [3], "z": "Z"}});
        let environment = json!({"a": {"x": 1.5}});
        let merged = merge([defaults, file, environment]).unwrap();
        assert_eq!(merged, json!({"a": {"x": 1.5, "y": [3], "z": "Z"}, "b": {"on": true}}));
    }

    #[test]
    fn names_are_taken_literally() {
        let layer = json!({"a": {"labels": {"example.com/x[0]": 1, "Upper": 2}}});
        assert_eq!(merge([layer.clone()]).unwrap(), layer);
    }
}
