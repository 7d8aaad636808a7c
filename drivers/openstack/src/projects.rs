//! The set of projects in which resources may belong to this cluster.

use std::collections::BTreeSet;
use std::sync::Arc;

use staffetta_driver::ProjectId;

/// The projects in which resources may belong to this cluster. An ownership mark in another project does not count, because the users of
/// that project can write any description. The default value contains all projects.
#[derive(Clone, Debug, Default)]
pub struct Projects(Option<Arc<BTreeSet<ProjectId>>>);

impl Projects {
    /// Creates a set of these projects.
    pub fn new(projects: impl IntoIterator<Item = ProjectId>) -> Self {
        Self(Some(Arc::new(projects.into_iter().collect())))
    }

    /// Returns `true` if the set contains `project`. The default value contains every project.
    pub fn contains(&self, project: &ProjectId) -> bool {
        self.0.as_ref().is_none_or(|projects| projects.contains(project))
    }
}
