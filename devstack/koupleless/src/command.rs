//! The commands of Arklet that a base serves.

/// A command of Arklet. Its name is the path of the request over HTTP, and the last part of the topic over MQTT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BaseCommand {
    /// `health`: reports the health of the base.
    Health,
    /// `queryAllBiz`: reports all modules.
    QueryAllBiz,
    /// `installBiz`: loads a module.
    InstallBiz,
    /// `uninstallBiz`: unloads a module.
    UninstallBiz,
    /// `switchBiz`: activates a version of a module, and deactivates the one that was active.
    SwitchBiz,
}

impl BaseCommand {
    /// All commands.
    pub const ALL: [Self; 5] =
        [Self::Health, Self::QueryAllBiz, Self::InstallBiz, Self::UninstallBiz, Self::SwitchBiz];

    /// Returns the name of the command.
    pub fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::QueryAllBiz => "queryAllBiz",
            Self::InstallBiz => "installBiz",
            Self::UninstallBiz => "uninstallBiz",
            Self::SwitchBiz => "switchBiz",
        }
    }

    /// Returns `true` for a command that changes a module.
    pub(crate) fn is_change(self) -> bool {
        matches!(self, Self::InstallBiz | Self::UninstallBiz | Self::SwitchBiz)
    }

    /// Returns the command with this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.name() == name)
    }
}
