//! The driver `annotation` of projects: an annotation of a namespace names the project of its pods and services.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use staffetta_driver::{
    DriverError, NamespaceObserver, NamespaceProjectDriver, PodProjectDriver, ProjectId, Reason,
    ServiceProjectDriver,
};

use super::namespaces::{Namespaces, PROJECT, project_of};
use crate::error::DriverResult;
use crate::projects::Projects;

const STEP: &str = "find the project of a namespace";

/// The driver `annotation` of projects. The annotation `openstack.org/kuryr-project` of a namespace names the project of its pods and
/// services. Without the annotation, they belong to the default project.
pub struct AnnotationProject {
    namespaces: Arc<Namespaces>,
    default: Option<ProjectId>,
    projects: Projects,
}

impl AnnotationProject {
    /// Creates the driver. A lookup of a project fails with [`Reason::Refused`] if the namespace has no annotation and there is no `default`
    /// project, or if its annotation names a project that is not among `projects`.
    pub fn new(namespaces: Arc<Namespaces>, default: Option<ProjectId>, projects: Projects) -> Self {
        Self { namespaces, default, projects }
    }

    /// Returns the project that the namespace `name` names in its annotation, or the default project. Fails with [`Reason::Awaited`] until
    /// the watch has reported the namespace, and with [`Reason::Refused`] if both are missing, or if the annotation names a project that is
    /// not allowed.
    fn of_namespace(&self, name: Option<&str>) -> DriverResult<ProjectId> {
        let name = name.unwrap_or_default();
        self.or_default(self.namespaces.project(name)?, name)
    }

    /// Returns `project` or, if it is `None`, the default project. Fails if both are missing, or if `project` is not an allowed project.
    /// `name` is the name of the namespace, for the error.
    fn or_default(&self, project: Option<ProjectId>, name: &str) -> DriverResult<ProjectId> {
        if let Some(foreign) = project.as_ref().filter(|project| !self.projects.contains(project)) {
            let shortened: String = foreign.as_str().chars().take(60).collect();
            let detail = format!(
                "the annotation {PROJECT} of the namespace {name} names the project {shortened:?}, which is neither \
                 `neutron_defaults.project` nor one of `neutron_defaults.projects`"
            );
            return Err(DriverError::new(Reason::Refused, STEP).detail(detail));
        }
        project.or_else(|| self.default.clone()).ok_or_else(|| {
            let detail = format!(
                "the namespace {name} has no annotation {PROJECT}, and `neutron_defaults.project` is not set"
            );
            DriverError::new(Reason::Refused, STEP).detail(detail)
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
    async fn a_namespace_names_the_project_of_what_is_in_it_among_those_of_the_cluster() {
        let namespaces = Arc::new(Namespaces::default());
        let driver = |default: Option<&str>| {
            let projects = Projects::new(["p1".into(), "d".into()]);
            AnnotationProject::new(Arc::clone(&namespaces), default.map(ProjectId::from), projects)
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
        assert_eq!(project(Some("d"), "unknown").await.unwrap_err().reason(), Reason::Awaited);
        let error = project(None, "plain").await.unwrap_err();
        assert!(error.to_string().contains("openstack.org/kuryr-project"), "{error}");
        let greedy =
            json!({ "metadata": { "name": "shop", "uid": "u1", "annotations": { PROJECT: "../theirs" } } });
        let greedy: Namespace = serde_json::from_value(greedy).unwrap();
        observer.present(&greedy);
        let of_itself = NamespaceProjectDriver::project(&driver(Some("d")), &greedy).await;
        for error in [project(Some("d"), "shop").await.unwrap_err(), of_itself.unwrap_err()] {
            assert_eq!(error.reason(), Reason::Refused);
            assert!(error.to_string().contains("neutron_defaults.projects"), "{error}");
        }
        let of_itself = NamespaceProjectDriver::project(&driver(None), &shop).await;
        assert_eq!(of_itself.unwrap(), "p1".into());
    }
}
