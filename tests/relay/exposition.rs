//! Parses the response of `/metrics`.

use std::collections::BTreeMap;

/// The samples of a page, and the forms of its families.
pub(crate) struct Exposition {
    pub(crate) samples: Vec<Sample>,
    pub(crate) forms: BTreeMap<String, String>,
}

/// One line of it.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    value: String,
}

impl Exposition {
    /// Reads a page of OpenMetrics; whatever is not as it must be fails the test.
    pub(crate) fn read(page: &str) -> Self {
        let body = page.strip_suffix("# EOF\n").expect("the page ends with its mark");
        let (mut samples, mut forms) = (Vec::new(), BTreeMap::new());
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, form) = rest.split_once(' ').unwrap();
                let other = forms.insert(name.to_owned(), form.to_owned());
                assert_eq!(other, None, "{name} is described twice");
            } else if !line.starts_with("# HELP ") && !line.starts_with("# UNIT ") {
                samples.push(sample(line));
            }
        }
        Self { samples, forms }
    }

    /// The value of the one series of that name that has these labels and no others.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.text(name, labels).parse().unwrap()
    }

    /// The same of a series that counts.
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let text = self.text(name, labels);
        let whole = text.strip_suffix(".0").unwrap_or(text);
        whole.parse().unwrap_or_else(|_| panic!("{name} {labels:?} counts nothing: {text}"))
    }

    fn text(&self, name: &str, labels: &[(&str, &str)]) -> &str {
        let wanted: BTreeMap<_, _> =
            labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
        let mut found = self.samples.iter().filter(|sample| sample.name == name && sample.labels == wanted);
        let sample = found.next().unwrap_or_else(|| panic!("there is no {name} {labels:?}"));
        assert!(found.next().is_none(), "there is more than one {name} {labels:?}");
        &sample.value
    }
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
    let (name, labels) = match series.split_once('{') {
        None => (series, BTreeMap::new()),
        Some((name, labels)) => {
            let labels = labels.strip_suffix("\"}").unwrap_or_else(|| panic!("no labels: {line}"));
            (name, labels.split("\",").map(label).collect())
        }
    };
    assert!(value.parse::<f64>().is_ok(), "no value: {line}");
    Sample { name: name.to_owned(), labels, value: value.to_owned() }
}

fn label(text: &str) -> (String, String) {
    let (name, value) = text.split_once("=\"").unwrap_or_else(|| panic!("no label: {text}"));
    (name.to_owned(), value.to_owned())
}
