//! The string formats that the schema of an option may require with the keyword `format`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::Uri;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use tracing_subscriber::EnvFilter;

use super::label_selector;
use super::nearest::nearest;

/// A string format: its name in a schema, its description, and its check.
pub(super) struct StringFormat {
    /// The value of the keyword `format` in a schema.
    pub(super) name: &'static str,
    /// The description of the format, such as `an IP address`. It completes the sentence "The value is ...".
    pub(super) about: &'static str,
    accepts: fn(&str) -> bool,
}

/// The levels of the log, from the least to the most output.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The name of the format of log filters, whose levels are also checked one by one.
const LOG_FILTER: &str = "log-filter";

/// All formats that a schema may name.
const FORMATS: [StringFormat; 12] = [
    format(
        "socket-address",
        "an IP address and a port, such as \"127.0.0.1:8082\" or \"[::]:8082\"",
        parses::<SocketAddr>,
    ),
    format("ip", "an IP address", parses::<IpAddr>),
    format("ipv4", "an IPv4 address", parses::<Ipv4Addr>),
    format("ipv6", "an IPv6 address", parses::<Ipv6Addr>),
    format("ip-network", "a network, such as \"10.0.0.0/16\" or \"fd00::/48\"", parses::<IpNet>),
    format("ipv4-network", "an IPv4 network, such as \"10.0.0.0/16\"", parses::<Ipv4Net>),
    format("ipv6-network", "an IPv6 network, such as \"fd00::/48\"", parses::<Ipv6Net>),
    format("http-url", "a URL such as http://192.0.2.1:4318", |text| http_url(text).is_some()),
    format("dns-label", "made of lower-case letters, digits and inner hyphens", is_dns_label),
    format(
        "dns-name",
        "made of lower-case letters, digits and inner hyphens, with dots between such parts",
        |text| text.split('.').all(is_dns_label),
    ),
    format("label-selector", "a label selector, such as \"team=net,env in (a,b),!legacy\"", |text| {
        label_selector::parse(text).is_some()
    }),
    format(LOG_FILTER, "a level, or several of the form part=level between commas", |text| {
        EnvFilter::builder().parse(text).is_ok()
    }),
];

/// Returns `true` if the parser of `T` accepts the text.
fn parses<T: FromStr>(text: &str) -> bool {
    text.parse::<T>().is_ok()
}

/// Parses a URL with the scheme `http` or `https` and a host; `None` if `text` is not such a URL.
pub(crate) fn http_url(text: &str) -> Option<Uri> {
    text.parse().ok().filter(|url: &Uri| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty())
    })
}

/// Creates a format whose check is `accepts`.
const fn format(name: &'static str, about: &'static str, accepts: fn(&str) -> bool) -> StringFormat {
    StringFormat { name, about, accepts }
}

impl StringFormat {
    /// Returns the format called `name`; `None` if there is none.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Checks `text`. The error is the rest of a sentence that begins with the value, such as "is not an IP address". It does not contain
    /// `text`, which may be secret.
    pub(super) fn check(&self, text: &str) -> Result<(), String> {
        if self.name == LOG_FILTER {
            check_levels(text)?;
        }
        if (self.accepts)(text) { Ok(()) } else { Err(format!("is not {}", self.about)) }
    }
}

/// Checks a log filter. The error is the rest of a sentence that begins with the filter, such as "names a level that does not exist".
pub(crate) fn check_log_filter(filter: &str) -> Result<(), String> {
    StringFormat::named(LOG_FILTER).expect("it is one of the formats").check(filter)
}

/// Returns `true` for a label of RFC 1123, section 2.1, in lower case as Kubernetes requires. The length is not checked.
fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Checks each level in a log filter; fails with a hint if one does not exist. This is needed because the parser of the filter takes a
/// misspelt level for the name of a module.
fn check_levels(filter: &str) -> Result<(), String> {
    for directive in filter.split(',').map(str::trim) {
        let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            let hint = nearest(level, LEVELS).map(|level| format!("did you mean {level:?}?"));
            let hint = hint.unwrap_or_else(|| format!("the levels are {}", LEVELS.join(", ")));
            return Err(format!("names a level that does not exist; {hint}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_accepts_valid_text_and_rejects_all_other_text() {
        let cases = [
            ("socket-address", "127.0.0.1:0", "localhost:8082"),
            ("ip", "::1", "1.2.3"),
            ("ipv4", "10.0.0.1", "::1"),
            ("ipv6", "fe80::1", "10.0.0.1"),
            ("ip-network", "10.0.0.0/8", "10.0.0.0"),
            ("ipv4-network", "10.0.0.0/8", "fd00::/48"),
            ("ipv6-network", "fd00::/48", "10.0.0.0/33"),
            ("http-url", "https://collector:4318/otlp", "collector:4318"),
            ("http-url", "http://192.0.2.1", "http://:4318"),
            ("dns-label", "cluster-2", "Cluster_2"),
            ("dns-label", "2", "-2"),
            ("label-selector", "team=net,env in (a,b),!legacy", "team in net"),
            (LOG_FILTER, "info,staffetta=debug,kube[span{field=1}]=TRACE", "info,staffetta=loud"),
        ];
        for (format, good, bad) in cases {
            let format = StringFormat::named(format).unwrap();
            assert_eq!(format.check(good), Ok(()), "{good}");
            assert!(format.check(bad).is_err(), "{bad}");
        }
        assert!(StringFormat::named("uri").is_none());
    }

    #[test]
    fn a_misspelt_level_is_not_taken_for_a_module() {
        let filter = StringFormat::named(LOG_FILTER).unwrap();
        let error = filter.check("inof").unwrap_err();
        assert_eq!(error, "names a level that does not exist; did you mean \"info\"?");
        assert!(filter.check("").is_err());
    }
}
