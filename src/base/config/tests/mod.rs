//! Tests of the whole configuration: from a file and an environment to mistakes or options.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_handler::{Registry, SetupError};

use super::*;

mod mistakes;
mod sample;
mod values;

trait Lamp: Send + Sync {}
struct Candle;
impl Lamp for Candle {}

/// The way the lamp burns.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct LampOptions {
    /// The brightness, in candelas.
    #[schemars(range(max = 90))]
    brightness: u8,
    /// The word that lights it.
    #[schemars(length(min = 8), example = "open sesame", extend("x-secret" = true))]
    password: Option<String>,
    /// The rooms in which it hangs.
    rooms: Vec<String>,
    /// The colour of each shade.
    shades: BTreeMap<String, u16>,
    /// The bulbs in it.
    bulbs: Vec<Bulb>,
}

/// A bulb of the lamp.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Bulb {
    socket: String,
    watts: u16,
}

impl Default for LampOptions {
    fn default() -> Self {
        let rooms = vec!["kitchen".to_owned()];
        Self { brightness: 60, password: None, rooms, shades: BTreeMap::new(), bulbs: Vec::new() }
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    register(&mut registry);
    for (name, about) in [("vif", "Plugs pods in."), ("lb", "Balances."), ("night", "Switches lamps.")] {
        registry
            .handler(name, about, |_| Err(SetupError::Invalid("a handler that is only named".to_owned())));
    }
    registry.driver_trait::<dyn Lamp>("lamp", "candle", "What lights the way.");
    registry.driver::<dyn Lamp>("candle", "Wax and a wick.", |_| Ok(Arc::new(Candle)));
    registry.driver::<dyn Lamp>("torch", "A stick.", |_| Ok(Arc::new(Candle)));
    registry.section::<LampOptions>("lamp");
    registry
}

fn schema() -> FileSchema {
    FileSchema::assemble(&registry()).unwrap()
}

fn load(text: &str, variables: &[(&str, &str)]) -> Result<Configuration, ConfigurationError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.toml");
    std::fs::write(&path, text).unwrap();
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Configuration::load(&schema(), Some(&path), variables)
}

/// Returns the mistakes, one on each line, with the name of the file instead of its path.
fn mistakes(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let mistakes = match load(text, variables) {
        Err(ConfigurationError::Mistakes(mistakes)) => mistakes,
        Err(other) => panic!("{other}"),
        Ok(_) => Vec::new(),
    };
    let bare = |mut mistake: Mistake| {
        if let Location::File { path, .. } = &mut mistake.location {
            *path = PathBuf::from("s.toml").into();
        }
        mistake.to_string()
    };
    mistakes.into_iter().map(bare).collect()
}
