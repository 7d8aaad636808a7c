//! A request with its parsed path, query and headers, which the verbs execute.

use std::sync::Arc;

use jiff::Timestamp;

use crate::front::{Query, Question};
use crate::object::Key;
use crate::shared::Shared;
use crate::status::Status;
use crate::table::{Resource, Trait};
use crate::views::form::Form;

/// A request for a resource that is served.
pub(super) struct Call {
    pub(super) verb: &'static str,
    pub(super) resource: Arc<Resource>,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    pub(super) query: Query,
    pub(super) form: Form,
    pub(super) now: Timestamp,
}

impl Call {
    /// Refuses what no verb could answer: an unknown resource, a wrong scope.
    pub(super) fn new(
        shared: &Shared,
        question: &Question,
        query: Query,
        accept: &str,
    ) -> Result<Self, Status> {
        let Question { verb, target, .. } = question;
        let verb = *verb;
        let found = shared.with(|c| c.catalog.find(&target.group, &target.version, &target.plural).cloned());
        let resource = found.ok_or_else(Status::no_such_path)?;
        let namespaced = resource.has(Trait::Namespaced);
        let whole_cluster = target.namespace.is_none() && target.name.is_none();
        if target.namespace.is_some() != namespaced && !(namespaced && whole_cluster) {
            return Err(Status::no_such_path());
        }
        if verb == "create" && namespaced && target.namespace.is_none()
            || verb == "deletecollection" && resource.kind == "Namespace"
        {
            return Err(Status::method_not_allowed());
        }
        let form = Form::of(accept, query.text("includeObject"))?;
        Ok(Self {
            verb,
            resource,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            subresource: target.subresource.clone(),
            query,
            form,
            now: Timestamp::now(),
        })
    }

    /// The place of the object that it is about.
    pub(super) fn key(&self) -> Key {
        Key::new(self.namespace.as_deref().unwrap_or_default(), self.name.as_deref().unwrap_or_default())
    }
}
