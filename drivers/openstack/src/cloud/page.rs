//! URLs, and the pages of lists.

use std::borrow::Cow;
use std::collections::HashMap;

use reqwest::Url;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error};
use serde_json::value::RawValue;

/// How many things are asked for in one page.
pub(super) const PAGE: usize = 1000;

/// The longest list, in pages. Services may give fewer things in a page than they are asked for.
pub(super) const MAX_PAGES: usize = 10_000;

/// One page of a list.
pub(super) struct Page<T> {
    pub(super) things: Vec<T>,
    /// The query of the next page, if there is one.
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
struct Link {
    rel: String,
    href: String,
}

impl<T: DeserializeOwned> Page<T> {
    /// Reads a page whose things stand under `collection`, and whose links under `<collection>_links`.
    pub(super) fn read(body: &[u8], collection: &str) -> Result<Self, serde_json::Error> {
        let keys: HashMap<String, Box<RawValue>> = serde_json::from_slice(body)?;
        let missing = || serde_json::Error::custom(format!("there are no `{collection}`"));
        let things = serde_json::from_str(keys.get(collection).ok_or_else(missing)?.get())?;
        let links: Vec<Link> = match keys.get(&format!("{collection}_links")) {
            Some(links) => serde_json::from_str(links.get())?,
            None => Vec::new(),
        };
        let next = links.into_iter().find(|link| link.rel == "next");
        Ok(Self { things, next: next.and_then(|link| Some(link.href.split_once('?')?.1.to_owned())) })
    }
}

/// The query of a page that a link leads to. The link's own host and path are of no interest: they are often those
/// of a machine behind a proxy, and must not get the token. Of its query, too, just what leads on is taken.
pub(super) fn following(
    first: &[(Cow<'static, str>, String)],
    link: &str,
) -> Vec<(Cow<'static, str>, String)> {
    const LEADING: [&str; 2] = ["marker", "page_reverse"];
    let stays = |(name, _): &&(Cow<'static, str>, String)| !LEADING.contains(&&**name);
    let mut query: Vec<_> = first.iter().filter(stays).cloned().collect();
    let mut url = Url::parse("http://localhost").expect("it is a URL");
    url.set_query(Some(link));
    for (name, value) in url.query_pairs() {
        if let Some(name) = LEADING.into_iter().find(|leading| *leading == name) {
            query.push((name.into(), value.into_owned()));
        }
    }
    query
}

/// The URL of `path` below that of a service, whether or not that one ends with a version.
pub(super) fn below(base: &Url, version: &str, path: &str) -> Url {
    let mut url = root(base);
    let version = last_version(base).unwrap_or(version);
    url.set_path(&format!("{}{version}/{path}", url.path()));
    url
}

/// The URL of a service without its version, with a slash at its end.
pub(super) fn root(base: &Url) -> Url {
    let path = base.path().trim_end_matches('/');
    let path = last_version(base).and_then(|version| path.strip_suffix(version)).unwrap_or(path);
    let path = format!("{}/", path.trim_end_matches('/'));
    let mut url = base.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.set_path(&path);
    url
}

/// The last part of a path, if it is a version: `v2.0`.
fn last_version(url: &Url) -> Option<&str> {
    let last = url.path().trim_end_matches('/').rsplit('/').next()?;
    let numbers = last.strip_prefix('v')?;
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.split('.').all(number).then_some(last)
}

/// Where a request goes, for people: no path, no query, no user.
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
    fn a_url_may_end_with_its_version_or_not() {
        for base in ["http://n:9696", "http://n:9696/", "http://n:9696/v2.0", "http://n:9696/v2.0/"] {
            assert_eq!(below(&url(base), "v2.0", "ports/1").as_str(), "http://n:9696/v2.0/ports/1", "{base}");
            assert_eq!(root(&url(base)).as_str(), "http://n:9696/", "{base}");
        }
        let shared = url("https://cloud/networking/v2");
        assert_eq!(below(&shared, "v2.0", "ports").as_str(), "https://cloud/networking/v2/ports");
        assert_eq!(root(&shared).as_str(), "https://cloud/networking/");
        let named = url("https://cloud/vault");
        assert_eq!(below(&named, "v2.0", "ports").as_str(), "https://cloud/vault/v2.0/ports");
        assert_eq!(host(&named), "cloud:443");
    }

    #[test]
    fn a_page_has_things_and_may_have_a_next_one() {
        let body = br#"{"ports":[1,2],"ports_links":[{"rel":"previous","href":"http://x/?marker=0"},
            {"rel":"next","href":"http://elsewhere/v2.0/ports?limit=2&marker=b%20c"}]}"#;
        let page = Page::<u8>::read(body, "ports").unwrap();
        assert_eq!((page.things, page.next.as_deref()), (vec![1, 2], Some("limit=2&marker=b%20c")));
        let last = Page::<u8>::read(br#"{"ports":[],"ports_links":[]}"#, "ports").unwrap();
        assert_eq!((last.things, last.next), (vec![], None));
        assert!(Page::<u8>::read(br#"{"networks":[]}"#, "ports").is_err());
    }

    #[test]
    fn a_next_page_is_asked_for_with_our_own_query() {
        let first: Vec<(Cow<'static, str>, String)> =
            vec![("tags".into(), "a,b".into()), ("marker".into(), "old".into())];
        let query = following(&first, "marker=b%20c&limit=2&evil=1");
        let expected: Vec<(Cow<'static, str>, String)> =
            vec![("tags".into(), "a,b".into()), ("marker".into(), "b c".into())];
        assert_eq!(query, expected);
    }
}
