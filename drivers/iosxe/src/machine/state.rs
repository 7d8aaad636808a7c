//! The states of an application on a device.

/// The state of an application on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum AppState {
    /// The device has no such application.
    #[default]
    Absent,
    /// The package is being downloaded or unpacked.
    Installing,
    /// The package is installed (`DEPLOYED`).
    Deployed,
    /// The resources are reserved (`ACTIVATED`).
    Activated,
    /// The container runs (`RUNNING`).
    Running,
    /// The container has stopped (`STOPPED`): it exited, or was stopped.
    Stopped,
    /// The device reports that the application has failed (`ERROR` or `FAILED`).
    Failed,
    /// A state that this driver does not know, or that of an application that the device has not reported for some time. The driver waits
    /// until it changes, except that it removes an application that is unwanted, or must be replaced, after a time limit.
    Unknown,
}

impl AppState {
    /// Decodes the leaf `details/state`, a string without defined values. A text that this driver does not know becomes
    /// [`Unknown`](Self::Unknown).
    pub(crate) fn read(text: &str) -> Self {
        match text.trim().to_ascii_uppercase().as_str() {
            "INSTALLING" => Self::Installing,
            "DEPLOYED" => Self::Deployed,
            "ACTIVATED" => Self::Activated,
            "RUNNING" => Self::Running,
            "STOPPED" => Self::Stopped,
            "ERROR" | "FAILED" => Self::Failed,
            "UNINSTALLED" => Self::Absent,
            _ => Self::Unknown,
        }
    }
}
