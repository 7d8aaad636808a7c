//! The states of an application, as the device names them.

/// The state of an application on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum AppState {
    /// The device has no such application.
    #[default]
    Absent,
    Installing,
    Deployed,
    Activated,
    Running,
    Stopped,
    /// The device gave up.
    Failed,
    /// A word that this driver does not know, and waits behind.
    Unknown,
}

impl AppState {
    /// Reads the leaf `details/state`, which is a free text.
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
