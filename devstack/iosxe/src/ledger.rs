//! A ledger of what happened to the apps of a device, in order.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Something that happened on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its place in the order, without gaps from 1 on.
    pub number: u64,
    /// The time, by the clock of the device.
    pub at: Timestamp,
    /// The app, or the file.
    pub app: String,
    /// The event.
    pub effect: Effect,
}

/// An event in the life of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Its configuration was made.
    Configured,
    /// Its configuration was changed.
    Reconfigured,
    /// Its configuration was removed.
    Unconfigured,
    /// Its install has begun, from this package.
    InstallBegan(String),
    /// It is DEPLOYED.
    Installed,
    /// Its install has failed; without a reason, in silence.
    InstallFailed(Option<String>),
    /// It is ACTIVATED.
    Activated,
    /// It could not be activated.
    ActivationFailed(String),
    /// It is RUNNING.
    Started,
    /// It runs with an address that another app has.
    AddressConflict(String),
    /// It was stopped.
    Stopped,
    /// It ended by itself.
    Crashed,
    /// It is DEPLOYED again.
    Deactivated,
    /// It is not installed any more.
    Uninstalled,
    /// The device has lost it in a reboot.
    Forgotten,
    /// It was copied from there.
    FileCopied(String),
    /// It was deleted.
    FileDeleted,
    /// An operation was refused: its name, and why; at the end `by its own start`, where the app had gone on by itself.
    Refused(String, String),
}

/// Everything that happened, oldest first.
///
/// ```
/// use staffetta_iosxe_device::Ledger;
///
/// /// Whether nothing is left, and nothing was ever done twice or side by side.
/// fn tidy(ledger: &Ledger) -> bool {
///     ledger.standing().is_empty() && ledger.most_installs_at_once() <= 1 && ledger.refused().is_empty()
/// }
/// # assert!(tidy(&Ledger::default()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger(Vec<Entry>);

impl Ledger {
    /// These entries, oldest first.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self(entries)
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The events of one app, oldest first.
    pub fn of<'a>(&'a self, app: &'a str) -> impl Iterator<Item = &'a Effect> {
        self.0.iter().filter(move |entry| entry.app == app).map(|entry| &entry.effect)
    }

    /// The apps that are configured or installed.
    pub fn standing(&self) -> BTreeSet<&str> {
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

    /// The number of installs begun, by app.
    pub fn installs(&self) -> BTreeMap<&str, usize> {
        let mut installs = BTreeMap::new();
        for entry in &self.0 {
            if matches!(entry.effect, Effect::InstallBegan(_)) {
                *installs.entry(entry.app.as_str()).or_default() += 1;
            }
        }
        installs
    }

    /// The highest number of concurrent installs.
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

    /// The operations that were refused: the app, the operation, and why.
    pub fn refused(&self) -> Vec<(&str, &str, &str)> {
        let refused = self.0.iter().filter_map(|entry| match &entry.effect {
            Effect::Refused(operation, why) => Some((entry.app.as_str(), operation.as_str(), why.as_str())),
            _ => None,
        });
        refused.collect()
    }

    /// The apps that ran with an address that another one had.
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
        assert_eq!(ledger(&effects).standing().into_iter().collect::<Vec<_>>(), ["a"]);
        effects.push(("a", Effect::Uninstalled));
        assert!(ledger(&effects).standing().is_empty());
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
