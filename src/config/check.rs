//! Holds what a file or a variable says against the schema, and finds every mistake.

use super::form::{Bounds, Choice, Form};
use super::mistake::Mistake;
use super::nearest::{list, nearest};
use super::node::{Key, Node, Shape, Table};
use super::place::Place;
use super::schema::{FileSchema, OptionSchema, SectionSchema};
use super::span::Span;

/// Adds to `mistakes` whatever is wrong with the sections of a file.
pub(super) fn check_file(schema: &FileSchema, file: &Table, mistakes: &mut Vec<Mistake>) {
    for (key, node) in file {
        match (schema.section(&key.name), &node.shape) {
            (None, _) => mistakes.push(unknown_section(schema, key)),
            (Some(section), Shape::Table(options)) => check_section(schema, section, options, mistakes),
            (Some(section), shape) => mistakes.push(Mistake {
                place: node.place.clone(),
                path: section.name.clone(),
                what: format!("must be a section, [{}], not {}", section.name, shape.describe()),
            }),
        }
    }
}

/// Adds to `mistakes` whatever is wrong with the value of an option.
pub(super) fn check_option(option: &OptionSchema, path: &str, node: &Node, mistakes: &mut Vec<Mistake>) {
    Checker { secret: option.secret, mistakes }.value(&option.form, node, path);
}

fn check_section(schema: &FileSchema, section: &SectionSchema, options: &Table, mistakes: &mut Vec<Mistake>) {
    for (key, node) in options {
        let path = format!("{}.{}", section.name, key.name);
        match section.option(&key.name) {
            Some(option) => check_option(option, &path, node, mistakes),
            None => mistakes.push(unknown_option(schema, section, key, path)),
        }
    }
}

fn unknown_section(schema: &FileSchema, key: &Key) -> Mistake {
    let home = schema.sections.iter().find(|section| section.option(&key.name).is_some());
    let remedy = match (nearest(&key.name, schema.section_names()), home) {
        (_, Some(home)) => format!("{:?} is an option of [{}]", key.name, home.name),
        (Some(name), None) => format!("did you mean [{name}]?"),
        (None, None) => format!("the sections are {}", list(schema.section_names())),
    };
    Mistake {
        place: key.place.clone(),
        path: key.name.clone(),
        what: format!("there is no such section; {remedy}"),
    }
}

pub(super) fn unknown_option(
    schema: &FileSchema,
    section: &SectionSchema,
    key: &Key,
    path: String,
) -> Mistake {
    let home = schema.sections.iter().find(|section| section.option(&key.name).is_some());
    let remedy = match (nearest(&key.name, section.option_names()), home) {
        (_, Some(home)) => format!("it is an option of [{}]", home.name),
        (Some(name), None) => format!("did you mean {name:?}?"),
        (None, None) => format!("the options of [{}] are {}", section.name, list(section.option_names())),
    };
    Mistake { place: key.place.clone(), path, what: format!("there is no such option; {remedy}") }
}

struct Checker<'a> {
    secret: bool,
    mistakes: &'a mut Vec<Mistake>,
}

impl Checker<'_> {
    fn value(&mut self, form: &Form, node: &Node, path: &str) {
        let place = &node.place;
        match (form, &node.shape) {
            (Form::Boolean, Shape::Boolean(_)) => {}
            (Form::Integer { minimum, maximum }, Shape::Integer(number)) => {
                self.within(Some(minimum), Some(maximum), number, place, path);
            }
            (Form::Number { minimum, maximum }, Shape::Float(number)) => {
                self.number(*minimum, *maximum, *number, place, path);
            }
            #[expect(clippy::cast_precision_loss, reason = "an option of type number is a float in the end")]
            (Form::Number { minimum, maximum }, Shape::Integer(number)) => {
                self.number(*minimum, *maximum, *number as f64, place, path);
            }
            (Form::Span { minimum, maximum }, Shape::String(_) | Shape::Integer(_)) => {
                let span = match &node.shape {
                    Shape::Integer(seconds) => Span::try_from(*seconds),
                    Shape::String(text) => text.parse(),
                    _ => unreachable!("the pattern has only these"),
                };
                match span {
                    Ok(span) => self.within(minimum.as_ref(), maximum.as_ref(), &span, place, path),
                    Err(error) => self.wrong(place, path, format!("{} {error}", self.quote(&node.shape))),
                }
            }
            (Form::Text { format, length }, Shape::String(text)) => {
                self.length(*length, text.chars().count(), "character", place, path);
                if let Some(Err(wrong)) = format.map(|format| format.check(text)) {
                    self.wrong(place, path, format!("{} {wrong}", self.quote(&node.shape)));
                }
            }
            (Form::Choice(choices), Shape::String(name)) => self.choice(choices, name, place, path),
            (Form::List { items, length, unique }, Shape::Array(nodes)) => {
                self.length(*length, nodes.len(), "entry", place, path);
                for (index, item) in nodes.iter().enumerate() {
                    self.value(items, item, &format!("{path}[{index}]"));
                    if *unique && nodes[..index].iter().any(|earlier| earlier.shape == item.shape) {
                        let what = format!("{} stands there twice", self.quote(&item.shape));
                        self.wrong(&item.place, &format!("{path}[{index}]"), what);
                    }
                }
            }
            (Form::Map { values }, Shape::Table(table)) => {
                for (key, value) in table {
                    self.value(values, value, &format!("{path}.{}", key.name));
                }
            }
            (Form::Table { entries, required }, Shape::Table(table)) => {
                for (key, value) in table {
                    let path = format!("{path}.{}", key.name);
                    if let Some(form) = entries.get(&key.name) {
                        self.value(form, value, &path);
                    } else {
                        let known = || entries.keys().map(String::as_str);
                        let remedy = nearest(&key.name, known()).map_or_else(
                            || format!("known are {}", list(known())),
                            |name| format!("did you mean {name:?}?"),
                        );
                        self.wrong(&key.place, &path, format!("there is no such entry; {remedy}"));
                    }
                }
                for name in required.iter().filter(|name| !table.iter().any(|(key, _)| key.name == **name)) {
                    self.wrong(place, path, format!("the entry {name:?} is missing"));
                }
            }
            (form, shape) => {
                self.wrong(place, path, format!("must be {}, not {}", form.describe(), shape.describe()));
            }
        }
    }

    fn number(&mut self, minimum: Option<f64>, maximum: Option<f64>, number: f64, place: &Place, path: &str) {
        if number.is_finite() {
            self.within(minimum.as_ref(), maximum.as_ref(), &number, place, path);
        } else {
            self.wrong(place, path, "must be finite".to_owned());
        }
    }

    fn within<T: PartialOrd + std::fmt::Display>(
        &mut self,
        minimum: Option<&T>,
        maximum: Option<&T>,
        value: &T,
        place: &Place,
        path: &str,
    ) {
        let not = if self.secret { String::new() } else { format!(", not {value}") };
        if let Some(minimum) = minimum.filter(|minimum| value < *minimum) {
            self.wrong(place, path, format!("must be at least {minimum}{not}"));
        }
        if let Some(maximum) = maximum.filter(|maximum| value > *maximum) {
            self.wrong(place, path, format!("must be at most {maximum}{not}"));
        }
    }

    fn length(&mut self, bounds: Bounds, count: usize, unit: &str, place: &Place, path: &str) {
        let units = |number: u64| match (number, unit) {
            (1, unit) => format!("1 {unit}"),
            (number, "entry") => format!("{number} entries"),
            (number, unit) => format!("{number} {unit}s"),
        };
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        if let Some(minimum) = bounds.minimum.filter(|minimum| count < *minimum) {
            self.wrong(place, path, format!("must have at least {}, not {count}", units(minimum)));
        }
        if let Some(maximum) = bounds.maximum.filter(|maximum| count > *maximum) {
            self.wrong(place, path, format!("must have at most {}, not {count}", units(maximum)));
        }
    }

    fn choice(&mut self, choices: &[Choice], name: &str, place: &Place, path: &str) {
        let known = || choices.iter().map(|choice| choice.name.as_str());
        if known().any(|choice| choice == name) {
            return;
        }
        let value = self.quote(&Shape::String(name.to_owned()));
        let hint =
            nearest(name, known()).map(|name| format!(" (did you mean {name:?}?)")).unwrap_or_default();
        let known = if choices.is_empty() { "none".to_owned() } else { list(known()) };
        self.wrong(place, path, format!("there is no {value}{hint}; known are {known}"));
    }

    /// The value as a message quotes it.
    fn quote(&self, shape: &Shape) -> String {
        if self.secret { "the value".to_owned() } else { shape.to_json().to_string() }
    }

    fn wrong(&mut self, place: &Place, path: &str, what: String) {
        self.mistakes.push(Mistake { place: place.clone(), path: path.to_owned(), what });
    }
}
