//! The calls of an application hosting driver, for faults and for tests.

use staffetta_driver::Uid;

/// A method of an [`AppHostingDriver`](staffetta_driver::app_hosting::AppHostingDriver).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppHostingMethod {
    /// `check_connection`.
    Check,
    /// `get_device_info`.
    Info,
    /// `get_device_resources`.
    Resources,
    /// `deploy_pod` and `update_pod`.
    Deploy,
    /// `delete_pod`.
    Delete,
    /// `list_pods` and `get_pod_status`.
    List,
    /// `get_usage`.
    Usage,
}

/// A call of a driver that changes a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppHostingCall {
    /// A pod was to be deployed.
    Deploy(Uid),
    /// A pod was to be deleted.
    Delete(Uid),
}
