//! Selectors of requests.

use super::asked::Question;

/// A selector of the requests to which a fault applies. A request must match all criteria; an absent criterion matches
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    verb: Option<String>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    /// Texts that the body must contain.
    body: Vec<String>,
}

impl Requests {
    /// Returns a selector of all requests for resources.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Selects only requests with this verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    #[must_use]
    pub fn verb(mut self, verb: impl Into<String>) -> Self {
        self.verb = Some(verb.into());
        self
    }

    /// Selects only requests for this resource, by its plural name.
    #[must_use]
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Selects only requests for this subresource; an empty name stands for the object itself.
    #[must_use]
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.subresource = Some(subresource.into());
        self
    }

    /// Selects only requests in this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Selects only requests for the object with this name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Selects only requests whose body contains this text.
    #[must_use]
    pub fn saying(mut self, text: impl Into<String>) -> Self {
        self.body.push(text.into());
        self
    }

    /// Must the body be read to know?
    pub(super) fn read_bodies(&self) -> bool {
        !self.body.is_empty()
    }

    /// Does the body say what it must?
    pub(super) fn are_said(&self, body: &[u8]) -> bool {
        let says =
            |text: &String| text.is_empty() || body.windows(text.len()).any(|part| part == text.as_bytes());
        self.body.iter().all(says)
    }

    /// Is this one of them, as far as its first line tells?
    pub(super) fn include(&self, question: &Question) -> bool {
        let target = &question.target;
        let same = |wanted: &Option<String>, given: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| wanted == given.unwrap_or_default())
        };
        same(&self.verb, Some(question.verb))
            && same(&self.resource, Some(&target.plural))
            && same(&self.subresource, target.subresource.as_deref())
            && same(&self.namespace, target.namespace.as_deref())
            && same(&self.name, target.name.as_deref())
    }
}
