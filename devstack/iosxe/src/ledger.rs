//! The ledger of a device: the events of its apps, in order.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An event on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The position of the event, from 1 on without gaps.
    pub number: u64,
    /// The time, by the clock of the device.
    pub at: Timestamp,
    /// The name of the app or the file.
    pub app: String,
    /// The event.
    pub effect: Effect,
}

/// An event in the life of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The app was configured.
    Configured,
    /// The configuration of the app was changed.
    Reconfigured,
    /// The configuration of the app was removed.
    Unconfigured,
    /// The installation of the app from this package has begun.
    InstallBegan(String),
    /// The app is DEPLOYED.
    Installed,
    /// The installation of the app has failed with this message; `None` if the device reported none.
    InstallFailed(Option<String>),
    /// The app is ACTIVATED.
    Activated,
    /// The activation of the app failed, with this reason.
    ActivationFailed(String),
    /// The app is RUNNING.
    Started,
    /// The app runs with this address, which another app has.
    AddressConflict(String),
    /// The app was stopped.
    Stopped,
    /// The app ended by itself.
    Crashed,
    /// The app is DEPLOYED again.
    Deactivated,
    /// The app is not installed any more.
    Uninstalled,
    /// The device lost the app in a reboot.
    Forgotten,
    /// The file was copied from this URL.
    FileCopied(String),
    /// The file was deleted.
    FileDeleted,
    /// An operation was rejected: its name and the reason. The reason ends with `by its own start` if the app had started
    /// automatically.
    Refused(String, String),
}

/// All events of a device, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(Vec<Entry>);

impl Ledger {
    /// Creates a ledger from these entries, oldest first.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self(entries)
    }

    /// Returns the entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Returns the events of one app, oldest first.
    pub fn of<'a>(&'a self, app: &'a str) -> impl Iterator<Item = &'a Effect> {
        self.0.iter().filter(move |entry| entry.app == app).map(|entry| &entry.effect)
    }

    /// Returns the apps that are configured or installed now.
    pub fn existing(&self) -> BTreeSet<&str> {
        let mut configured = BTreeSet::new();
        let mut installed = BTreeSet::new();
        for entry in &self.0 {
            let app = entry.app.as_str();
            match &entry.effect {
                Effect::Configured => drop(configured.insert(app)),
                Effect::InstallBegan(_) => drop(installed.insert(app)),
                Effect::Unconfigured => drop(configured.remove(app)),
                Effect::InstallFailed(_) | Effect::Uninstalled => drop(installed.remove(app)),
                Effect::Forgotten => {
                    installed.remove(app);
                }
                _ => {}
            }
        }
        configured.union(&installed).copied().collect()
    }

    /// Returns the number of installations that have begun, by app.
    pub fn installs(&self) -> BTreeMap<&str, usize> {
        let mut installs = BTreeMap::new();
        for entry in &self.0 {
            if matches!(entry.effect, Effect::InstallBegan(_)) {
                *installs.entry(entry.app.as_str()).or_default() += 1;
            }
        }
        installs
    }

    /// Returns the highest number of concurrent installations.
    pub fn most_installs_at_once(&self) -> usize {
        let mut working = BTreeSet::new();
        let mut most = 0;
        for entry in &self.0 {
            match entry.effect {
                Effect::InstallBegan(_) => drop(working.insert(entry.app.as_str())),
                Effect::Installed | Effect::InstallFailed(_) | Effect::Forgotten => {
                    working.remove(entry.app.as_str());
                }
                _ => {}
            }
            most = most.max(working.len());
        }
        most
    }

    /// Returns the rejected operations: the app, the operation and the reason.
    pub fn refused(&self) -> Vec<(&str, &str, &str)> {
        let refused = self.0.iter().filter_map(|entry| match &entry.effect {
            Effect::Refused(operation, why) => Some((entry.app.as_str(), operation.as_str(), why.as_str())),
            _ => None,
        });
        refused.collect()
    }

    /// Returns the apps that ran with the address of another app.
    pub fn address_conflicts(&self) -> BTreeSet<&str> {
        let conflicts = self.0.iter().filter(|entry| matches!(entry.effect, Effect::AddressConflict(_)));
        conflicts.map(|entry| entry.app.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(effects: &[(&str, Effect)]) -> Ledger {
        let entry = |(app, effect): &(&str, Effect)| Entry {
            number: 0,
            at: Timestamp::UNIX_EPOCH,
            app: (*app).into(),
            effect: effect.clone(),
        };
        Ledger::new(effects.iter().map(entry).collect())
    }

    fn began() -> Effect {
        Effect::InstallBegan("flash:/a.tar".into())
    }

    #[test]
    fn an_app_stands_until_both_its_install_and_its_configuration_are_gone() {
        let mut effects = vec![
            ("a", Effect::Configured),
            ("a", began()),
            ("b", Effect::Configured),
            ("a", Effect::Installed),
        ];
        effects.push(("b", Effect::Unconfigured));
        effects.push(("a", Effect::Unconfigured));
        assert_eq!(ledger(&effects).existing().into_iter().collect::<Vec<_>>(), ["a"]);
        effects.push(("a", Effect::Uninstalled));
        assert!(ledger(&effects).existing().is_empty());
    }

    #[test]
    fn installs_are_counted_by_app_and_by_how_many_were_at_work_at_a_time() {
        let effects = [
            ("a", began()),
            ("b", began()),
            ("a", Effect::InstallFailed(None)),
            ("a", began()),
            ("b", Effect::Installed),
        ];
        let ledger = ledger(&effects);
        assert_eq!(ledger.most_installs_at_once(), 2);
        assert_eq!(ledger.installs(), BTreeMap::from([("a", 2), ("b", 1)]));
    }
}
