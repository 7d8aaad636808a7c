//! An API call of a service: its request, and the ways to read its response.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue, IF_MATCH};
use reqwest::{Method, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::Service;
use super::page::{ListPage, MAX_PAGES, PAGE_SIZE, QueryParameters};
use crate::error::{OpenStackError, Result, StepName, is_too_large};
use crate::http::{HttpRequest, HttpResponse};
use crate::identity::Token;

/// The time that is added to the timeout for each resource that a call creates. Neutron needs about 80 ms for a port.
const TIMEOUT_PER_ITEM: Duration = Duration::from_millis(200);

/// The maximum number of attempts to read a list. It is read from its start again if its last item so far was deleted between two pages.
const LIST_ATTEMPTS: usize = 4;

/// An API call of a service, before it is sent.
///
/// If the service rejects the token, the token is renewed and the call is repeated once. If the connection closes before the response
/// begins, the call is repeated once, unless it is a `POST`, which is not idempotent. All other errors are returned.
#[must_use = "a call is sent by `done`, `json_member` or `list`"]
pub struct ApiCall<'s> {
    service: &'s Service,
    step: StepName,
    method: Method,
    path: String,
    query: QueryParameters,
    body: Option<Vec<u8>>,
    /// The revision number that the resource must have for the call to succeed; `None` for any.
    revision: Option<u64>,
    /// The number of resources that the call creates. Each extends the timeout.
    items: u32,
    /// `true` if the call is idempotent. If the response to any other call is lost, its error is ambiguous.
    repeatable: bool,
}

impl<'s> ApiCall<'s> {
    /// Creates a call of `path` without a body, with the default timeout.
    pub(super) fn new(service: &'s Service, step: StepName, method: Method, path: String) -> Self {
        let (query, body, revision) = (QueryParameters::new(), None, None);
        let repeatable = method != Method::POST;
        Self { service, step, method, path, query, body, revision, items: 0, repeatable }
    }

    /// Adds a query parameter. The same name may be added more than once.
    pub fn query(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Adds the query parameters that filter a list.
    pub(crate) fn filter(self, filter: &[(&'static str, String)]) -> Self {
        filter.iter().fold(self, |call, (name, value)| call.query(*name, value))
    }

    /// Limits the response to these fields. `fields` contains their names, separated by spaces.
    pub fn fields(self, fields: &str) -> Self {
        fields.split_whitespace().fold(self, |call, field| call.query("fields", field))
    }

    /// Sets the JSON body of the request.
    pub fn json(mut self, body: &(impl Serialize + ?Sized)) -> Self {
        self.body = Some(serde_json::to_vec(body).expect("request bodies have string keys only"));
        self
    }

    /// Makes the service reject the call with status 412 unless the resource has this revision number (header `If-Match`, extension
    /// `revision-if-match`). `None`, which is what a response without the extension contains, sets no condition.
    pub fn revision(mut self, number: Option<u64>) -> Self {
        self.revision = number;
        self
    }

    /// Extends the timeout by 200 ms for each of the `count` resources that the call creates.
    pub fn items(mut self, count: usize) -> Self {
        self.items = u32::try_from(count).unwrap_or(u32::MAX);
        self
    }

    /// Sends the call and ignores the body of the response. A status other than 2xx is an error.
    pub async fn done(self) -> Result<()> {
        self.send().await.map(drop)
    }

    /// Sends the call and deserializes the value of the member `key` in the response. A status other than 2xx, or a response without that
    /// value, is an error.
    pub async fn json_member<A: DeserializeOwned>(self, key: &str) -> Result<A> {
        self.json_member_with_id(key).await.map(|(answer, _)| answer)
    }

    /// Sends the call like [`json_member`](Self::json_member), and also returns the id that the service gave the request.
    pub(crate) async fn json_member_with_id<A: DeserializeOwned>(self, key: &str) -> Result<(A, String)> {
        let response = self.send().await?;
        let unreadable = || response.unreadable(self.step, !self.repeatable);
        let keys: HashMap<String, Box<RawValue>> = response.json(self.step, !self.repeatable)?;
        let value = keys.get(key).ok_or_else(unreadable)?;
        let value = serde_json::from_str(value.get()).map_err(|error| unreadable().because(error))?;
        Ok((value, response.request_id))
    }

    /// Reads all pages of a list. `collection` is the member of the response that contains the items.
    ///
    /// A page begins after the last item of the previous page. If that item was deleted in the meantime, the list is read again from its
    /// start. It is read four times at most; then the call fails.
    pub async fn list<T: DeserializeOwned>(mut self, collection: &str) -> Result<Vec<T>> {
        if !self.query.iter().any(|(name, _)| name == "limit") {
            self = self.query("limit", PAGE_SIZE.to_string());
        }
        let first = self.query.clone();
        let mut last = None;
        for _ in 0..LIST_ATTEMPTS {
            self.query.clone_from(&first);
            match self.pages(&first, collection).await {
                Err(error) if error.is_not_found() && self.query != first => last = Some(error),
                result => return result,
            }
        }
        let error = self.list_error("changes faster than it can be read");
        Err(last.into_iter().fold(error, OpenStackError::because))
    }

    /// Reads all pages of a list, whose first page has the query `first`. After the error of a
    /// request, `self.query` is the query of the page that could not be read.
    async fn pages<T: DeserializeOwned>(
        &mut self,
        first: &QueryParameters,
        collection: &str,
    ) -> Result<Vec<T>> {
        let (mut items, mut markers) = (Vec::new(), HashSet::new());
        for _ in 0..MAX_PAGES {
            let response = self.send().await?;
            let unreadable = |error| response.unreadable(self.step, false).because(error);
            let page = ListPage::<T>::read(&response.body, collection).map_err(unreadable)?;
            staffetta_driver::page_listed(page.items.len());
            items.extend(page.items);
            let Some(next) = page.next else { return Ok(items) };
            if !markers.insert(next.clone()) {
                let text = format!("has no end: the page after {next:?} links to itself");
                return Err(self.list_error(&text));
            }
            self.query.clone_from(first);
            self.query.push(("marker".into(), next));
        }
        let text = format!("has no end: there are more than {MAX_PAGES} pages");
        Err(self.list_error(&text))
    }

    /// Returns the error of a list that cannot be read completely.
    fn list_error(&self, text: &str) -> OpenStackError {
        let text = format!("the list {} of the {} service {text}", self.path, self.service.kind.as_str());
        OpenStackError::unavailable(self.step, text)
    }

    /// Sends the call to the root URL of the service, which lists the API versions.
    pub(super) async fn send_to_root(self) -> Result<HttpResponse> {
        self.send_to(|token| self.service.root(token, self.step)).await
    }

    /// Sends the call to its path below the endpoint of the service, with its query.
    async fn send(&self) -> Result<HttpResponse> {
        self.send_to(|token| {
            let mut url = self.service.url(token, self.step, &self.path)?;
            if !self.query.is_empty() {
                url.query_pairs_mut().extend_pairs(&self.query);
            }
            Ok(url)
        })
        .await
    }

    /// Sends the call to the URL that `url` derives from a token. If `url` fails because the catalogue of the token lacks the service,
    /// tries a newer token. If the service rejects the token, sends the call once more with a newer one. A status other than 2xx is an
    /// error.
    async fn send_to(&self, url: impl Fn(&Token) -> Result<Url>) -> Result<HttpResponse> {
        let (cloud, kind) = (&self.service.cloud, self.service.kind);
        let mut token = cloud.session.token().await?;
        let mut target = url(&token);
        if target.is_err()
            && let Some(newer) = cloud.session.renew_outdated(&token).await
        {
            token = newer;
            target = url(&token);
        }
        let target = target?;
        let permit = self.service.state().limiter.permit().await;
        let mut response = cloud.http.send(&self.request(target, &token)).await?;
        if response.status == 401
            && let Some(newer) = cloud.session.renew_rejected(&token, kind).await?
        {
            token = newer;
            response = cloud.http.send(&self.request(url(&token)?, &token)).await?;
        }
        permit.answered(response.is_throttled());
        if response.status != 401 {
            token.set_accepted(kind);
        }
        if response.is_success() {
            Ok(response)
        } else {
            let length = self.body.as_ref().map_or(0, Vec::len);
            let error = response.into_error(self.step, self.repeatable);
            if is_too_large(&error) {
                self.service.state().body_limit.fetch_min(length / 2, Ordering::Relaxed);
                return Err(error.hint(&format!("the request has {length} bytes")));
            }
            Err(error)
        }
    }

    /// Returns the HTTP request of the call: with the token, the condition on the revision number, the body
    /// and the timeout.
    fn request(&self, url: Url, token: &Token) -> HttpRequest<'_> {
        let mut headers: Vec<(HeaderName, HeaderValue)> = token.header().into_iter().collect();
        if let Some(number) = self.revision {
            let value = HeaderValue::from_str(&format!("revision_number={number}"));
            headers.push((IF_MATCH, value.expect("a number is a header value")));
        }
        HttpRequest {
            service: self.service.kind.as_str(),
            step: self.step,
            method: &self.method,
            url,
            headers,
            body: self.body.clone(),
            timeout: self.service.cloud.timeout.saturating_add(TIMEOUT_PER_ITEM.saturating_mul(self.items)),
            repeatable: self.repeatable,
        }
    }
}
