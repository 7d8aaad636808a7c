//! Strings of a special form: the `format`s of JSON Schema that an option may have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use schemars::schema_for;
use serde_json::{Map, Value};
use tracing_subscriber::EnvFilter;

use super::nearest::nearest;

/// A string of a special form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    SocketAddress,
    Ip,
    Ipv4,
    Ipv6,
    IpNetwork,
    Ipv4Network,
    Ipv6Network,
    DnsLabel,
    DnsName,
    LogFilter,
}

/// The levels of the log, from silence to everything.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl Format {
    /// Every format, with the name that a schema gives it.
    const NAMES: [(&'static str, Self); 10] = [
        ("socket-address", Self::SocketAddress),
        ("ip", Self::Ip),
        ("ipv4", Self::Ipv4),
        ("ipv6", Self::Ipv6),
        ("ip-network", Self::IpNetwork),
        ("ipv4-network", Self::Ipv4Network),
        ("ipv6-network", Self::Ipv6Network),
        ("dns-label", Self::DnsLabel),
        ("dns-name", Self::DnsName),
        ("log-filter", Self::LogFilter),
    ];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    /// The format of a type whose own schema says it in patterns: the type's parser knows better.
    pub(super) fn of_schema(words: &Map<String, Value>) -> Option<Self> {
        let types = [
            (schema_for!(IpNet), Self::IpNetwork),
            (schema_for!(Ipv4Net), Self::Ipv4Network),
            (schema_for!(Ipv6Net), Self::Ipv6Network),
        ];
        let same = |schema: &Map<String, Value>| {
            ["type", "pattern", "oneOf"].iter().all(|word| schema.get(*word) == words.get(*word))
        };
        types.iter().find(|(schema, _)| schema.as_object().is_some_and(same)).map(|(_, format)| *format)
    }

    pub(super) fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(_, format)| *format == self);
        named.map(|(name, _)| *name).expect("each format has a name")
    }

    /// What is wrong with `text`, as a predicate: "is not ...". It does not quote `text`, which may be secret.
    pub(super) fn check(self, text: &str) -> Result<(), String> {
        let good = match self {
            Self::SocketAddress => text.parse::<SocketAddr>().is_ok(),
            Self::Ip => text.parse::<IpAddr>().is_ok(),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::IpNetwork => text.parse::<IpNet>().is_ok(),
            Self::Ipv4Network => text.parse::<Ipv4Net>().is_ok(),
            Self::Ipv6Network => text.parse::<Ipv6Net>().is_ok(),
            Self::DnsLabel => is_dns_label(text),
            Self::DnsName => text.split('.').all(is_dns_label),
            Self::LogFilter => return check_log_filter(text),
        };
        if good { Ok(()) } else { Err(format!("is not {}", self.describe())) }
    }

    /// What such a string is, for people.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::SocketAddress => "an IP address and a port, such as \"127.0.0.1:8082\" or \"[::]:8082\"",
            Self::Ip => "an IP address",
            Self::Ipv4 => "an IPv4 address",
            Self::Ipv6 => "an IPv6 address",
            Self::IpNetwork => "a network, such as \"10.0.0.0/16\" or \"fd00::/48\"",
            Self::Ipv4Network => "an IPv4 network, such as \"10.0.0.0/16\"",
            Self::Ipv6Network => "an IPv6 network, such as \"fd00::/48\"",
            Self::DnsLabel => "made of lower-case letters, digits and inner hyphens",
            Self::DnsName => {
                "made of lower-case letters, digits and inner hyphens, with dots between such parts"
            }
            Self::LogFilter => "a level, or several of the form part=level between commas",
        }
    }
}

/// RFC 1123, section 2.1, in lower case as Kubernetes has it. The length is up to the option.
fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Stricter than the filter's own parser, which takes a misspelt level for the name of a module.
fn check_log_filter(text: &str) -> Result<(), String> {
    for directive in text.split(',').map(str::trim) {
        let level = directive.rsplit_once('=').map_or(directive, |(_, level)| level);
        if !LEVELS.contains(&level.to_ascii_lowercase().as_str()) {
            let hint = nearest(level, LEVELS).map(|level| format!("; did you mean {level:?}?"));
            return Err(format!(
                "names a level that does not exist{}",
                hint.unwrap_or_else(|| format!("; the levels are {}", LEVELS.join(", ")))
            ));
        }
    }
    EnvFilter::builder().parse(text).map(drop).map_err(|error| format!("is not a filter: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for (name, format) in Format::NAMES {
            assert_eq!(Format::from_name(name), Some(format));
            assert_eq!(format.name(), name);
        }
        assert_eq!(Format::from_name("uri"), None);
    }

    #[test]
    fn a_format_takes_what_it_means_and_refuses_the_rest() {
        let cases = [
            (Format::SocketAddress, "127.0.0.1:0", "localhost:8082"),
            (Format::Ip, "::1", "1.2.3"),
            (Format::Ipv4, "10.0.0.1", "::1"),
            (Format::Ipv6, "fe80::1", "10.0.0.1"),
            (Format::IpNetwork, "10.0.0.0/8", "10.0.0.0"),
            (Format::Ipv4Network, "10.0.0.0/8", "fd00::/48"),
            (Format::Ipv6Network, "fd00::/48", "10.0.0.0/33"),
            (Format::DnsLabel, "cluster-2", "Cluster_2"),
            (Format::DnsLabel, "2", "-2"),
            (Format::LogFilter, "info,staffetta=debug,kube[span{field=1}]=TRACE", "info,staffetta=loud"),
        ];
        for (format, good, bad) in cases {
            assert_eq!(format.check(good), Ok(()), "{good}");
            assert!(format.check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_misspelt_level_is_not_taken_for_a_module() {
        let wrong = Format::LogFilter.check("inof").unwrap_err();
        assert_eq!(wrong, "names a level that does not exist; did you mean \"info\"?");
        assert!(Format::LogFilter.check("").is_err());
    }
}
