//! One call of a service: what it says, and how its answer is read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue, IF_MATCH};
use reqwest::{Method, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::page::{self, MAX_PAGES, PAGE, Page};
use super::{Answer, Exchange, Service};
use crate::error::{OpenStackError, Problem, bounded};
use crate::identity::Token;

/// How much longer a call may take for each thing that it makes: Neutron needs 80 ms for a port.
const EACH: Duration = Duration::from_millis(200);

/// How often a list is read whose pages are lost on the way.
const READINGS: usize = 4;

/// A call of a service that is about to be made.
///
/// Its token is renewed and the call repeated once when the service does not accept it. A connection that closes before the
/// answer begins is tried once more, unless the call is [`once`](Self::once). Whatever else goes wrong is told.
#[must_use = "nothing is sent before the answer is asked for"]
pub struct Call<'s> {
    service: &'s Service,
    step: &'static str,
    method: Method,
    path: String,
    query: Vec<(Cow<'static, str>, String)>,
    body: Option<Vec<u8>>,
    revision: Option<u64>,
    things: u32,
    repeatable: bool,
}

impl<'s> Call<'s> {
    pub(super) fn new(service: &'s Service, step: &'static str, method: Method, path: String) -> Self {
        Self {
            service,
            step,
            method,
            path,
            query: Vec::new(),
            body: None,
            revision: None,
            things: 0,
            repeatable: true,
        }
    }

    /// Adds a parameter; one of the same name may stand there more than once.
    pub fn query(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> Self {
        self.query.push((name.into(), value.into()));
        self
    }

    /// Names the only fields that are answered.
    pub fn fields(self, fields: &[&str]) -> Self {
        fields.iter().fold(self, |call, field| call.query("fields", *field))
    }

    /// Sends this.
    pub fn json(mut self, body: &(impl Serialize + ?Sized)) -> Self {
        self.body = Some(serde_json::to_vec(body).expect("the body of a request is plain data"));
        self
    }

    /// Is refused (412) when the thing is not at this revision any more.
    pub fn revision(mut self, number: u64) -> Self {
        self.revision = Some(number);
        self
    }

    /// Makes so many things at once, and may take longer.
    pub fn things(mut self, count: usize) -> Self {
        self.things = u32::try_from(count).unwrap_or(u32::MAX);
        self
    }

    /// Says that being done twice is not the same as being done once: an answer that got lost leaves open what is.
    pub fn once(mut self) -> Self {
        self.repeatable = false;
        self
    }

    /// Makes the call; its answer says nothing of interest.
    pub async fn done(self) -> Result<(), OpenStackError> {
        self.send().await.map(drop)
    }

    /// Makes the call and reads its answer.
    pub async fn answer<A: DeserializeOwned>(self) -> Result<A, OpenStackError> {
        self.send().await?.read(self.step, !self.repeatable)
    }

    /// Makes the call and reads what stands in its answer under `key`.
    pub async fn answer_in<A: DeserializeOwned>(self, key: &str) -> Result<A, OpenStackError> {
        self.signed_answer_in(key).await.map(|(answer, _)| answer)
    }

    /// The same, with the id by which the service's log names the request.
    pub(crate) async fn signed_answer_in<A: DeserializeOwned>(
        self,
        key: &str,
    ) -> Result<(A, String), OpenStackError> {
        let answer = self.send().await?;
        let unreadable = || answer.unreadable(self.step, !self.repeatable);
        let keys: HashMap<String, Box<RawValue>> = answer.read(self.step, !self.repeatable)?;
        let value = keys.get(key).ok_or_else(unreadable)?;
        let read = serde_json::from_str(value.get()).map_err(|error| unreadable().because(error))?;
        Ok((read, bounded(answer.request_id())))
    }

    /// Makes the call as often as it takes to read all of a list, whose pages have it under `collection`.
    ///
    /// A page is found by the last thing of the one before. Where that was deleted meanwhile, the list is read anew.
    pub async fn list<T: DeserializeOwned>(mut self, collection: &str) -> Result<Vec<T>, OpenStackError> {
        if !self.query.iter().any(|(name, _)| name == "limit") {
            self = self.query("limit", PAGE.to_string());
        }
        let first = self.query.clone();
        let mut last = None;
        for _ in 0..READINGS {
            self.query.clone_from(&first);
            match self.pages(&first, collection).await {
                Err(error) if error.is_not_found() && self.query != first => last = Some(error),
                read => return read,
            }
        }
        let text = format!(
            "what the list {} of the {} service shows is deleted while it is read",
            self.path,
            self.service.kind()
        );
        let error = OpenStackError::new(self.step, Problem::Unanswered(text));
        Err(last.into_iter().fold(error, OpenStackError::because))
    }

    /// Reads a list to its end. The query is that of the page which was asked for last.
    async fn pages<T: DeserializeOwned>(
        &mut self,
        first: &[(Cow<'static, str>, String)],
        collection: &str,
    ) -> Result<Vec<T>, OpenStackError> {
        let mut things = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..MAX_PAGES {
            let answer = self.send().await?;
            let unreadable = |error| answer.unreadable(self.step, false).because(error);
            let page = Page::<T>::read(&answer.body, collection).map_err(unreadable)?;
            things.extend(page.things);
            let Some(next) = page.next else { return Ok(things) };
            if !seen.insert(next.clone()) {
                return Err(self.endless(&format!("the page after {next:?} leads back to itself")));
            }
            self.query = page::following(first, &next);
        }
        Err(self.endless(&format!("it has more than {MAX_PAGES} pages")))
    }

    /// The same call of another place: where the service itself tells what it is.
    pub(super) async fn send_to_root(self) -> Result<Answer, OpenStackError> {
        self.exchanged(|token| self.service.root(token, self.step)).await
    }

    async fn send(&self) -> Result<Answer, OpenStackError> {
        self.exchanged(|token| {
            let mut url = self.service.url(token, self.step, &self.path)?;
            if !self.query.is_empty() {
                url.query_pairs_mut().extend_pairs(&self.query);
            }
            Ok(url)
        })
        .await
    }

    /// Sends it to the URL that a token leads to, with a newer token where that one is not accepted.
    async fn exchanged(
        &self,
        url: impl Fn(&Token) -> Result<Url, OpenStackError>,
    ) -> Result<Answer, OpenStackError> {
        let session = &self.service.cloud.session;
        let mut token = session.token().await?;
        let mut target = url(&token);
        if target.is_err()
            && let Some(newer) = session.outdated(&token).await
        {
            token = newer;
            target = url(&token);
        }
        let mut target = target?;
        let permit = self.service.state().limiter.permit().await;
        let mut exchange = self.exchange(target, &token);
        let mut answer = self.service.cloud.http.exchange(&exchange).await?;
        if answer.status == 401
            && let Some(newer) = session.refused(&token, self.service.kind()).await?
        {
            token = newer;
            target = url(&token)?;
            exchange = self.exchange(target, &token);
            answer = self.service.cloud.http.exchange(&exchange).await?;
        }
        permit.answered(answer.throttles());
        if answer.status != 401 {
            token.accepted(self.service.kind());
        }
        if answer.is_success() { Ok(answer) } else { Err(answer.refused(self.step, self.repeatable)) }
    }

    fn exchange(&self, url: Url, token: &Token) -> Exchange<'_> {
        let mut headers: Vec<(HeaderName, HeaderValue)> = token.header().into_iter().collect();
        if let Some(number) = self.revision {
            let value = HeaderValue::from_str(&format!("revision_number={number}"));
            headers.push((IF_MATCH, value.expect("a number is a header value")));
        }
        Exchange {
            service: self.service.kind().as_str(),
            step: self.step,
            method: &self.method,
            url,
            headers,
            body: self.body.clone(),
            timeout: self.service.cloud.timeout.saturating_add(EACH.saturating_mul(self.things)),
            repeatable: self.repeatable,
        }
    }

    fn endless(&self, why: &str) -> OpenStackError {
        let text = format!("the list {} of the {} service has no end: {why}", self.path, self.service.kind());
        OpenStackError::new(self.step, Problem::Unreadable(text))
    }
}
