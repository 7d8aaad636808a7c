//! LIST requests: they choose the revision and split the result into pages.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::Cluster;
use crate::object::{Key, Object, key};
use crate::selector::Selector;
use crate::status::{Cause, Status};
use crate::table::Resource;

/// The query of a list.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListQuery {
    pub(crate) resource_version: String,
    pub(crate) resource_version_match: String,
    pub(crate) limit: usize,
    pub(crate) continue_from: String,
}

/// A page of a list.
pub(crate) struct Listing {
    pub(crate) objects: Vec<Object>,
    pub(crate) revision: u64,
    /// The token for the next page, and how many objects lie after this one if that can be told.
    pub(crate) next: Option<(String, Option<usize>)>,
}

/// The continue token of a list. All pages show one revision.
#[derive(Serialize, Deserialize)]
struct Token {
    revision: u64,
    namespace: String,
    name: String,
}

impl Cluster {
    /// Lists a resource, in one namespace or all.
    pub(crate) fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &Selector,
        query: &ListQuery,
    ) -> Result<Listing, Status> {
        let token = (!query.continue_from.is_empty()).then(|| read(&query.continue_from)).transpose()?;
        let revision = match &token {
            Some(_) if !["", "0"].contains(&query.resource_version.as_str()) => {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            Some(token) => token.revision,
            None => self.revision_for(query)?,
        };
        let objects = self.store.list_at(&resource.stored_as, namespace, revision).map_err(|expired| {
            if token.is_some() {
                Status::expired("The provided continue parameter is too old to display a consistent list result. You must start a new list without the continue parameter.")
            } else {
                too_old(revision, expired.oldest)
            }
        })?;
        let mut selected: Vec<_> = objects.into_iter().filter(|object| selector.matches(object)).collect();
        if let Some(token) = token {
            let last = Key::new(&token.namespace, &token.name);
            selected.retain(|object| key(object) > last);
        }
        let mut next = None;
        if query.limit > 0 && selected.len() > query.limit {
            let left = selected.len() - query.limit;
            selected.truncate(query.limit);
            let last = selected.last().map_or_else(|| Key::new("", ""), |object| key(object));
            let token = Token { revision, namespace: last.namespace, name: last.name };
            next = Some((write(&token), selector.is_empty().then_some(left)));
        }
        Ok(Listing { objects: selected, revision, next })
    }

    /// The revision a first page is read at.
    fn revision_for(&self, query: &ListQuery) -> Result<u64, Status> {
        let now = self.store.revision();
        let asked = parse_version(&query.resource_version)?;
        match (query.resource_version_match.as_str(), asked) {
            ("", None) => Ok(now),
            (_, None) => {
                Err(forbidden_match("resourceVersionMatch is forbidden unless resourceVersion is provided"))
            }
            ("Exact", Some(0)) => {
                Err(forbidden_match("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
            }
            ("" | "Exact" | "NotOlderThan", Some(asked)) if asked > now => {
                Err(Status::version_too_large(asked, now))
            }
            ("Exact", Some(asked)) => Ok(asked),
            ("" | "NotOlderThan", Some(_)) => Ok(now),
            (other, _) => {
                let cause =
                    Cause::unsupported("resourceVersionMatch", &other.into(), &["Exact", "NotOlderThan", ""]);
                Err(Status::invalid_options(cause))
            }
        }
    }
}

/// A resourceVersion of a query; none where it is unset.
pub(crate) fn parse_version(version: &str) -> Result<Option<u64>, Status> {
    if version.is_empty() {
        return Ok(None);
    }
    let parsed =
        version.parse().map_err(|_| Status::bad_request(format!("invalid resource version {version:?}")))?;
    Ok(Some(parsed))
}

/// 410 for a list or a watch from before the log.
pub(crate) fn too_old(asked: u64, oldest: u64) -> Status {
    Status::expired(format!("too old resource version: {asked} ({oldest})"))
}

fn forbidden_match(why: &str) -> Status {
    Status::invalid_options(Cause::forbidden("resourceVersionMatch", why))
}

fn write(token: &Token) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(token).expect("a token is plain JSON"))
}

fn read(text: &str) -> Result<Token, Status> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    let token = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    token.ok_or_else(|| Status::bad_request("continue key is not valid: it must be one that a list returned"))
}
