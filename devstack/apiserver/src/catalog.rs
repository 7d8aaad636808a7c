//! The catalog of the resources that the server serves now: built-in ones and those of `CustomResourceDefinition`s.

use std::sync::Arc;

use crate::object::Object;
use crate::table::{Resource, builtins};

/// The rows of the table and those of the present definitions.
pub(crate) struct Catalog {
    builtins: Vec<Arc<Resource>>,
    custom: Vec<Arc<Resource>>,
}

impl Catalog {
    pub(crate) fn new() -> Self {
        Self { builtins: builtins(), custom: Vec::new() }
    }

    /// Serves what these definitions ask for, and no other custom resource.
    pub(crate) fn define(&mut self, definitions: &[Object]) {
        let rows = definitions.iter().flat_map(|definition| crate::custom::resources(definition));
        self.custom = rows.map(Arc::new).collect();
    }

    /// All resources, in the order of discovery.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.builtins.iter().chain(&self.custom)
    }

    /// The resource behind `/apis/GROUP/VERSION/PLURAL`.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.all().find(|row| row.plural == plural && row.version == version && row.group == group)
    }

    /// The resource whose objects say they are of this kind.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.all().find(|row| row.kind == kind && row.api_version() == api_version)
    }

    /// Any resource that keeps its objects there.
    pub(crate) fn stored_as(&self, place: &str) -> Option<&Arc<Resource>> {
        self.all().find(|row| &*row.stored_as == place)
    }
}
