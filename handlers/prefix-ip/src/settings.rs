//! The options in the `ConfigMap` `amazon-vpc-cni` of the namespace `kube-system`, which Amazon's VPC resource controller reads too.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::targets::Targets;

/// The boolean option that switches the handler on.
const IPAM: &str = "enable-windows-ipam";
/// The boolean option that chooses prefixes instead of single addresses.
const PREFIX_DELEGATION: &str = "enable-windows-prefix-delegation";
/// The option with the minimum number of free addresses of a node.
const WARM_IP: &str = "warm-ip-target";
/// The option with the minimum number of addresses of a node, free or not.
const MINIMUM_IP: &str = "minimum-ip-target";
/// The option with the minimum number of wholly free prefixes of a node. It applies only to prefixes.
const WARM_PREFIX: &str = "warm-prefix-target";

/// The targets of nodes with single addresses if neither `warm-ip-target` nor `minimum-ip-target` is set: the minimum number of free
/// addresses, and the minimum number of all addresses.
const DEFAULT_ADDRESS_TARGETS: (usize, usize) = (3, 3);
/// The default targets of nodes with prefixes: the minimum number of free addresses, and the minimum number of all addresses.
const DEFAULT_PREFIX_TARGETS: (usize, usize) = (1, 3);

/// The options of this handler in the `ConfigMap` `amazon-vpc-cni`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `true` if nodes get addresses for their pods.
    pub enabled: bool,
    /// `true` if nodes get prefixes, where the machine supports them. Otherwise they get single addresses.
    pub prefix_delegation: bool,
    /// The addresses or blocks that a node with prefixes keeps in advance for new pods.
    pub prefixes: Targets,
    /// The addresses that a node with single addresses keeps in advance for new pods.
    pub addresses: Targets,
}

impl Settings {
    /// Reads the options from the data of the `ConfigMap`. A missing or invalid target gets its default, and a missing or invalid switch
    /// keeps its value in `last`, the options so far: what somebody has lost or misspelled switches nothing off. Without them, it is off.
    /// The mistakes are returned, too, each as a text that names the option.
    ///
    /// If `warm-ip-target` or `minimum-ip-target` is greater than 0, `warm-prefix-target` is not used. If a target is set under both of its
    /// names, the value under the name without `windows-` is used.
    pub fn read(data: &BTreeMap<String, String>, last: Option<&Self>) -> (Self, Vec<String>) {
        let mut reader = Reader { data, mistakes: Vec::new() };
        let enabled = reader.switch(IPAM, last.is_some_and(|last| last.enabled));
        let delegated = last.is_some_and(|last| last.prefix_delegation);
        let prefix_delegation = reader.switch(PREFIX_DELEGATION, delegated);
        let [warm, minimum, prefix] = [WARM_IP, MINIMUM_IP, WARM_PREFIX].map(|key| reader.target(key));
        let prefixes = match (some(warm), some(minimum), some(prefix)) {
            (None, None, Some(prefixes)) => Targets::Blocks(prefixes),
            (warm, minimum, unused) => {
                if unused.is_some() {
                    reader.mistakes.push(format!(
                        "`{WARM_PREFIX}` is not used because `{WARM_IP}` or `{MINIMUM_IP}` is set; remove one of them"
                    ));
                }
                Targets::Addresses {
                    warm: warm.unwrap_or(DEFAULT_PREFIX_TARGETS.0),
                    minimum: minimum.unwrap_or(DEFAULT_PREFIX_TARGETS.1),
                }
            }
        };
        // Without a free address, the next pod would wait for ever.
        let addresses = match (warm, minimum) {
            (None, None) => {
                Targets::Addresses { warm: DEFAULT_ADDRESS_TARGETS.0, minimum: DEFAULT_ADDRESS_TARGETS.1 }
            }
            _ => Targets::Addresses { warm: warm.unwrap_or(1).max(1), minimum: minimum.unwrap_or(0) },
        };
        (Self { enabled, prefix_delegation, prefixes, addresses }, reader.mistakes)
    }
}

/// Returns the switch of the handler in the data of the `ConfigMap`; `None` if it is missing or misspelled.
pub(crate) fn switch(data: &BTreeMap<String, String>) -> Option<bool> {
    boolean(data.get(IPAM)?)
}

/// Parses `true` or `false` in the spellings of Go's `strconv.ParseBool`.
fn boolean(value: &str) -> Option<bool> {
    match value {
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        _ => None,
    }
}

/// Returns the target, or `None` if it is 0: for prefixes, 0 means that no target is set.
fn some(target: Option<usize>) -> Option<usize> {
    target.filter(|target| *target > 0)
}

/// Reads the options in the data of the `ConfigMap` one by one, and collects the mistakes in them.
struct Reader<'d> {
    data: &'d BTreeMap<String, String>,
    mistakes: Vec<String>,
}

impl Reader<'_> {
    /// Reads an option that is true or false. With any other value it stays `last`, and so it does if it is missing. Both are recorded as a
    /// mistake, but a missing option that is false is none.
    fn switch(&mut self, key: &str, last: bool) -> bool {
        let wrong = match self.data.get(key).map(|value| boolean(value)) {
            Some(Some(value)) => return value,
            None if !last => return false,
            None => "missing",
            Some(None) => "neither `true` nor `false`",
        };
        self.mistakes.push(format!("`{key}` is {wrong}; it stays `{last}`"));
        last
    }

    /// Reads an option that is a number, under its name or under that name with the prefix `windows-`; `None` if it is missing or invalid.
    /// An invalid value is recorded as a mistake.
    fn target(&mut self, key: &str) -> Option<usize> {
        let alias = format!("windows-{key}");
        let (key, value) = [key, &alias].into_iter().find_map(|key| Some((key, self.data.get(key)?)))?;
        let target = u16::from_str(value).ok().map(usize::from);
        if target.is_none() {
            self.mistakes.push(format!("`{key}` is not a number from 0 to 65535; the default is used"));
        }
        target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let data = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Settings::read(&data, None)
    }

    fn addresses(warm: usize, minimum: usize) -> Targets {
        Targets::Addresses { warm, minimum }
    }

    #[test]
    fn without_options_nothing_is_enabled_and_the_targets_are_those_of_the_reference() {
        let (settings, mistakes) = read(&[]);
        assert!(!settings.enabled && !settings.prefix_delegation && mistakes.is_empty());
        assert_eq!((settings.prefixes, settings.addresses), (addresses(1, 3), addresses(3, 3)));
    }

    #[test]
    fn a_switch_has_the_values_of_the_reference_and_any_other_is_a_mistake() {
        for value in ["1", "t", "T", "TRUE", "true", "True"] {
            assert!(read(&[(IPAM, value)]).0.enabled, "{value}");
        }
        for value in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(read(&[(IPAM, value)]).1, [""; 0], "{value}");
        }
        let (settings, mistakes) = read(&[(IPAM, "yes"), (PREFIX_DELEGATION, "true")]);
        assert!(!settings.enabled && settings.prefix_delegation);
        assert_eq!(mistakes, ["`enable-windows-ipam` is neither `true` nor `false`; it stays `false`"]);
    }

    #[test]
    fn a_switch_that_is_lost_or_misspelled_stays_as_it_was_and_only_false_switches_it_off() {
        let last = read(&[(IPAM, "true"), (PREFIX_DELEGATION, "true")]).0;
        for data in [BTreeMap::new(), [(IPAM.to_owned(), "tru".to_owned())].into()] {
            let (settings, mistakes) = Settings::read(&data, Some(&last));
            assert!(settings.enabled && settings.prefix_delegation);
            assert_eq!(mistakes.len(), 2, "{mistakes:?}");
            assert!(mistakes[0].ends_with("it stays `true`"), "{mistakes:?}");
        }
        let off = [(IPAM.to_owned(), "false".to_owned())].into();
        assert!(!Settings::read(&off, Some(&last)).0.enabled);
    }

    #[test]
    fn targets_of_prefixes_have_the_precedence_of_the_reference() {
        let prefixes = |options: &[(&str, &str)]| read(options).0.prefixes;
        assert_eq!(prefixes(&[(WARM_PREFIX, "3")]), Targets::Blocks(3));
        assert_eq!(prefixes(&[(WARM_PREFIX, "5"), (WARM_IP, "1")]), addresses(1, 3));
        assert_eq!(prefixes(&[(MINIMUM_IP, "20")]), addresses(1, 20));
        assert_eq!(prefixes(&[(WARM_IP, "7"), (MINIMUM_IP, "20")]), addresses(7, 20));
        assert_eq!(prefixes(&[(WARM_IP, "0"), (MINIMUM_IP, "0"), (WARM_PREFIX, "0")]), addresses(1, 3));
        assert_eq!(prefixes(&[("windows-warm-ip-target", "4"), (WARM_IP, "2")]), addresses(2, 3));
        assert_eq!(prefixes(&[("windows-warm-prefix-target", "2")]), Targets::Blocks(2));
    }

    #[test]
    fn targets_of_single_addresses_always_leave_one_for_the_next_pod() {
        let single = |options: &[(&str, &str)]| read(options).0.addresses;
        assert_eq!(single(&[(WARM_IP, "0")]), addresses(1, 0));
        assert_eq!(single(&[(MINIMUM_IP, "5")]), addresses(1, 5));
        assert_eq!(single(&[(WARM_IP, "2"), (MINIMUM_IP, "0")]), addresses(2, 0));
        assert_eq!(single(&[(WARM_PREFIX, "9")]), addresses(3, 3));
    }

    #[test]
    fn a_target_that_is_no_number_and_two_that_contradict_each_other_are_mistakes() {
        let (settings, mistakes) =
            read(&[(WARM_IP, "-5"), (MINIMUM_IP, "many"), (WARM_PREFIX, "99999999999")]);
        assert_eq!((settings.prefixes, mistakes.len()), (addresses(1, 3), 3));
        assert_eq!(mistakes[0], "`warm-ip-target` is not a number from 0 to 65535; the default is used");
        let (_, mistakes) = read(&[(WARM_IP, "5"), (WARM_PREFIX, "2")]);
        assert_eq!(
            mistakes,
            [
                "`warm-prefix-target` is not used because `warm-ip-target` or `minimum-ip-target` is set; remove one of them"
            ]
        );
    }
}
