//! Label selectors: `a=b, c!=d, e in (x,y), f notin (z), g, !h, i>1`.

use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Greater(i64),
    Less(i64),
}

impl Requirement {
    pub(super) fn holds(&self, labels: &Value) -> bool {
        let value = labels[&self.key].as_str();
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|wanted| wanted == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|unwanted| unwanted != value)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Greater(bound) => number().is_some_and(|value| value > *bound),
            Test::Less(bound) => number().is_some_and(|value| value < *bound),
        }
    }
}

/// Reads a selector; the error quotes the requirement that cannot be read.
pub(super) fn parse(selector: &str) -> Result<Vec<Requirement>, String> {
    requirements(selector).into_iter().map(|text| requirement(text.trim())).collect()
}

/// Splits at the commas that stand outside of parentheses.
fn requirements(selector: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let parts = selector.split(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.filter(|part| !part.trim().is_empty()).collect()
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let made = |key: &str, test| {
        let key = key.trim();
        let readable = !key.is_empty() && !key.contains(|c: char| c.is_whitespace() || "()!=<>,".contains(c));
        if readable { Ok(Requirement { key: key.into(), test }) } else { Err(format!("{text:?}")) }
    };
    let number = |bound: &str| bound.trim().parse().map_err(|_| format!("{text:?}: not a number"));
    if let Some(key) = text.strip_prefix('!') {
        return made(key, Test::Absent);
    }
    if let Some((head, values)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => made(key, Test::In(values)),
            (Some(key), Some("notin"), None) => made(key, Test::NotIn(values)),
            _ => Err(format!("{text:?}")),
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return made(key, Test::NotIn(vec![value.trim().into()]));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return made(key, Test::In(vec![value.trim().into()]));
    }
    if let Some((key, bound)) = text.split_once('>') {
        return made(key, Test::Greater(number(bound)?));
    }
    if let Some((key, bound)) = text.split_once('<') {
        return made(key, Test::Less(number(bound)?));
    }
    made(text, Test::Exists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn selects(selector: &str) -> bool {
        let labels = json!({"app": "web", "tier": "2"});
        parse(selector).unwrap().iter().all(|requirement| requirement.holds(&labels))
    }

    #[test]
    fn every_operator_selects_what_it_says() {
        for yes in [
            "",
            "app=web",
            "app==web",
            "app!=db",
            "app in (db, web)",
            "app notin (db)",
            "app",
            "!gone",
            "tier>1",
            "tier<3",
            "gone!=x",
            "gone notin (a,b)",
            "app in (web),tier=2",
        ] {
            assert!(selects(yes), "{yes}");
        }
        for no in ["app=db", "app!=web", "app in (db)", "app notin (web)", "gone", "!app", "tier>2", "gone=x"]
        {
            assert!(!selects(no), "{no}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for nonsense in ["a in b", "a isnt (b)", "=x", "a>b", "a b"] {
            assert!(parse(nonsense).is_err(), "{nonsense}");
        }
    }
}
