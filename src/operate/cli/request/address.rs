//! The address of the controller's admin server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::uri::Authority;

use crate::operate::cli::CommandError;

/// Reads the address of an admin server: `HOST:PORT` or `http://HOST:PORT`. A missing port is 80, and slashes at the end are ignored. Fails
/// for any other form.
pub(in crate::operate::cli) fn parse(given: &str) -> Result<Authority, CommandError> {
    let text = given.strip_prefix("http://").unwrap_or(given).trim_end_matches('/');
    let authority = text.parse().ok().filter(|authority: &Authority| !authority.host().is_empty());
    let with_port = authority.and_then(|authority| match authority.port_u16() {
        Some(_) => Some(authority),
        None if authority.host() == text => format!("{text}:80").parse().ok(),
        None => None,
    });
    with_port.ok_or_else(|| {
        CommandError::Usage(format!(
            "`{given}` is not the address of an admin server; expected one such as http://127.0.0.1:8082"
        ))
    })
}

/// Returns the address of a server that listens at `listen`. If it listens on all addresses, this is the loopback address. Fails for port 0:
/// the system chooses the port, and only the controller knows it.
pub(in crate::operate::cli) fn of_listener(mut listen: SocketAddr) -> Result<Authority, CommandError> {
    if listen.port() == 0 {
        return Err(CommandError::Usage(format!(
            "the port of `admin.listen` = {listen} is chosen by the system; pass the actual address with --admin"
        )));
    }
    match listen.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => listen.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => listen.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    parse(&listen.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_or_a_host_with_a_port_is_an_address() {
        for (argument, address) in [
            ("http://127.0.0.1:8082", "127.0.0.1:8082"),
            ("http://web-1:8082/", "web-1:8082"),
            ("web-1", "web-1:80"),
            ("[::1]:8082", "[::1]:8082"),
        ] {
            assert_eq!(parse(argument).unwrap(), address);
        }
        for wrong in [
            "",
            "https://127.0.0.1:8082",
            "ftp://a",
            "http://",
            "http://a/b",
            "a b",
            "web-1:80820",
            "web-1:",
            ":80",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_that_listens_on_all_addresses_is_reached_on_loopback() {
        let address = |listen: &str| of_listener(listen.parse().unwrap());
        assert_eq!(address("0.0.0.0:8082").unwrap(), "127.0.0.1:8082");
        assert_eq!(address("[::]:8082").unwrap(), "[::1]:8082");
        assert_eq!(address("10.0.0.7:80").unwrap(), "10.0.0.7:80");
        assert!(address("127.0.0.1:0").unwrap_err().to_string().contains("--admin"));
    }
}
