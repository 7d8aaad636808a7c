//! The configuration file, with the position of each key and value.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use super::location::{Location, OptionPath};
use super::mistake::{ConfigurationError, Mistake};

/// A parsed configuration file.
pub(super) struct SourceFile {
    /// The options by section, as JSON.
    pub(super) values: Value,
    text: String,
    path: Arc<Path>,
    /// The byte offset of each key, and that of its value.
    offsets: BTreeMap<OptionPath, (usize, usize)>,
}

impl SourceFile {
    /// Reads and parses the file. Fails if it cannot be read, or with all syntax errors.
    pub(super) fn read(path: &Path) -> Result<Self, ConfigurationError> {
        let unreadable = |source| ConfigurationError::Unreadable { path: path.to_owned(), source };
        let bytes = fs::read(path).map_err(unreadable)?;
        let path: Arc<Path> = path.into();
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes());
            vec![syntax_error(&path, &text, valid, "this is not UTF-8, as TOML must be".to_owned())]
        })?;
        let not_toml = |error: &toml::de::Error| {
            let start = error.span().unwrap_or_default().start;
            syntax_error(&path, &text, start, format!("this is not TOML: {}", error.message()))
        };
        let (table, errors) = DeTable::parse_recoverable(&text);
        if !errors.is_empty() {
            return Err(errors.iter().map(not_toml).collect::<Vec<_>>().into());
        }
        let mut offsets = BTreeMap::new();
        index_table(&OptionPath::default(), table.get_ref(), &mut offsets);
        let values = Value::deserialize(Deserializer::from(table)).map_err(|error| vec![not_toml(&error)])?;
        Ok(Self { values, text, path, offsets })
    }

    /// Returns the line and column of the key at `path` or, with `at_key` as `false`, of the value. If the file has no such key, they are
    /// those of the start of the file.
    pub(super) fn location(&self, path: &OptionPath, at_key: bool) -> Location {
        let (key, value) = self.offsets.get(path).copied().unwrap_or_default();
        locate(&self.path, &self.text, if at_key { key } else { value })
    }
}

/// Adds the offsets of all keys and values of a table to `offsets`.
fn index_table(path: &OptionPath, table: &DeTable<'_>, offsets: &mut BTreeMap<OptionPath, (usize, usize)>) {
    for (key, value) in table {
        index_value(path.key(key.get_ref()), key.span().start, value, offsets);
    }
}

/// Adds the positions of an option, and of all options within it, to `offsets`: those of the key and of the value, in bytes from the start of
/// the file. The key of an array item is the item itself.
fn index_value(
    path: OptionPath,
    key: usize,
    value: &Spanned<DeValue<'_>>,
    offsets: &mut BTreeMap<OptionPath, (usize, usize)>,
) {
    match value.get_ref() {
        DeValue::Table(table) => index_table(&path, table, offsets),
        DeValue::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                index_value(path.index(index), item.span().start, item, offsets);
            }
        }
        _ => {}
    }
    offsets.insert(path, (key, value.span().start));
}

/// Returns the mistake of a syntax error at a byte offset.
fn syntax_error(path: &Arc<Path>, text: &str, offset: usize, message: String) -> Mistake {
    Mistake { location: locate(path, text, offset), path: String::new(), message }
}

/// Converts a byte offset in `text`, the content of the file `path`, to a line and a column.
fn locate(path: &Arc<Path>, text: &str, offset: usize) -> Location {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    Location::File {
        path: Arc::clone(path),
        line: before.matches('\n').count() + 1,
        column: before[line_start..].chars().count() + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_not_bytes() {
        let path: Arc<Path> = Path::new("x.toml").into();
        let text = "a = 1\nname = \"è\"; b\n";
        let offset = text.find("; b").unwrap();
        assert_eq!(locate(&path, text, offset).to_string(), "x.toml:2:11");
        assert_eq!(locate(&path, text, 0).to_string(), "x.toml:1:1");
        assert_eq!(locate(&path, text, text.len()).to_string(), "x.toml:3:1");
    }
}
