//! The custom resource `CiscoDevice` (group `cisco.vk`, version `v1alpha1`): the specification of a device.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A device that is a node of the cluster. The node has the name of the object.
///
/// `spec` is not decoded by the watch but by the handler, which reports an invalid one in the status of the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CiscoDevice {
    /// Standard object metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The specification, which should be a [`DeviceDescription`](super::DeviceDescription) in JSON.
    #[serde(default)]
    pub spec: Value,
    /// The observed state of the device, written by the controller; `None` before the first write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<CiscoDeviceStatus>,
}

/// The observed state of a `CiscoDevice`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CiscoDeviceStatus {
    /// The phase of the device: `Pending`, `ProvisioningStatus`, `Ready`, `Error` or `Deleting`; `None` before the first write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The conditions. This controller writes `Ready`, with a reason and a message, and keeps others.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

impl Resource for CiscoDevice {
    type DynamicType = ();
    type Scope = k8s_openapi::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "CiscoDevice".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "cisco.vk".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "ciscodevices".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
