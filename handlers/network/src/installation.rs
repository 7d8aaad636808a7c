//! The installation of this program that manages an object: several may share a cluster.

use std::sync::Arc;

use kube::ResourceExt;
use staffetta_handler::{CLUSTER_ANNOTATION, MetadataPatch, Object};

use crate::kuryr;

/// The reason of the Event for an object that is left alone because another installation manages it.
pub(crate) const MANAGED_BY_OTHER: &str = "ManagedByAnotherInstallation";

/// The type of a function that returns `true` for the objects that the configuration selects.
type Selects = Arc<dyn Fn(&dyn Object) -> bool + Send + Sync>;

/// This installation: its cluster id, which it writes on each object that it manages, and the objects that it selects. The default one
/// has no id, writes none, and selects all objects: it is alone in its cluster.
///
/// The annotation only tells installations apart. What one may release or change outside is decided by ownership marks.
#[derive(Clone)]
pub struct Installation {
    cluster_id: Option<String>,
    selects: Selects,
}

impl Default for Installation {
    fn default() -> Self {
        Self { cluster_id: None, selects: Arc::new(|_| true) }
    }
}

impl Installation {
    /// Creates the installation with this cluster id. It creates something for an object only if `selects` returns `true`; what it has
    /// created for another one stays until that object is deleted.
    pub fn new(
        cluster_id: impl Into<String>,
        selects: impl Fn(&dyn Object) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { cluster_id: Some(cluster_id.into()), selects: Arc::new(selects) }
    }

    /// Returns `true` if something may be created for the object.
    pub(crate) fn selects(&self, object: &dyn Object) -> bool {
        (self.selects)(object)
    }

    /// Returns the cluster id of the other installation that manages the object; `None` if there is none.
    pub(crate) fn other<'a>(&self, object: &'a impl ResourceExt) -> Option<&'a str> {
        let manager = object.annotations().get(CLUSTER_ANNOTATION)?;
        (self.cluster_id.as_ref()? != manager).then_some(manager)
    }

    /// Returns the reason and the text of a warning Event if Kuryr or another installation manages the object, which is left alone then.
    pub(crate) fn managed_notice(&self, object: &impl ResourceExt) -> Option<(&'static str, String)> {
        if let Some(text) = kuryr::managed_notice(object) {
            return Some((kuryr::MANAGED, text));
        }
        let other = self.other(object)?;
        let text = format!(
            "the annotation {CLUSTER_ANNOTATION} says that the installation {other} manages the object, so it is left alone; \
             two installations need different namespaces or labels"
        );
        Some((MANAGED_BY_OTHER, text))
    }

    /// Makes the patch name this installation as the manager of the object.
    pub(crate) fn mark(&self, patch: MetadataPatch) -> MetadataPatch {
        match &self.cluster_id {
            Some(cluster_id) => patch.annotate(CLUSTER_ANNOTATION, cluster_id),
            None => patch,
        }
    }

    /// Makes the patch remove what [`mark`](Self::mark) adds.
    pub(crate) fn unmark(&self, patch: MetadataPatch) -> MetadataPatch {
        if self.cluster_id.is_some() { patch.remove_annotation(CLUSTER_ANNOTATION) } else { patch }
    }
}
