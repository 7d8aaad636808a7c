//! The query of a URL.

use crate::data::percent_decoded;

/// Its names and values, in order.
pub(super) fn parameters(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let parameter = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (percent_decoded(name), percent_decoded(value))
    };
    pairs.map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_apart_and_decoded() {
        let expected = [("fields", "app(name;details/state)"), ("content", "all"), ("depth", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parameters("fields=app%28name%3Bdetails%2fstate)&content=all&&depth"), expected);
        assert_eq!(parameters(""), []);
    }
}
