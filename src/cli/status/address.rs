//! The address of the controller's admin server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;

/// The reason why the address of the admin server cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AddressError {
    /// The value of `--admin` is not an address.
    #[error("`{given}` is not the address of an admin server; expected one such as http://127.0.0.1:8082")]
    Invalid {
        /// The value.
        given: String,
    },
    /// The configuration has port 0, so the system chose the port and only the controller knows it.
    #[error("the port of `admin.listen` = {0} is chosen by the system; pass the actual address with --admin")]
    AnyPort(SocketAddr),
}

/// Returns the URL of `/debug/state` at the admin server `given`, which is a URL (possibly with the path of a proxy) or a host and a
/// port.
pub(super) fn from_argument(given: &str) -> Result<Url, AddressError> {
    let invalid = || AddressError::Invalid { given: given.to_owned() };
    let text = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
    let mut url = Url::parse(&text).map_err(|_| invalid())?;
    if url.scheme() != "http" || url.host_str().is_none_or(str::is_empty) {
        return Err(invalid());
    }
    url.set_query(None);
    url.set_fragment(None);
    url.path_segments_mut().map_err(|()| invalid())?.pop_if_empty().extend(["debug", "state"]);
    Ok(url)
}

/// Returns the URL of `/debug/state` at the listen address `listen`. If the server listens on all addresses, the URL has the loopback
/// address.
pub(super) fn from_listen_address(listen: SocketAddr) -> Result<Url, AddressError> {
    if listen.port() == 0 {
        return Err(AddressError::AnyPort(listen));
    }
    let address = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    from_argument(&SocketAddr::new(address, listen.port()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_or_a_host_with_a_port_is_an_address() {
        for (argument, url) in [
            ("http://127.0.0.1:8082", "http://127.0.0.1:8082/debug/state"),
            ("http://web-1:8082/", "http://web-1:8082/debug/state"),
            ("web-1:8082", "http://web-1:8082/debug/state"),
            ("[::1]:8082", "http://[::1]:8082/debug/state"),
            ("http://127.0.0.1:8001/api/v1/proxy/?x=1", "http://127.0.0.1:8001/api/v1/proxy/debug/state"),
        ] {
            assert_eq!(from_argument(argument).unwrap().as_str(), url, "{argument}");
        }
        for wrong in ["", "https://127.0.0.1:8082", "ftp://a", "http://", "a b"] {
            assert!(from_argument(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_server_that_listens_on_all_addresses_is_reached_on_loopback() {
        let url = |listen: &str| from_listen_address(listen.parse().unwrap()).map(|url| url.to_string());
        assert_eq!(url("0.0.0.0:8082").unwrap(), "http://127.0.0.1:8082/debug/state");
        assert_eq!(url("[::]:8082").unwrap(), "http://[::1]:8082/debug/state");
        assert_eq!(url("10.0.0.7:80").unwrap(), "http://10.0.0.7/debug/state");
        assert!(url("127.0.0.1:0").unwrap_err().to_string().contains("--admin"));
    }
}
