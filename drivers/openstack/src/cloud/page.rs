//! The pages of lists: Neutron and Octavia return long lists in several responses, each with a link to the
//! next.

use std::borrow::Cow;
use std::collections::HashMap;

use reqwest::Url;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error};
use serde_json::value::RawValue;

/// The number of items per page that the client requests.
pub(super) const PAGE_SIZE: usize = 1000;

/// The maximum number of pages of a list. Services may return smaller pages than requested.
pub(super) const MAX_PAGES: usize = 10_000;

/// The query parameters of a request.
pub(super) type QueryParameters = Vec<(Cow<'static, str>, String)>;

/// One page of a list.
pub(super) struct ListPage<T> {
    /// The items of the page.
    pub(super) items: Vec<T>,
    /// The query of the link to the next page, or `None` on the last page.
    pub(super) next: Option<String>,
}

/// A link of a page to another page of the same list.
#[derive(Deserialize)]
struct Link {
    rel: String,
    href: String,
}

impl<T: DeserializeOwned> ListPage<T> {
    /// Deserializes a page: its items, which are the member `collection`, and the link to the next page in the member `<collection>_links`.
    pub(super) fn read(body: &[u8], collection: &str) -> Result<Self, serde_json::Error> {
        let keys: HashMap<String, Box<RawValue>> = serde_json::from_slice(body)?;
        let missing = || serde_json::Error::custom(format!("`{collection}` is missing"));
        let items = serde_json::from_str(keys.get(collection).ok_or_else(missing)?.get())?;
        let links: Vec<Link> = match keys.get(&format!("{collection}_links")) {
            Some(links) => serde_json::from_str(links.get())?,
            None => Vec::new(),
        };
        let next = links.into_iter().find(|link| link.rel == "next");
        Ok(Self { items, next: next.and_then(|link| Some(link.href.split_once('?')?.1.to_owned())) })
    }
}

/// Returns the query of the next page: the query of the first page, with the parameters `marker` and `page_reverse` of `link`. The host and
/// the path of a link are ignored: they often belong to a server behind a proxy, and that server must not get the token.
pub(super) fn next_query(first: &QueryParameters, link: &str) -> QueryParameters {
    /// The query parameters of a link that select the page: `marker` is the id of the last item before it.
    const MARKERS: [&str; 2] = ["marker", "page_reverse"];
    let mut query: QueryParameters =
        first.iter().filter(|(name, _)| !MARKERS.contains(&&**name)).cloned().collect();
    let mut url = Url::parse("http://localhost").expect("the URL is valid");
    url.set_query(Some(link));
    for (name, value) in url.query_pairs() {
        if let Some(name) = MARKERS.into_iter().find(|marker| *marker == name) {
            query.push((name.into(), value.into_owned()));
        }
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_items_and_may_have_a_next_page() {
        let body = br#"{"ports":[1,2],"ports_links":[{"rel":"previous","href":"http://x/?marker=0"},
            {"rel":"next","href":"http://elsewhere/v2.0/ports?limit=2&marker=b%20c"}]}"#;
        let page = ListPage::<u8>::read(body, "ports").unwrap();
        assert_eq!((page.items, page.next.as_deref()), (vec![1, 2], Some("limit=2&marker=b%20c")));
        let last = ListPage::<u8>::read(br#"{"ports":[],"ports_links":[]}"#, "ports").unwrap();
        assert_eq!((last.items, last.next), (vec![], None));
        assert!(ListPage::<u8>::read(br#"{"networks":[]}"#, "ports").is_err());
    }

    #[test]
    fn the_next_page_is_requested_with_the_first_query_and_the_marker_of_the_link() {
        let first: QueryParameters = vec![("tags".into(), "a,b".into()), ("marker".into(), "old".into())];
        let expected: QueryParameters = vec![("tags".into(), "a,b".into()), ("marker".into(), "b c".into())];
        assert_eq!(next_query(&first, "marker=b%20c&limit=2&evil=1"), expected);
    }
}
