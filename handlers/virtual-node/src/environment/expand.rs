//! Expands `$(NAME)` in the value of an environment variable.

/// Expands references to other variables: `$(NAME)` is replaced by the value of a variable that was set before, and
/// `$$` by a dollar sign; a reference to an unknown variable stays as it is (Kubernetes API, `EnvVar.value`). Returns
/// `None` if the result exceeds `most` bytes: a variable that references another one twice doubles its length, so a
/// short list could grow exponentially.
pub(super) fn expand<'a>(text: &str, most: usize, value: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let mut expanded = String::new();
    let mut rest = text;
    // No reference begins after the last `)`, so that a text is scanned once, however many `$(` it has.
    let last = text.rfind(')').unwrap_or_default();
    let is_closed = |inner: &&str| text.len() - inner.len() <= last;
    while let Some(dollar) = rest.find('$') {
        expanded.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) =
            rest.strip_prefix('(').filter(is_closed).and_then(|inner| inner.split_once(')'))
        {
            if let Some(value) = value(name) {
                expanded.push_str(value);
            } else {
                expanded.push_str("$(");
                expanded.push_str(name);
                expanded.push(')');
            }
            rest = after;
        } else {
            expanded.push('$');
        }
        if expanded.len() > most {
            return None;
        }
    }
    expanded.push_str(rest);
    (expanded.len() <= most).then_some(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_what_is_defined_are_replaced_and_nothing_else() {
        let value = |name: &str| match name {
            "HOST" => Some("db"),
            "PORT" => Some("$(HOST)"),
            _ => None,
        };
        for (text, expected) in [
            ("tcp://$(HOST):1", "tcp://db:1"),
            ("$(PORT)", "$(HOST)"),
            ("$$(HOST)", "$(HOST)"),
            ("$(OTHER) $HOST $", "$(OTHER) $HOST $"),
            ("$(HOST", "$(HOST"),
            ("$$$(HOST)$$", "$db$"),
            ("$($(HOST)$(HOST)$($(", "$($(HOST)db$($("),
            (")$(", ")$("),
            ("", ""),
        ] {
            assert_eq!(expand(text, 18, value).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_gets_longer_than_it_may_is_none() {
        let value = |_: &str| Some("12345");
        assert_eq!(expand("$(A)$(A)", 10, value).as_deref(), Some("1234512345"));
        for text in ["$(A)$(A)", "$(A)$(A)$(A)$(A)", "1234567890", "$(A)12345"] {
            assert_eq!(expand(text, 9, value), None, "{text}");
        }
    }
}
