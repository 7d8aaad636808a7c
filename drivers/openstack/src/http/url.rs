//! Builds the URLs of services.

use reqwest::Url;

/// Returns the URL of `path` below the endpoint `base`. `version` comes between them, unless the endpoint ends with a version of its own.
pub(crate) fn url_below(base: &Url, version: &str, path: &str) -> Url {
    let mut url = service_root(base);
    let version = last_version(base).unwrap_or(version);
    url.set_path(&format!("{}{version}/{path}", url.path()));
    url
}

/// Returns the URL of an endpoint without its version, query and fragment, with a slash at its end.
pub(crate) fn service_root(base: &Url) -> Url {
    let path = base.path().trim_end_matches('/');
    let path = last_version(base).and_then(|version| path.strip_suffix(version)).unwrap_or(path);
    let path = format!("{}/", path.trim_end_matches('/'));
    let mut url = base.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.set_path(&path);
    url
}

/// Returns the last segment of the URL's path if it is a version such as `v2.0`.
fn last_version(url: &Url) -> Option<&str> {
    let last = url.path().trim_end_matches('/').rsplit('/').next()?;
    let numbers = last.strip_prefix('v')?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.split('.').all(number).then_some(last)
}

/// Returns the host and port of a URL for error messages, without path, query or user.
pub(super) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn an_endpoint_may_end_with_its_version_or_not() {
        for base in ["http://n:9696", "http://n:9696/", "http://n:9696/v2.0", "http://n:9696/v2.0/"] {
            assert_eq!(
                url_below(&url(base), "v2.0", "ports/1").as_str(),
                "http://n:9696/v2.0/ports/1",
                "{base}"
            );
            assert_eq!(service_root(&url(base)).as_str(), "http://n:9696/", "{base}");
        }
        let shared = url("https://cloud/networking/v2");
        assert_eq!(url_below(&shared, "v2.0", "ports").as_str(), "https://cloud/networking/v2/ports");
        assert_eq!(service_root(&shared).as_str(), "https://cloud/networking/");
        let named = url("https://cloud/vault");
        assert_eq!(url_below(&named, "v2.0", "ports").as_str(), "https://cloud/vault/v2.0/ports");
        assert_eq!(host(&named), "cloud:443");
    }
}
