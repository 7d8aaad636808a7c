//! From the file and the environment to a [`Configuration`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs, io};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::check::check_file;
use super::contradiction::Pair;
use super::environment;
use super::layer::merge;
use super::mistake::Mistake;
use super::node::{Shape, Table, document};
use super::place::{Locator, Place};
use super::schema::{FileSchema, SchemaError};
use super::sections::{Admin, Events, Kubernetes, LeaderElection, Log, Relay, Shutdown};

/// The file that is read when none is named, if it exists.
pub const DEFAULT_FILE: &str = "/etc/staffetta/staffetta.toml";

/// What the program is told to do: defaults, over them the file, over it the environment. Everything in it was checked.
#[derive(Clone)]
pub struct Configuration {
    /// Every section with every option, as handlers and drivers get it: secrets too.
    pub value: Value,
    /// `[kubernetes]`, without the names of the drivers.
    pub kubernetes: Kubernetes,
    /// `[relay]`.
    pub relay: Relay,
    /// `[leader_election]`.
    pub leader_election: LeaderElection,
    /// `[events]`.
    pub events: Events,
    /// `[admin]`.
    pub admin: Admin,
    /// `[log]`.
    pub log: Log,
    /// `[shutdown]`.
    pub shutdown: Shutdown,
    /// Where each option was set that is not left to its default, by section and name.
    pub(super) origins: BTreeMap<(String, String), Place>,
}

/// Without `value`, which may hold secrets; the program's own sections have none.
impl fmt::Debug for Configuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Configuration")
            .field("kubernetes", &self.kubernetes)
            .field("relay", &self.relay)
            .field("leader_election", &self.leader_election)
            .field("events", &self.events)
            .field("admin", &self.admin)
            .field("log", &self.log)
            .field("shutdown", &self.shutdown)
            .field("origins", &self.origins)
            .finish_non_exhaustive()
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in it is wrong.
    #[error("{0}")]
    Mistakes(Mistakes),
    /// The program itself is wrong.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// What passed every check does not fit the program's own types: the schema and the type disagree.
    #[error("the configuration passed every check but does not fit")]
    Unfit(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Everything that is wrong with a configuration, in the order of the file.
#[derive(Debug)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|mistake| writeln!(formatter, "{mistake}"))?;
        let count = self.0.len();
        write!(formatter, "{count} {} in the configuration", if count == 1 { "mistake" } else { "mistakes" })
    }
}

/// The file to read: the one that was named, else [`DEFAULT_FILE`] where it exists.
pub fn choose_file(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists()))
}

impl Configuration {
    /// Reads `file` and those of the `variables` that are options, and holds both against `schema`. All mistakes are
    /// reported at once.
    pub fn load(
        schema: &FileSchema,
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigurationError> {
        let mut mistakes = Vec::new();
        let file = file.map(|path| read(schema, path, &mut mistakes)).transpose()?.unwrap_or_default();
        let environment = environment::read(schema, variables, &mut mistakes);
        refuse(mistakes)?;

        let layers = [schema.defaults(), to_json(&file), to_json(&environment)];
        let value = merge(layers).map_err(|error| ConfigurationError::Unfit(error.into()))?;
        let configuration = Self {
            kubernetes: section(&value, "kubernetes")?,
            relay: section(&value, "relay")?,
            leader_election: section(&value, "leader_election")?,
            events: section(&value, "events")?,
            admin: section(&value, "admin")?,
            log: section(&value, "log")?,
            shutdown: section(&value, "shutdown")?,
            value,
            origins: [&file, &environment].into_iter().flat_map(origins).collect(),
        };
        refuse(configuration.contradictions())?;
        Ok(configuration)
    }

    /// What fits by itself but not together. Defaults do not contradict each other, so one of each pair has a place.
    fn contradictions(&self) -> Vec<Mistake> {
        let mistake = |pair: Pair| {
            let place =
                |option: &str| self.origins.get(&(pair.section.to_owned(), option.to_owned())).cloned();
            let what = pair.contradiction()?;
            let (low, high) = (pair.low.0, pair.high.0);
            Some(Mistake {
                place: place(low).or_else(|| place(high))?,
                path: format!("{}.{low}", pair.section),
                what,
            })
        };
        Pair::all(&self.relay, &self.leader_election).into_iter().filter_map(mistake).collect()
    }
}

/// Reads and checks the file.
fn read(schema: &FileSchema, path: &Path, mistakes: &mut Vec<Mistake>) -> Result<Table, ConfigurationError> {
    let unreadable = |source| ConfigurationError::Unreadable { path: path.to_owned(), source };
    let bytes = fs::read(path).map_err(unreadable)?;
    let name: Arc<Path> = path.into();
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = error.valid_up_to();
            let text = String::from_utf8_lossy(&bytes[..valid]);
            let place = Locator::File { path: name, text: &text }.place(&(valid..valid));
            let what = "this is not UTF-8, as TOML must be".to_owned();
            mistakes.push(Mistake { place, path: String::new(), what });
            return Ok(Table::new());
        }
    };
    let file = document(text, name, mistakes);
    let guesses = Guesses::new(text, mistakes);
    let mut found = Vec::new();
    check_file(schema, &file, &mut found);
    mistakes.extend(found.into_iter().filter(|mistake| !guesses.contain(mistake)));
    Ok(file)
}

/// Where the parser had to guess: on a line whose syntax is wrong, and in a section whose header is.
struct Guesses<'a> {
    lines: Vec<&'a str>,
    wrong: Vec<usize>,
}

impl<'a> Guesses<'a> {
    fn new(text: &'a str, syntax: &[Mistake]) -> Self {
        Self { lines: text.lines().collect(), wrong: syntax.iter().filter_map(line).collect() }
    }

    fn contain(&self, mistake: &Mistake) -> bool {
        let Some(line) = line(mistake) else { return false };
        let header =
            |line: &usize| self.lines.get(line - 1).is_some_and(|text| text.trim_start().starts_with('['));
        let guessed = |line: &usize| self.wrong.contains(line);
        guessed(&line) || (1..line).rev().find(header).is_some_and(|header| guessed(&header))
    }
}

fn line(mistake: &Mistake) -> Option<usize> {
    match mistake.place {
        Place::File { line, .. } => Some(line),
        Place::Environment { .. } => None,
    }
}

fn refuse(mut mistakes: Vec<Mistake>) -> Result<(), ConfigurationError> {
    mistakes.sort();
    if mistakes.is_empty() { Ok(()) } else { Err(ConfigurationError::Mistakes(Mistakes(mistakes))) }
}

fn to_json(sections: &Table) -> Value {
    let entries = sections.iter().map(|(key, node)| (key.name.clone(), node.shape.to_json()));
    Value::Object(entries.collect::<Map<_, _>>())
}

fn section<T: DeserializeOwned>(value: &Value, name: &str) -> Result<T, ConfigurationError> {
    T::deserialize(&value[name]).map_err(|error| ConfigurationError::Unfit(error.into()))
}

fn origins(sections: &Table) -> impl Iterator<Item = ((String, String), Place)> {
    sections.iter().flat_map(|(section, node)| {
        let options = if let Shape::Table(options) = &node.shape { options.as_slice() } else { &[] };
        options.iter().map(|(key, node)| ((section.name.clone(), key.name.clone()), node.place.clone()))
    })
}
