//! Parses the Prometheus queries of the dashboard and the alerts: checks the syntax that they use, and returns the metrics and
//! labels that they read.

mod parse;
mod token;

use std::collections::BTreeSet;
use std::time::Duration;

/// A parsed query.
#[derive(Debug, Default)]
pub(crate) struct Query {
    /// The series that it reads.
    pub(crate) selectors: Vec<Selector>,
    /// The labels by which it groups or matches.
    pub(crate) labels: BTreeSet<String>,
}

/// The choice of series.
#[derive(Debug, Default)]
pub(crate) struct Selector {
    pub(crate) metric: String,
    pub(crate) matchers: Vec<Matcher>,
    /// The range of the series; `None` for an instant vector.
    pub(crate) range: Option<Range>,
}

/// A function of series over a length of time, and the length.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) function: String,
    pub(crate) length: Duration,
}

/// The choice by one label.
#[derive(Debug)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    pub(crate) operator: String,
    pub(crate) value: String,
}

/// A length of time of one unit, such as `5m`; as a rule says how long something must hold.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    token::duration(text)
}

/// Reads a query.
pub(crate) fn read(query: &str) -> Result<Query, String> {
    parse::parse(token::tokens(query)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::read;

    #[test]
    fn a_query_is_taken_apart() {
        let query = read(
            r#"histogram_quantile(0.99, sum by (job, le) (rate(wait_seconds_bucket{job="a", code=~"5.."}[5m]))) > 10
               and on (job) info unless ignoring (code) -max_over_time(x[1h]) * 2 == bool 1 or absent(y)"#,
        )
        .unwrap();
        let metrics: Vec<_> = query.selectors.iter().map(|selector| selector.metric.as_str()).collect();
        assert_eq!(metrics, ["wait_seconds_bucket", "info", "x", "y"]);
        assert_eq!(query.labels.iter().map(String::as_str).collect::<Vec<_>>(), ["code", "job", "le"]);
        let first = &query.selectors[0];
        let range = first.range.as_ref().unwrap();
        assert_eq!((range.function.as_str(), range.length), ("rate", Duration::from_secs(300)));
        assert_eq!((first.matchers[1].label.as_str(), first.matchers[1].operator.as_str()), ("code", "=~"));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for query in [
            "",
            "sum by job (x)",
            "rate(x)",
            "x[5m]",
            "sum(x",
            "x{a=b}",
            "x{a=\"b}",
            "rate(x[5])",
            "x and",
            "odd(x)",
            "x > > 1",
            "sum(x))",
            "x{a=\"b\" c=\"d\"}",
            "max_over_time(x[5m]",
            "rate(sum(x)[5m])",
            "x ? y",
        ] {
            assert!(read(query).is_err(), "`{query}` was taken");
        }
    }
}
