//! The custom resource `CiscoDevice` (group `cisco.vk`, version `v1alpha1`): a device, described at run time.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A device, described at run time. The name of the object is that of its node.
///
/// The description is read by the handler, not by the watch: an invalid one is reported in the status of the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CiscoDevice {
    /// Standard object metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The description, a [`DeviceSpec`](staffetta_driver::app_hosting::DeviceSpec).
    #[serde(default)]
    pub spec: Value,
    /// The observed state, written by the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<CiscoDeviceStatus>,
}

/// The observed state of a `CiscoDevice`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CiscoDeviceStatus {
    /// `Pending`, `ProvisioningStatus`, `Ready`, `Error` or `Deleting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The condition `Ready`, with why it is so.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

impl Resource for CiscoDevice {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

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
