//! Suggestions for misspelt names in the configuration.

use strsim::{damerau_levenshtein, jaro_winkler};

/// Returns the name in `known` that the user probably meant by `wrong`: a name with few typing errors, or with the same beginning.
/// Returns `None` if no name is similar enough.
pub(super) fn nearest<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let wrong = plain(wrong);
    let distance = |name: &str| damerau_levenshtein(&wrong, &plain(name));
    let near = |name: &&str| {
        distance(name) <= 1 + wrong.chars().count() / 4 || jaro_winkler(&wrong, &plain(name)) >= 0.9
    };
    known.into_iter().filter(near).min_by_key(|name| distance(name))
}

/// Formats names as a list for a message: `"a", "b", "c"`.
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: [&str; 4] =
        ["first_list_backlog", "retry_interval", "retry_max_interval", "allow_mass_release"];

    #[test]
    fn a_typing_error_finds_the_name() {
        assert_eq!(nearest("first_list_backlo", OPTIONS), Some("first_list_backlog"));
        assert_eq!(nearest("First-List-Backlog", OPTIONS), Some("first_list_backlog"));
        assert_eq!(nearest("retry_intervall", OPTIONS), Some("retry_interval"));
        assert_eq!(nearest("vfi", ["vif", "lb"]), Some("vif"));
    }

    #[test]
    fn a_name_that_is_far_from_all_others_finds_none() {
        assert_eq!(nearest("colour", OPTIONS), None);
        assert_eq!(nearest("x", ["vif", "lb"]), None);
    }
}
