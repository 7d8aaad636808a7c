//! Where the controller's admin server is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;

/// Why it is not known where the admin server is.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AddressError {
    /// What was said is no address.
    #[error("`{given}` is no address of an admin server; it is one such as http://127.0.0.1:8082")]
    NotOne {
        /// What was said.
        given: String,
    },
    /// The configuration lets the system choose the port.
    #[error("`admin.listen` is {0}, so the system chooses the port: say with --admin which one it is")]
    AnyPort(SocketAddr),
}

/// The address of `/debug/state` under `given`: a URL, perhaps with a path under which a proxy has the admin server, or
/// just a host and a port.
pub(super) fn given(given: &str) -> Result<Url, AddressError> {
    let refused = || AddressError::NotOne { given: given.to_owned() };
    let text = if given.contains("://") { given.to_owned() } else { format!("http://{given}") };
    let mut url = Url::parse(&text).map_err(|_| refused())?;
    if url.scheme() != "http" || url.host_str().is_none_or(str::is_empty) {
        return Err(refused());
    }
    url.set_query(None);
    url.set_fragment(None);
    url.path_segments_mut().map_err(|()| refused())?.pop_if_empty().extend(["debug", "state"]);
    Ok(url)
}

/// The address of `/debug/state` of who listens at `listen`. Who listens on all addresses listens on loopback too.
pub(super) fn configured(listen: SocketAddr) -> Result<Url, AddressError> {
    if listen.port() == 0 {
        return Err(AddressError::AnyPort(listen));
    }
    let address = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    given(&SocketAddr::new(address, listen.port()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_and_a_host_with_a_port_name_an_admin_server() {
        for (said, asked) in [
            ("http://127.0.0.1:8082", "http://127.0.0.1:8082/debug/state"),
            ("http://web-1:8082/", "http://web-1:8082/debug/state"),
            ("web-1:8082", "http://web-1:8082/debug/state"),
            ("[::1]:8082", "http://[::1]:8082/debug/state"),
            ("http://127.0.0.1:8001/api/v1/proxy/?x=1", "http://127.0.0.1:8001/api/v1/proxy/debug/state"),
        ] {
            assert_eq!(given(said).unwrap().as_str(), asked, "{said}");
        }
        for wrong in ["", "https://127.0.0.1:8082", "ftp://a", "http://", "a b"] {
            assert!(given(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn who_listens_everywhere_is_asked_on_loopback() {
        let asked = |listen: &str| configured(listen.parse().unwrap()).map(|url| url.to_string());
        assert_eq!(asked("0.0.0.0:8082").unwrap(), "http://127.0.0.1:8082/debug/state");
        assert_eq!(asked("[::]:8082").unwrap(), "http://[::1]:8082/debug/state");
        assert_eq!(asked("10.0.0.7:80").unwrap(), "http://10.0.0.7/debug/state");
        assert!(asked("127.0.0.1:0").unwrap_err().to_string().contains("--admin"));
    }
}
