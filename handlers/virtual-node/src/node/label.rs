//! The syntax of labels, by the rules of the API server.

/// The maximum length of the name in a label or taint key, and of a value, in characters.
pub(super) const LONGEST: usize = 63;

/// Returns `true` if the text is a valid key of a label or taint.
pub(crate) fn is_label_key(key: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    domain.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Returns `true` if the text is a valid value of a label or taint.
pub(crate) fn is_label_value(value: &str) -> bool {
    let ends = |letter: Option<char>| letter.is_none_or(|letter| letter.is_ascii_alphanumeric());
    let good = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    value.len() <= LONGEST
        && value.chars().all(good)
        && ends(value.chars().next())
        && ends(value.chars().next_back())
}

/// Returns `true` if the text is a subdomain (RFC 1123), as Kubernetes defines it: at most 253 characters.
pub(crate) fn is_subdomain(name: &str) -> bool {
    let label = |label: &str| {
        let good = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        !label.is_empty() && label.chars().all(good) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}
