//! Options from the environment: `STAFFETTA_SECTION__OPTION`.

use std::ffi::OsString;

use super::check::{check_option, unknown_option};
use super::form::Form;
use super::mistake::Mistake;
use super::nearest::nearest;
use super::node::{Key, Node, Shape, Table, value};
use super::place::{Locator, Place};
use super::schema::{FileSchema, OptionSchema};

const PREFIX: &str = "STAFFETTA_";

/// Reads the options among `variables` and adds to `mistakes` whatever is wrong with them. Variables without `__` are
/// not options: they belong to tests and to the command line.
pub(super) fn read(
    schema: &FileSchema,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    mistakes: &mut Vec<Mistake>,
) -> Table {
    let mut variables: Vec<_> = variables
        .into_iter()
        .filter_map(|(name, text)| {
            Some((name.into_string().ok().filter(|name| name.starts_with(PREFIX))?, text))
        })
        .collect();
    variables.sort();

    let mut sections: Table = Vec::new();
    for (name, text) in variables {
        let place = Place::Environment { variable: name.as_str().into() };
        let Some((section, key)) = name[PREFIX.len()..].split_once("__") else {
            mistakes.extend(single_underscore(schema, &name, place));
            continue;
        };
        let (section, key) = (section.to_lowercase(), key.to_lowercase());
        let Some(known) = schema.section(&section) else {
            let hint = nearest(&section, schema.section_names());
            let hint = hint.map(|name| format!("; did you mean {PREFIX}{}__...?", name.to_uppercase()));
            let what = format!("there is no such section{}", hint.unwrap_or_default());
            mistakes.push(Mistake { place, path: section, what });
            continue;
        };
        let path = format!("{section}.{key}");
        let key = Key { name: key, place: place.clone() };
        let Some(option) = known.option(&key.name) else {
            mistakes.push(unknown_option(schema, known, &key, path));
            continue;
        };
        match read_value(option, text, &place) {
            Ok(node) => {
                check_option(option, &path, &node, mistakes);
                add(&mut sections, section, key, node);
            }
            Err(what) => mistakes.push(Mistake { place, path, what }),
        }
    }
    sections
}

fn read_value(option: &OptionSchema, text: OsString, place: &Place) -> Result<Node, String> {
    let text = text.into_string().map_err(|_| "is not UTF-8".to_owned())?;
    shape(&option.form, &text, place).map(|shape| Node { place: place.clone(), shape })
}

/// `text` as the form wants it. Text that does not fit stays text, and the check says so.
fn shape(form: &Form, text: &str, place: &Place) -> Result<Shape, String> {
    let trimmed = text.trim();
    let read = match form {
        Form::Boolean => trimmed.parse().ok().map(Shape::Boolean),
        Form::Integer { .. } | Form::Span { .. } => trimmed.parse().ok().map(Shape::Integer),
        Form::Number { .. } => trimmed.parse().ok().map(Shape::Float),
        Form::Text { .. } | Form::Choice(_) => None,
        Form::List { items, .. } if !trimmed.starts_with('[') => {
            let words = trimmed.split(',').map(str::trim).filter(|word| !word.is_empty());
            let node = |word| Ok(Node { place: place.clone(), shape: shape(items, word, place)? });
            Some(Shape::Array(words.map(node).collect::<Result<_, String>>()?))
        }
        Form::List { .. } | Form::Map { .. } | Form::Table { .. } => {
            Some(value(trimmed, &Locator::Fixed(place.clone())).map_err(|mistake| mistake.what)?.shape)
        }
    };
    Ok(read.unwrap_or_else(|| Shape::String(text.to_owned())))
}

fn add(sections: &mut Table, section: String, key: Key, node: Node) {
    let known = sections.iter_mut().find(|(known, _)| known.name == section);
    if let Some((_, Node { shape: Shape::Table(options), .. })) = known {
        options.push((key, node));
    } else {
        let place = key.place.clone();
        let options = Node { place: place.clone(), shape: Shape::Table(vec![(key, node)]) };
        sections.push((Key { name: section, place }, options));
    }
}

/// `STAFFETTA_RELAY_QUEUE_DEPTH` is surely meant as an option, and would do nothing.
fn single_underscore(schema: &FileSchema, name: &str, place: Place) -> Option<Mistake> {
    let names = schema.sections.iter().flat_map(|section| {
        section.option_names().map(|option| format!("{PREFIX}{}__{}", section.name, option).to_uppercase())
    });
    let meant = names.into_iter().find(|known| known.replacen("__", "_", 1) == name)?;
    let what = format!("sets nothing; write {meant}, with two underscores after the section");
    Some(Mistake { place, path: String::new(), what })
}
