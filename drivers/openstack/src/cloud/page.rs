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
    /// The marker of the next page, which is the id of the last item before it, or `None` on the last page.
    pub(super) next: Option<String>,
}

/// A link of a page to another page of the same list.
#[derive(Deserialize)]
struct Link {
    rel: String,
    href: String,
}

impl<T: DeserializeOwned> ListPage<T> {
    /// Deserializes a page: its items, which are the member `collection`, and the marker in the link to the next page, which is in the
    /// member `<collection>_links`. The rest of the link is ignored: it often names a server behind a proxy, which must not get the token.
    pub(super) fn read(body: &[u8], collection: &str) -> Result<Self, serde_json::Error> {
        let keys: HashMap<String, Box<RawValue>> = serde_json::from_slice(body)?;
        let missing = || serde_json::Error::custom(format!("`{collection}` is missing"));
        let items = serde_json::from_str(keys.get(collection).ok_or_else(missing)?.get())?;
        let links: Vec<Link> = match keys.get(&format!("{collection}_links")) {
            Some(links) => serde_json::from_str(links.get())?,
            None => Vec::new(),
        };
        let next = links.into_iter().find(|link| link.rel == "next");
        Ok(Self { items, next: next.map(|link| marker(&link.href)) })
    }
}

/// Returns the query parameter `marker` of a link; empty without one.
fn marker(link: &str) -> String {
    let mut url = Url::parse("http://localhost").expect("the URL is valid");
    url.set_query(link.split_once('?').map(|(_, query)| query));
    let marker = url.query_pairs().find(|(name, _)| name == "marker");
    marker.map(|(_, value)| value.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_items_and_may_have_a_next_page() {
        let body = br#"{"ports":[1,2],"ports_links":[{"rel":"previous","href":"http://x/?marker=0"},
            {"rel":"next","href":"http://elsewhere/v2.0/ports?limit=2&marker=b%20c"}]}"#;
        let page = ListPage::<u8>::read(body, "ports").unwrap();
        assert_eq!((page.items, page.next.as_deref()), (vec![1, 2], Some("b c")));
        let last = ListPage::<u8>::read(br#"{"ports":[],"ports_links":[]}"#, "ports").unwrap();
        assert_eq!((last.items, last.next), (vec![], None));
        assert!(ListPage::<u8>::read(br#"{"networks":[]}"#, "ports").is_err());
    }
}
