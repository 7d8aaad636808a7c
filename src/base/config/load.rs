//! Loads the configuration. The file overrides the defaults, and the environment overrides the file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use config::Config;
use serde::Deserialize;
use serde_json::Value;

use super::check::check;
use super::environment;
use super::file::SourceFile;
use super::location::{Location, OptionPath};
use super::mistake::{ConfigurationError, Mistake};
use super::schema::{FileSchema, REMOVED};
use super::sections::{
    AdminOptions, EventsOptions, KubernetesOptions, LeaderElectionOptions, LogOptions, RelayOptions,
    ShutdownOptions, TraceOptions, WebhookOptions,
};
use super::span::TimeSpan;

/// The configuration file that is read if it exists and the command line names no other file.
pub const DEFAULT_FILE: &str = "/etc/staffetta/staffetta.toml";

/// The checked options of all sections.
#[derive(Clone, Deserialize)]
pub struct Configuration {
    /// Every section with every option, as handlers and drivers get them. The value contains secrets.
    #[serde(skip)]
    pub value: Value,
    /// The section `[kubernetes]`, without the names of the drivers.
    pub kubernetes: KubernetesOptions,
    /// The section `[relay]`.
    pub relay: RelayOptions,
    /// The section `[leader_election]`.
    pub leader_election: LeaderElectionOptions,
    /// The section `[events]`.
    pub events: EventsOptions,
    /// The section `[admin]`.
    pub admin: AdminOptions,
    /// The section `[webhook]`.
    #[serde(default)]
    pub webhook: WebhookOptions,
    /// The section `[log]`.
    pub log: LogOptions,
    /// The section `[traces]`.
    #[serde(default)]
    pub traces: TraceOptions,
    /// The section `[shutdown]`.
    pub shutdown: ShutdownOptions,
    /// The options that are set but have no effect, because this release removed them.
    #[serde(skip)]
    pub removed: Vec<Mistake>,
    /// The location of each option that the file or the environment sets.
    #[serde(skip)]
    pub(super) origins: BTreeMap<OptionPath, Location>,
}

/// Omits `value`, which may contain secrets.
impl fmt::Debug for Configuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Configuration")
            .field("kubernetes", &self.kubernetes)
            .field("origins", &self.origins)
            .finish_non_exhaustive()
    }
}

/// Returns the configuration file to read: `named`, or else [`DEFAULT_FILE`] if it exists; `None` to read no file. If it is not known
/// whether [`DEFAULT_FILE`] exists, because it cannot be accessed, it is returned too, and the error occurs when it is loaded.
pub fn choose_file(named: Option<PathBuf>) -> Option<PathBuf> {
    named.or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.try_exists().unwrap_or(true)))
}

impl Configuration {
    /// Loads and checks the configuration from `file`, and from those of the `variables` that set options. Fails if the file cannot be
    /// read or if there are mistakes. The error then lists all syntax errors of the file, or all unknown names and values outside their
    /// limits, or all contradictions between options.
    pub fn load(
        schema: &FileSchema,
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigurationError> {
        let mut file = file.map(SourceFile::read).transpose()?;
        let mut mistakes = Vec::new();
        let mut environment = environment::read(schema, variables, &mut mistakes);
        let mut removed = take_removed(&mut environment, |path| environment::location(&Value::Null, path));
        if let Some(file) = &mut file {
            let mut values = std::mem::take(&mut file.values);
            removed.extend(take_removed(&mut values, |path| file.location(path, true)));
            file.values = values;
        }
        let in_environment = |path: &OptionPath, _| environment::location(&environment, path);
        mistakes.extend(check(schema, &environment, in_environment));
        if let Some(file) = &file {
            mistakes.extend(check(schema, &file.values, |path, at_key| file.location(path, at_key)));
        }
        fail_if_any(mistakes)?;

        let value = merge(schema, file.as_ref(), &environment).map_err(ConfigurationError::Inconsistent)?;
        let sections = Self::deserialize(&value);
        let sections = sections.map_err(|error| ConfigurationError::Inconsistent(error.into()))?;
        let origins = origins(file.as_ref(), &environment);
        let configuration = Self { value, removed, origins, ..sections };
        fail_if_any(configuration.contradictions())?;
        Ok(configuration)
    }

    /// Replaces `kubernetes.kubeconfig`, if `kubeconfig` is given on the command line.
    pub(crate) fn override_kubeconfig(&mut self, kubeconfig: Option<PathBuf>) {
        self.kubernetes.kubeconfig = kubeconfig.or(self.kubernetes.kubeconfig.take());
    }

    /// Returns a mistake for each pair of options that are valid separately but not together. One of the two has a location, because the
    /// defaults are valid together.
    fn contradictions(&self) -> Vec<Mistake> {
        /// The pairs of options of which one must not exceed the other: the section, the option with the
        /// lower value, the option with the higher value, and `true` if both values may be equal.
        const PAIRS: [(&str, &str, &str, bool); 4] = [
            ("relay", "retry_interval", "retry_max_interval", true),
            ("relay", "failed_resync", "failed_resync_max", true),
            ("leader_election", "renew_deadline", "lease_duration", false),
            ("leader_election", "retry_period", "renew_deadline", false),
        ];
        let mistake = |(section, lower, higher, may_be_equal): (&str, &str, &str, bool)| {
            let span = |option: &str| TimeSpan::deserialize(&self.value[section][option]).ok();
            let (low, high) = (span(lower)?, span(higher)?);
            if low < high || (may_be_equal && low == high) {
                return None;
            }
            let origin = |option: &str| self.origins.get(&OptionPath::of(section, option)).cloned();
            let location = origin(lower).or_else(|| origin(higher))?;
            let relation = if may_be_equal { "more than" } else { "not less than" };
            let message = format!("{low} is {relation} {section}.{higher}, which is {high}");
            Some(Mistake { location, path: format!("{section}.{lower}"), message })
        };
        PAIRS.into_iter().filter_map(mistake).collect()
    }
}

/// Removes the options from `sections` that this release removed. Returns a warning for each, with the location of its key.
fn take_removed(sections: &mut Value, locate: impl Fn(&OptionPath) -> Location) -> Vec<Mistake> {
    let mut warnings = Vec::new();
    for (section, option, reason) in REMOVED {
        let path = OptionPath::of(section, option);
        let options = sections.get_mut(section).and_then(Value::as_object_mut);
        if options.and_then(|options| options.remove(option)).is_some() {
            let message = format!("this option has no effect any more and should be removed: {reason}");
            warnings.push(Mistake { location: locate(&path), path: path.to_string(), message });
        }
    }
    warnings
}

/// Merges the defaults, the file and the environment, option by option. The environment has precedence over the file. A table replaces the
/// one with lower precedence: the crate config would merge the tables of two sources.
fn merge(
    schema: &FileSchema,
    file: Option<&SourceFile>,
    environment: &Value,
) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
    let defaults = schema.sections.iter().flat_map(|section| {
        section.options.iter().map(|option| (OptionPath::of(&section.name, &option.name), &option.default))
    });
    let in_file = file.into_iter().flat_map(|file| options(&file.values));
    let mut builder = Config::builder();
    for (path, value) in defaults.chain(in_file).chain(options(environment)) {
        let value: config::Value = serde_json::from_value(value.clone())?;
        builder = builder.set_override(path.to_string(), value)?;
    }
    Ok(builder.build()?.try_deserialize()?)
}

/// Returns the location of each option that the file or the environment sets.
fn origins(file: Option<&SourceFile>, environment: &Value) -> BTreeMap<OptionPath, Location> {
    let in_file = file
        .into_iter()
        .flat_map(|file| options(&file.values).map(|(path, _)| (path.clone(), file.location(&path, false))));
    let in_environment =
        options(environment).map(|(path, _)| (path.clone(), environment::location(environment, &path)));
    in_file.chain(in_environment).collect()
}

/// Lists the options in `sections`, each with its path and its value.
fn options(sections: &Value) -> impl Iterator<Item = (OptionPath, &Value)> {
    sections.as_object().into_iter().flatten().flat_map(|(section, options)| {
        let options = options.as_object().into_iter().flatten();
        options.map(|(option, value)| (OptionPath::of(section, option), value))
    })
}

/// Fails with `mistakes` if there are any.
fn fail_if_any(mistakes: Vec<Mistake>) -> Result<(), ConfigurationError> {
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes.into()) }
}
