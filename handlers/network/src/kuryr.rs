//! Pods and services that Kuryr manages by its custom resources `KuryrPort` and
//! `KuryrLoadBalancer`, as its last releases do instead of by annotations.

use kube::ResourceExt;

use crate::os_vif::KURYR_VIF;

/// The prefix of finalizers of Kuryr. Kuryr adds one to a pod or a service before it creates a custom
/// resource for that object, and removes it after that resource is deleted.
const KURYR_FINALIZER_PREFIX: &str = "kuryr.openstack.org/";
/// The prefix of the finalizers of this program (staffetta).
const OWN_FINALIZER_PREFIX: &str = "staffetta.dev/";
/// The annotations in which earlier releases of Kuryr, and this program, record a port or a load
/// balancer.
const ANNOTATIONS: [&str; 2] = [KURYR_VIF, "openstack.org/kuryr-lbaas-state"];

/// The reason of the Event for a pod or service that is left alone because Kuryr manages it.
pub(crate) const MANAGED: &str = "ManagedByKuryr";

/// Returns `true` if the finalizer is one of Kuryr's: `kuryr.openstack.org/pod-finalizer`,
/// `kuryrnetwork.finalizers.kuryr.openstack.org` and so on.
pub fn is_finalizer(finalizer: &str) -> bool {
    finalizer.starts_with(KURYR_FINALIZER_PREFIX) || finalizer.ends_with(".kuryr.openstack.org")
}

/// Returns the text of a warning Event if Kuryr manages the object, otherwise `None`. Kuryr manages an object that has
/// a finalizer of Kuryr, and neither a finalizer of this program nor the annotation of earlier releases of Kuryr.
pub(crate) fn managed_notice(object: &impl ResourceExt) -> Option<String> {
    let with = |prefix| object.finalizers().iter().find(move |finalizer| finalizer.starts_with(prefix));
    let is_annotated = ANNOTATIONS.iter().any(|key| object.annotations().contains_key(*key));
    let theirs =
        with(KURYR_FINALIZER_PREFIX).filter(|_| with(OWN_FINALIZER_PREFIX).is_none() && !is_annotated)?;
    Some(format!(
        "the object has the finalizer {theirs}: Kuryr manages it by a custom resource, and it is left alone until \
         `staffetta migrate kuryr` takes it over"
    ))
}
