//! The projects and networks of namespaces, read from the annotations of the namespaces.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use parking_lot::Mutex;
use staffetta_driver::{
    DriverError, NAMESPACE_NETWORK, NamespaceNetwork, NamespaceObserver, ProjectId, Reason, Uid,
};
use tokio::time::Instant;

use crate::error::{DriverResult, StepName};

/// The annotation of a namespace that contains the id of the OpenStack project of its pods and services, with the name that Kuryr uses.
pub const PROJECT: &str = "openstack.org/kuryr-project";

/// The shortest and the longest retry delay while a namespace has no network.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

const FIND: &str = "find the subnet of a namespace";

/// The remedy that errors of a wrong annotation name.
pub(super) const REWRITTEN: &str = "the handler `namespace`, if it is enabled, writes it again";

/// The existing namespaces with the fields that drivers need, updated from the watch of the API server.
#[derive(Debug, Default)]
pub struct Namespaces(Mutex<HashMap<String, NamespaceRecord>>);

/// The fields of one namespace that drivers need, and the time at which the watch first reported it.
#[derive(Clone, Debug)]
struct NamespaceRecord {
    uid: Uid,
    project: Option<ProjectId>,
    /// The value of the annotation [`NAMESPACE_NETWORK`]; `None` without that annotation.
    network: Option<String>,
    since: Instant,
}

impl Namespaces {
    /// Returns the project that the annotation `openstack.org/kuryr-project` of the namespace `name` names, or `None` without it. Until the
    /// watch has reported the namespace, the error is [`Reason::Awaited`].
    pub fn project(&self, name: &str) -> DriverResult<Option<ProjectId>> {
        Ok(self.record("find the project of a namespace", name)?.project)
    }

    /// Returns the UID of the namespace `name` and the network that its annotation [`NAMESPACE_NETWORK`] names, which may be forged. Until the
    /// watch has reported the namespace with such an annotation, the error is that of [`awaited`](Self::awaited).
    pub(super) fn network(&self, name: &str) -> DriverResult<(Uid, NamespaceNetwork)> {
        let record = self.record(FIND, name)?;
        let missing =
            || self.awaited(name, "has no network yet; the handler `namespace`, if it is enabled, makes one");
        let text = record.network.ok_or_else(missing)?;
        let network = NamespaceNetwork::read(&text).map_err(|error| {
            let text = format!("has an annotation {NAMESPACE_NETWORK} that cannot be read; {REWRITTEN}");
            self.awaited(name, &text).because(error)
        })?;
        Ok((record.uid, network))
    }

    /// Returns the error [`Reason::Awaited`] of the namespace `name`, which `lacks` something. Its retry delay is a quarter of the time since
    /// the watch first reported the namespace, from 100 ms to 5 s.
    pub(super) fn awaited(&self, name: &str, lacks: &str) -> DriverError {
        let waited = self.record(FIND, name).map_or(Duration::ZERO, |record| record.since.elapsed());
        let wait = (waited / 4).clamp(RETRY_DELAYS.0, RETRY_DELAYS.1);
        let detail = format!("the namespace {name} {lacks}");
        DriverError::new(Reason::Awaited, FIND).detail(detail).after(wait)
    }

    /// Returns the record of the namespace `name`: its UID, project and network, and the time at which the watch first reported it. Until
    /// then, the error is [`Reason::Awaited`]; `step` is the operation that the error names.
    fn record(&self, step: StepName, name: &str) -> DriverResult<NamespaceRecord> {
        self.0.lock().get(name).cloned().ok_or_else(|| {
            let detail = format!("the namespace {name} is not known yet");
            DriverError::new(Reason::Awaited, step).detail(detail).after(RETRY_DELAYS.0)
        })
    }
}

/// Returns the project in the annotation `openstack.org/kuryr-project` of a namespace, or `None` if the annotation is missing or empty.
pub(crate) fn project_of(namespace: &Namespace) -> Option<ProjectId> {
    annotation(namespace, PROJECT).filter(|text| !text.is_empty()).map(ProjectId::from)
}

/// Returns the value of the annotation `key` of a namespace, or `None` if the annotation is missing.
fn annotation<'a>(namespace: &'a Namespace, key: &str) -> Option<&'a str> {
    namespace.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

impl NamespaceObserver for Namespaces {
    fn present(&self, namespace: &Namespace) {
        let meta = &namespace.metadata;
        let uid: Uid = meta.uid.clone().unwrap_or_default().into();
        let mut namespaces = self.0.lock();
        let name = meta.name.clone().unwrap_or_default();
        let before = namespaces.get(&name).filter(|known| known.uid == uid);
        let since = before.map_or_else(Instant::now, |known| known.since);
        let network = annotation(namespace, NAMESPACE_NETWORK).map(str::to_owned);
        namespaces.insert(name, NamespaceRecord { uid, project: project_of(namespace), network, since });
    }

    fn gone(&self, name: &str, uid: &Uid) {
        let mut namespaces = self.0.lock();
        if namespaces.get(name).is_some_and(|known| known.uid == *uid) {
            namespaces.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn namespace(uid: &str, annotations: &serde_json::Value) -> Namespace {
        let meta = json!({ "metadata": { "name": "shop", "uid": uid, "annotations": annotations } });
        serde_json::from_value(meta).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_known_by_its_annotations_until_it_is_gone() {
        let namespaces = Namespaces::default();
        assert!(namespaces.project("shop").unwrap_err().transient());
        namespaces.present(&namespace("u1", &json!({ PROJECT: "p1" })));
        assert_eq!(namespaces.project("shop").unwrap(), Some("p1".into()));
        namespaces.present(&namespace("u2", &json!({ PROJECT: "" })));
        namespaces.gone("shop", &"u1".into());
        assert_eq!(namespaces.project("shop").unwrap(), None, "another one of that name is there");
        namespaces.gone("shop", &"u2".into());
        assert!(namespaces.project("shop").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_that_is_not_there_yet_is_looked_for_ever_more_seldom() {
        let namespaces = Namespaces::default();
        let wait = || namespaces.network("shop").unwrap_err().retry_after().unwrap().as_millis();
        namespaces.present(&namespace("u1", &json!({})));
        assert_eq!(namespaces.network("shop").unwrap_err().reason(), Reason::Awaited, "nothing has failed");
        assert_eq!(wait(), 100);
        tokio::time::advance(Duration::from_secs(4)).await;
        namespaces.present(&namespace("u1", &json!({ "other": "change" })));
        assert_eq!(wait(), 1000);
        tokio::time::advance(Duration::from_secs(400)).await;
        assert_eq!(wait(), 5000);
        let network = NamespaceNetwork { network: "n1".into(), subnet: "s1".into() };
        namespaces.present(&namespace("u1", &json!({ NAMESPACE_NETWORK: network.write() })));
        assert_eq!(namespaces.network("shop").unwrap(), ("u1".into(), network));
        namespaces.present(&namespace("u1", &json!({ NAMESPACE_NETWORK: "{}" })));
        let error = namespaces.network("shop").unwrap_err();
        assert_eq!(error.reason(), Reason::Awaited, "the handler writes it again");
        assert!(error.to_string().contains(NAMESPACE_NETWORK), "{error}");
    }
}
