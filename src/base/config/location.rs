//! The location of a key or a value: as a path for programs, and as a line of the file or an environment variable for people.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use serde_path_to_error::Segment;

/// The location of a key or a value: a position in a file, or the environment variable that set the value. It is displayed as
/// `path:line:column` or `environment VARIABLE`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// A position in the configuration file. Lines and columns count from 1; a column is a number of characters.
    File {
        /// The path of the file, as it was given on the command line.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
    },
    /// An environment variable that set the value.
    Environment {
        /// The name of the environment variable.
        variable: String,
    },
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(formatter, "{}:{line}:{column}", path.display()),
            Self::Environment { variable } => write!(formatter, "environment {variable}"),
        }
    }
}

/// One step of a path from the root of the configuration to a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathStep {
    /// An entry of a table, by name.
    Key(String),
    /// An element of an array, from 0.
    Index(usize),
}

/// The path from the root of the configuration to a value. It is displayed in the form `kubernetes.enabled_handlers[1]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OptionPath(pub(super) Vec<PathStep>);

impl OptionPath {
    /// Returns the path of an option.
    pub(super) fn of(section: &str, option: &str) -> Self {
        Self::default().key(section).key(option)
    }

    /// Returns this path with a key appended.
    pub(super) fn key(&self, key: &str) -> Self {
        self.then(PathStep::Key(key.to_owned()))
    }

    /// Returns this path with an array index appended.
    pub(super) fn index(&self, index: usize) -> Self {
        self.then(PathStep::Index(index))
    }

    /// Returns this path with the path of a serde error appended.
    pub(super) fn join(&self, path: &serde_path_to_error::Path) -> Self {
        path.iter().fold(self.clone(), |joined, segment| match segment {
            Segment::Map { key } => joined.key(key),
            Segment::Seq { index } => joined.index(*index),
            Segment::Enum { .. } | Segment::Unknown => joined,
        })
    }

    /// Removes the table entry at this path. Returns `false` if there is no such entry.
    pub(super) fn remove_from(&self, root: &mut Value) -> bool {
        let [parents @ .., PathStep::Key(last)] = self.0.as_slice() else { return false };
        let parent = parents.iter().try_fold(root, |value, step| match step {
            PathStep::Key(key) => value.get_mut(key),
            PathStep::Index(index) => value.get_mut(index),
        });
        parent.and_then(Value::as_object_mut).is_some_and(|table| table.remove(last).is_some())
    }

    /// Returns the key at step `depth` of the path: 0 for the section, 1 for the option. Returns `None` if the path is shorter or has an
    /// index there.
    pub(super) fn key_at(&self, depth: usize) -> Option<&str> {
        self.0
            .get(depth)
            .and_then(|step| if let PathStep::Key(key) = step { Some(key.as_str()) } else { None })
    }

    /// Returns this path with one more step.
    fn then(&self, step: PathStep) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }
}

impl fmt::Display for OptionPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(depth, step)| match step {
            PathStep::Key(key) if depth == 0 => formatter.write_str(key),
            PathStep::Key(key) => write!(formatter, ".{key}"),
            PathStep::Index(index) => write!(formatter, "[{index}]"),
        })
    }
}
