//! The driver `annotation`: the annotation of a namespace names the project of its pods and services.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use staffetta_driver::{
    DriverError, NamespaceObserver, NamespaceProjectDriver, PodProjectDriver, ProjectId, Reason,
    ServiceProjectDriver,
};

use crate::error::DriverResult;
use crate::namespaces::{Namespaces, PROJECT, project_of};

/// The driver `annotation`: `openstack.org/kuryr-project` of a namespace is the project of its pods and services; without it, they
/// belong to the default project.
pub struct AnnotationProject {
    namespaces: Arc<Namespaces>,
    default: Option<ProjectId>,
}

impl AnnotationProject {
    /// Reads the annotations of `namespaces`.
    pub fn new(namespaces: Arc<Namespaces>, default: Option<ProjectId>) -> Self {
        Self { namespaces, default }
    }

    fn of_namespace(&self, name: Option<&str>) -> DriverResult<ProjectId> {
        let name = name.unwrap_or_default();
        self.or_default(self.namespaces.project(name)?, name)
    }

    fn or_default(&self, project: Option<ProjectId>, name: &str) -> DriverResult<ProjectId> {
        project.or_else(|| self.default.clone()).ok_or_else(|| {
            let detail = format!(
                "the namespace {name} has no annotation {PROJECT}, and `neutron_defaults.project` is not set"
            );
            DriverError::new(Reason::Refused, "find the project of a namespace").detail(detail)
        })
    }
}

#[async_trait]
impl PodProjectDriver for AnnotationProject {
    async fn project(&self, pod: &Pod) -> DriverResult<ProjectId> {
        self.of_namespace(pod.metadata.namespace.as_deref())
    }

    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        Some(Arc::clone(&self.namespaces) as _)
    }
}

#[async_trait]
impl ServiceProjectDriver for AnnotationProject {
    async fn project(&self, service: &Service) -> DriverResult<ProjectId> {
        self.of_namespace(service.metadata.namespace.as_deref())
    }

    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        Some(Arc::clone(&self.namespaces) as _)
    }
}

#[async_trait]
impl NamespaceProjectDriver for AnnotationProject {
    async fn project(&self, namespace: &Namespace) -> DriverResult<ProjectId> {
        self.or_default(project_of(namespace), namespace.metadata.name.as_deref().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_namespace_names_the_project_of_what_is_in_it() {
        let namespaces = Arc::new(Namespaces::default());
        let driver = |default: Option<&str>| {
            AnnotationProject::new(Arc::clone(&namespaces), default.map(ProjectId::from))
        };
        let shop: Namespace = serde_json::from_value(json!({ "metadata": { "name": "shop", "uid": "u1",
            "annotations": { PROJECT: "p1" } } }))
        .unwrap();
        let plain: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": "plain", "uid": "u2" } })).unwrap();
        let observer = PodProjectDriver::namespaces(&driver(None)).unwrap();
        observer.present(&shop);
        observer.present(&plain);
        let pod = |namespace: &str| -> Pod {
            serde_json::from_value(json!({ "metadata": { "namespace": namespace, "name": "web" } })).unwrap()
        };
        let project = async |default: Option<&str>, namespace: &str| {
            PodProjectDriver::project(&driver(default), &pod(namespace)).await
        };
        assert_eq!(project(None, "shop").await.unwrap(), "p1".into());
        assert_eq!(project(Some("d"), "plain").await.unwrap(), "d".into());
        assert_eq!(project(Some("d"), "unknown").await.unwrap_err().reason(), Reason::Unavailable);
        let error = project(None, "plain").await.unwrap_err();
        assert!(error.to_string().contains("openstack.org/kuryr-project"), "{error}");
        let of_itself = NamespaceProjectDriver::project(&driver(None), &shop).await;
        assert_eq!(of_itself.unwrap(), "p1".into());
    }
}
