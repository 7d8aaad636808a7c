//! The address of the controller's admin server.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::uri::Authority;

/// The address of an admin server: a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct AdminAddress(pub(super) Authority);

/// The reason why the address of the admin server cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AddressError {
    /// The value of `--admin` is not an address.
    #[error("`{0}` is not the address of an admin server; expected one such as http://127.0.0.1:8082")]
    Invalid(String),
    /// The configuration has port 0, so the system chose the port and only the controller knows it.
    #[error("the port of `admin.listen` = {0} is chosen by the system; pass the actual address with --admin")]
    AnyPort(SocketAddr),
}

/// Reads a URL or a host and a port.
impl FromStr for AdminAddress {
    type Err = AddressError;

    fn from_str(given: &str) -> Result<Self, AddressError> {
        let authority = given.strip_prefix("http://").unwrap_or(given).trim_end_matches('/');
        let authority = authority.parse().ok().filter(is_host_and_port);
        authority.map(Self).ok_or_else(|| AddressError::Invalid(given.to_owned()))
    }
}

/// Returns `true` if the authority has a host, and its port, if there is one, is a number up to 65535.
fn is_host_and_port(authority: &Authority) -> bool {
    let host = authority.host();
    !host.is_empty() && (authority.port().is_some() || authority.as_str().ends_with(host))
}

impl AdminAddress {
    /// Returns the address of a server that listens at `listen`. If it listens on all addresses, this is the loopback address.
    pub(in crate::cli) fn of_listener(listen: SocketAddr) -> Result<Self, AddressError> {
        if listen.port() == 0 {
            return Err(AddressError::AnyPort(listen));
        }
        let address = match listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        SocketAddr::new(address, listen.port()).to_string().parse()
    }

    /// Returns the host and the port to connect to.
    pub(super) fn host_and_port(&self) -> String {
        format!("{}:{}", self.0.host(), self.0.port_u16().unwrap_or(80))
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_or_a_host_with_a_port_is_an_address() {
        for (argument, url, connect) in [
            ("http://127.0.0.1:8082", "http://127.0.0.1:8082", "127.0.0.1:8082"),
            ("http://web-1:8082/", "http://web-1:8082", "web-1:8082"),
            ("web-1", "http://web-1", "web-1:80"),
            ("[::1]:8082", "http://[::1]:8082", "[::1]:8082"),
        ] {
            let address: AdminAddress = argument.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.host_and_port().as_str()), (url, connect));
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
            assert!(wrong.parse::<AdminAddress>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_that_listens_on_all_addresses_is_reached_on_loopback() {
        let url = |listen: &str| {
            AdminAddress::of_listener(listen.parse().unwrap()).map(|address| address.to_string())
        };
        assert_eq!(url("0.0.0.0:8082").unwrap(), "http://127.0.0.1:8082");
        assert_eq!(url("[::]:8082").unwrap(), "http://[::1]:8082");
        assert_eq!(url("10.0.0.7:80").unwrap(), "http://10.0.0.7:80");
        assert!(url("127.0.0.1:0").unwrap_err().to_string().contains("--admin"));
    }
}
