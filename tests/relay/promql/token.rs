//! The tokens of a query.

use std::time::Duration;

/// A word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A name, or a word of the language.
    Name(String),
    /// A number.
    Number(String),
    /// A length of time, such as `5m`.
    Duration(Duration),
    /// A text between quotes.
    Text(String),
    /// An operator or a bracket.
    Sign(String),
}

/// The operators, longer ones first.
const SIGNS: [&str; 21] = [
    "==", "!=", "=~", "!~", ">=", "<=", "(", ")", "{", "}", "[", "]", ",", "=", ">", "<", "+", "-", "*", "/",
    "%",
];

/// The words of `query`, in their order.
pub(super) fn tokens(query: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = query.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = if first == '"' {
            let end = rest[1..].find('"').ok_or("a text has no end")?;
            (Token::Text(rest[1..=end].to_owned()), end + 2)
        } else if first.is_ascii_digit() {
            let length = length(rest, |c| c.is_ascii_alphanumeric() || c == '.');
            (number_or_duration(&rest[..length])?, length)
        } else if first.is_ascii_alphabetic() || first == '_' {
            let length = length(rest, |c| c.is_ascii_alphanumeric() || "_:".contains(c));
            (Token::Name(rest[..length].to_owned()), length)
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
            let sign = sign.ok_or_else(|| format!("`{first}` means nothing"))?;
            (Token::Sign((*sign).to_owned()), sign.len())
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn length(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

fn number_or_duration(word: &str) -> Result<Token, String> {
    if word.parse::<f64>().is_ok() {
        return Ok(Token::Number(word.to_owned()));
    }
    let duration = duration(word);
    duration.map(Token::Duration).ok_or_else(|| format!("`{word}` is neither a number nor a length of time"))
}

/// A length of time of one unit, such as `5m`.
pub(super) fn duration(word: &str) -> Option<Duration> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let milliseconds = match &word[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        _ => return None,
    };
    Some(Duration::from_millis(digits.parse::<u64>().ok()? * milliseconds))
}
